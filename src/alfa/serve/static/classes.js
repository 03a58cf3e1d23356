// The cards of the classes. They are drawn anew whenever something changes, so that all
// listeners are on what holds them.
function note_picked(card) {
  document.body.dataset.picked = card.dataset.class;
}

note_picked(element.querySelector(".is-picked"));

// A new class was asked for, and is on its way.
let is_adding = false;

element.addEventListener("click", (event) => {
  const card = event.target.closest("[data-class]");
  const button = event.target.closest("[data-do]");
  const number = card ? Number(card.dataset.class) : null;
  // The whole card picks, except for its name.
  const is_pick = button ? button.dataset.do === "pick" : card && !event.target.closest("input");
  if (is_pick) {
    note_picked(card);
    if (!card.classList.contains("is-picked")) trigger("act", { do: "pick", class: number });
  }
  if (!button || is_pick) return;
  // Pictures are easily lost, so that the first press only asks.
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

// Pictures can be dropped on the class that they are for.
function dropped_on(event) {
  // Some browsers drag over the text itself, which is no element.
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
  hand_over(files, "files", "picture", place, Number(card.dataset.class));
});

// What is dropped beside a place for it must not be opened by the browser, which would leave the
// page; a name can still be dragged into its box.
for (const name of ["dragover", "drop"]) {
  window.addEventListener(name, (event) => {
    if (event.dataTransfer.types.includes("Files")) event.preventDefault();
  });
}

watch("value", () => {
  if (!is_latest()) return;
  note_picked(element.querySelector(".is-picked"));
  tell(told);
  // A name that was refused must not stay there as if it were not.
  for (const box of element.querySelectorAll(".alfa-name")) {
    if (box !== document.activeElement) box.value = box.defaultValue;
  }
  // The button is another one now, and whoever types would have to start from the top of the page.
  if (is_adding && document.activeElement === document.body) {
    Array.from(element.querySelectorAll(".alfa-name")).at(-1).focus();
  }
  is_adding = false;
});

// Nothing is kept, so that a page with pictures is not left by accident.
window.addEventListener("beforeunload", (event) => {
  if (element.querySelector(".alfa-thumb")) event.preventDefault();
});
