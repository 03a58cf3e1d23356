// The cards of the classes. They are drawn anew whenever something changes, so that all
// listeners are on what holds them.
function note_picked(card) {
  document.body.dataset.picked = card.dataset.class;
}

note_picked(element.querySelector(".is-picked"));

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

let latest = { turn: 0, markup: "" };
watch("value", () => {
  const turn = Number(element.querySelector(".alfa-classes").dataset.turn);
  if (turn < latest.turn) {
    props.value = latest.markup;
    return;
  }
  latest = { turn, markup: props.value };
  note_picked(element.querySelector(".is-picked"));
  // A name that was refused must not stay there as if it were not.
  for (const box of element.querySelectorAll(".alfa-name")) {
    if (box !== document.activeElement) box.value = box.defaultValue;
  }
});

// Nothing is kept, so that a page with pictures is not left by accident.
window.addEventListener("beforeunload", (event) => {
  if (element.querySelector(".alfa-thumb")) event.preventDefault();
});
