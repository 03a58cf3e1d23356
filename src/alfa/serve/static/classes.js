// The cards of the classes. The server replaces them after every change, so all listeners are on
// their container.
function store_picked(card) {
  document.body.dataset.picked = card.dataset.class;
}

store_picked(element.querySelector(".is-picked"));

// The user has requested a new class that the server has not added yet.
let is_adding = false;

element.addEventListener("click", (event) => {
  const card = event.target.closest("[data-class]");
  const button = event.target.closest("[data-do]");
  const number = card ? Number(card.dataset.class) : null;
  // A click anywhere on the card selects it, except on its name.
  const is_pick = button ? button.dataset.do === "pick" : card && !event.target.closest("input");
  if (is_pick) {
    store_picked(card);
    if (!card.classList.contains("is-picked")) trigger("act", { do: "pick", class: number });
  }
  if (!button || is_pick) return;
  // The first click only asks for confirmation, because removing a class loses its pictures.
  if (button.dataset.do === "remove" && button.dataset.count !== "0" && !button.dataset.sure) {
    button.dataset.sure = "yes";
    button.textContent = "Remove?";
    setTimeout(() => {
      delete button.dataset.sure;
      button.textContent = "✕";
    }, 3000);
    return;
  }
  const picture = button.dataset.picture ? Number(button.dataset.picture) : null;
  is_adding = button.dataset.do === "add";
  trigger("act", { do: button.dataset.do, class: number, picture });
});

element.addEventListener("focusin", (event) => {
  if (event.target.matches(".alfa-name")) event.target.select();
});

element.addEventListener("keydown", (event) => {
  if (event.target.matches(".alfa-name") && event.key === "Enter") event.target.blur();
});

element.addEventListener("change", (event) => {
  if (!event.target.matches(".alfa-name")) return;
  const number = Number(event.target.closest("[data-class]").dataset.class);
  trigger("act", { do: "rename", class: number, name: event.target.value });
});

// The user can drop pictures on a class.
function dropped_on(event) {
  // In some browsers, the target is a text node instead of an element.
  const over = event.target.closest ? event.target : event.target.parentElement;
  const card = over.closest("[data-class]");
  for (const other of element.querySelectorAll(".is-over")) {
    if (other !== card) other.classList.remove("is-over");
  }
  return card;
}

element.addEventListener("dragover", (event) => {
  const card = dropped_on(event);
  if (card && event.dataTransfer.types.includes("Files")) card.classList.add("is-over");
});
element.addEventListener("dragleave", (event) => {
  if (!element.contains(event.relatedTarget)) dropped_on({ target: document.body });
});
element.addEventListener("drop", (event) => {
  const card = dropped_on(event);
  const files = Array.from(event.dataTransfer.files);
  if (!card || !files.length) return;
  card.classList.remove("is-over");
  const place = element.querySelector(".alfa-classes");
  upload_and_act(files, "files", "picture", place, Number(card.dataset.class));
});

// Prevent the browser from opening files that are dropped elsewhere, which would leave the page.
// Dragging text into a name still works.
for (const name of ["dragover", "drop"]) {
  window.addEventListener(name, (event) => {
    if (event.dataTransfer.types.includes("Files")) event.preventDefault();
  });
}

watch("value", () => {
  if (!is_latest()) return;
  store_picked(element.querySelector(".is-picked"));
  show_problem(local_problem);
  // Restore a name that the server refused.
  for (const box of element.querySelectorAll(".alfa-name")) {
    if (box !== document.activeElement) box.value = box.defaultValue;
  }
  // The server replaced the focused button; keep keyboard users near the new class.
  if (is_adding && document.activeElement === document.body) {
    Array.from(element.querySelectorAll(".alfa-name")).at(-1).focus();
  }
  is_adding = false;
});

// Warn before the user leaves the page, because the pictures would be lost.
window.addEventListener("beforeunload", (event) => {
  if (element.querySelector(".alfa-thumb")) event.preventDefault();
});
