// A dialog that shows an example, moves it to another class, or deletes it.
import { announce, attempt, byId, make, setCss, showProblem } from "./dom.js";
import { change, hueOf, imageUrl, noun, store, subscribe } from "./store.js";

let current = null;

// Returns an example with its class and neighbors, or undefined.
function find(id) {
  const { classes, unlabeled } = store.session;
  const groups = [...classes, { id: null, name: "no class yet", examples: unlabeled }];
  for (const owner of groups) {
    const place = owner.examples.findIndex((each) => each.id === id);
    if (place >= 0) return { example: owner.examples[place], owner, place };
  }
  return undefined;
}

export function openViewer(id) {
  if (!find(id)) return;
  current = id;
  show();
  if (!byId("viewer").open) byId("viewer").showModal();
}

function show() {
  const dialog = byId("viewer");
  const found = find(current);
  if (!found) {
    dialog.close();
    return;
  }
  const { example, owner, place } = found;
  const count = owner.examples.length;
  byId("viewer-name").textContent = example.name;
  const about = `${owner.name} · ${place + 1} of ${count} · ${example.width} × ${example.height} pixels`;
  byId("viewer-about").textContent = about;
  const image = byId("viewer-image");
  if (image.dataset.id !== example.id) {
    image.dataset.id = example.id;
    showImage(image, example);
  }
  const others = store.session.classes.filter((each) => each.id !== owner.id);
  byId("viewer-classes").replaceChildren(...others.map(moveButton));
  byId("viewer-classes").parentElement.hidden = !others.length;
  dialog.querySelector("[data-do=previous]").disabled = place === 0;
  dialog.querySelector("[data-do=next]").disabled = place === count - 1;
  // A disabled or removed button does not receive the arrow keys.
  const { activeElement } = document;
  if (dialog.open && (activeElement.disabled || !dialog.contains(activeElement))) {
    dialog.querySelector("[data-do=close]").focus();
  }
}

// Shows the original, or the thumbnail if the browser does not support its format.
export function showImage(image, example) {
  image.alt = example.name;
  image.onerror = () => {
    image.onerror = null;
    image.src = imageUrl(example);
  };
  image.src = imageUrl(example, "original");
}

function moveButton({ id, name }) {
  const move = () => leave(`Moved to ${name}.`, "PATCH", { json: { class_id: id } });
  const button = make(
    "button",
    { type: "button", onclick: move },
    make("i", { class: "dot" }),
    name,
  );
  setCss(button, { "--hue": hueOf(id) });
  return button;
}

// Changes the example so that it leaves its class, and shows the next one.
async function leave(text, method, options) {
  const { owner, place } = find(current);
  const neighbor = owner.examples[place + 1] ?? owner.examples[place - 1];
  const id = current;
  current = neighbor?.id ?? null;
  const done = await attempt(byId("viewer-problem"), () =>
    change(method, `examples/${id}`, options),
  );
  if (done) announce(text);
  else current = id;
  show();
}

export function startViewer() {
  const dialog = byId("viewer");
  const step = (by) => {
    const { owner, place } = find(current);
    const next = owner.examples[place + by];
    if (next) openViewer(next.id);
  };
  const actions = {
    close: () => dialog.close(),
    previous: () => step(-1),
    next: () => step(1),
    delete: () => leave(`Deleted the ${noun()}.`, "DELETE"),
  };
  dialog.addEventListener("click", (event) => {
    const button = event.target.closest("[data-do]");
    if (button) actions[button.dataset.do]();
    // A click outside of the dialog's content hits the dialog itself.
    else if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
    if (event.key === "Delete") actions.delete();
  });
  dialog.addEventListener("close", () => {
    showProblem(byId("viewer-problem"));
    byId("viewer-image").removeAttribute("src");
    byId("viewer-image").dataset.id = "";
  });
  subscribe(() => dialog.open && current && show());
}
