// Unlabeled photos, the most useful first; the user clicks a class to label the shown one.
import {
  announce,
  attempt,
  byId,
  fromTemplate,
  make,
  plural,
  reconcile,
  setCss,
  whileBusy,
} from "./dom.js";
import { makeDrop } from "./inputs.js";
import { change, classOf, hueOf, imageUrl, noun, store, subscribe } from "./store.js";
import { announceAdded, batchQuery, uploadAll } from "./uploads.js";
import { showImage } from "./viewer.js";

const MAX_STRIP = 60;
let current = null;
// Photos that the user does not want to label now.
const skipped = new Set();

export function startLabels() {
  const drop = fromTemplate("inputs-template").querySelector(".drop");
  drop.classList.add("is-small");
  byId("label-drop").append(drop);
  makeDrop(drop, addUnlabeled);
  byId("rank").addEventListener("click", () => whileBusy(byId("rank"), rank));
  byId("label").addEventListener("keydown", (event) => {
    const { classes } = store.session;
    const each = classes[Number(event.key) - 1];
    if (!each || !find() || event.ctrlKey || event.altKey || event.metaKey) return;
    if (!event.target.matches("input")) assign(each.id);
  });
  subscribe(show);
}

const find = () => store.session.unlabeled.find((each) => each.id === current);

async function addUnlabeled(files) {
  const query = batchQuery();
  const answers = await uploadAll(
    files.map(({ file }) => file),
    {
      send: (file) => change("POST", `unlabeled${query}`, { files: [file] }),
      bar: byId("label-upload"),
      problem: byId("label-problem"),
      title: `Adding unlabeled ${noun()}s`,
    },
  );
  if (announceAdded(answers, noun(), " without labels") && store.session.learned) await rank();
}

export async function rank() {
  if (!store.session.unlabeled.length) return;
  skipped.clear();
  current = null;
  const session = await attempt(byId("rank-problem"), () => change("POST", "label-next"));
  if (session) announce(`Ranked ${plural(session.unlabeled.length, noun())} by usefulness.`);
}

function show(session) {
  const { unlabeled } = session;
  byId("queue").hidden = !unlabeled.length;
  if (!unlabeled.length) {
    clear();
    return;
  }
  if (!find()) current = (unlabeled.find((each) => !skipped.has(each.id)) ?? unlabeled[0]).id;
  showCandidate(find());
  const visible = unlabeled.slice(0, MAX_STRIP);
  reconcile(
    byId("strip"),
    visible,
    (each) => each.id,
    createItem,
    (item, each) => {
      item.setAttribute("aria-pressed", each.id === current);
      const text = describe(each);
      item.title = text;
      item.setAttribute("aria-label", text);
    },
  );
  const more = unlabeled.length - visible.length;
  byId("strip").dataset.more = more > 0 ? `and ${more} more` : "";
}

// Forgets all photos, because the next session uses their ids again.
function clear() {
  current = null;
  skipped.clear();
  byId("strip").replaceChildren();
  byId("candidate").replaceChildren();
  byId("candidate").dataset.state = "";
}

// The name of a photo and its place among the ranked ones.
function describe({ id, name, usefulness }) {
  const place = store.session.unlabeled.findIndex((each) => each.id === id) + 1;
  return usefulness === null ? name : `no. ${place} by usefulness: ${name}`;
}

function createItem(example) {
  const choose = () => {
    current = example.id;
    show(store.session);
  };
  const image = make("img", {
    src: imageUrl(example),
    alt: "",
    loading: "lazy",
    decoding: "async",
  });
  return make("button", { type: "button", class: "thumb", onclick: choose }, image);
}

function showCandidate(example) {
  const { classes, unlabeled } = store.session;
  const state = JSON.stringify([
    example.id,
    classes.map(({ id, name }) => [id, name]),
    unlabeled.length,
    example.usefulness,
  ]);
  const place = byId("candidate");
  if (place.dataset.state === state) return;
  place.dataset.state = state;
  let image = place.querySelector("img");
  if (image?.dataset.id !== example.id) {
    image = make("img", { data: { id: example.id } });
    showImage(image, example);
  }
  const hadFocus = place.contains(document.activeElement);
  const buttons = classes.map(({ id, name }, number) => {
    const key = number < 9 ? make("kbd", { "aria-hidden": "true" }, String(number + 1)) : null;
    const button = make(
      "button",
      { type: "button", onclick: () => assign(id) },
      make("i", { class: "dot" }),
      name,
      key,
    );
    setCss(button, { "--hue": hueOf(id) });
    return button;
  });
  const skip = make("button", { type: "button", onclick: () => leave(example) }, "Skip");
  const remove = make("button", { type: "button", onclick: () => discard(example) }, "Delete");
  const count = `${plural(unlabeled.length, noun())} without a label`;
  place.replaceChildren(
    make("figure", {}, image),
    make(
      "div",
      { class: "candidate-side" },
      make(
        "p",
        { class: "candidate-title" },
        make("b", {}, "Which class is this?"),
        make("span", { class: "note" }, count),
      ),
      make("div", { class: "buttons choices" }, ...buttons),
      classes.length ? null : make("p", { class: "note" }, "Add a class first."),
      make("p", { class: "note file", title: example.name }, describe(example)),
      make("div", { class: "buttons" }, skip, remove),
    ),
  );
  // Keep keyboard users in the panel, in which the keys 1 to 9 work.
  if (hadFocus) (place.querySelector(".choices button") ?? skip).focus({ preventScroll: true });
}

async function assign(id) {
  const { name } = classOf(id);
  const json = { class_id: id };
  const done = await attempt(byId("rank-problem"), () =>
    change("PATCH", `examples/${current}`, { json }),
  );
  if (done) announce(`Labeled as ${name}.`);
}

function leave(example) {
  skipped.add(example.id);
  const { unlabeled } = store.session;
  const place = unlabeled.indexOf(example);
  const next = [...unlabeled.slice(place + 1), ...unlabeled].find((each) => !skipped.has(each.id));
  if (!next) skipped.clear();
  current = next?.id ?? unlabeled[0].id;
  show(store.session);
}

const discard = (example) =>
  attempt(byId("rank-problem"), () => change("DELETE", `examples/${example.id}`));
