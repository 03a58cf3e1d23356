// The classes, their examples, and the inputs for new examples.
import {
  announce,
  attempt,
  byId,
  fromTemplate,
  make,
  plural,
  reconcile,
  setCss,
  showProblem,
} from "./dom.js";
import { acceptDrops, makeInputs } from "./inputs.js";
import {
  change,
  classOf,
  hueOf,
  imageUrl,
  modelOf,
  noun,
  setTarget,
  store,
  subscribe,
  targetClass,
} from "./store.js";
import { announceAdded, batchQuery, chosenFolder, uploadAll } from "./uploads.js";
import { openViewer } from "./viewer.js";

const MAX_WARNINGS = 2;
let areAllWarningsShown = false;
// The shown state of each card.
const states = new WeakMap();

export function startClasses() {
  const inputs = makeInputs(byId("teach-inputs"), {
    label: "Add examples",
    isLive: false,
    onFiles: addFiles,
    onDrawing: (file) => addTo(store.target, [file]),
  });
  byId("new-class").addEventListener("submit", addClass);
  const name = byId("new-class-name");
  name.addEventListener("input", () => markValid(name, byId("new-class-problem")));
  byId("more-warnings").addEventListener("click", () => {
    areAllWarningsShown = !areAllWarningsShown;
    showWarnings(store.session);
  });
  const folder = byId("folder").querySelector("input");
  folder.addEventListener("change", () => {
    const files = chosenFolder(folder.files);
    folder.value = "";
    addFiles(files);
  });
  acceptDrops(byId("folder"), addFiles);
  subscribe((session) => {
    inputs.setCanDraw(modelOf().input === "drawing");
    showClasses(session);
    showWarnings(session);
  });
}

function showClasses(session) {
  const warned = new Map();
  for (const { text, examples } of session.warnings) {
    for (const id of examples) warned.set(id, text);
  }
  reconcile(
    byId("classes"),
    session.classes,
    (each) => each.id,
    createCard,
    (card, each) => updateCard(card, each, warned),
  );
  byId("teach").hidden = !session.classes.length;
  const target = targetClass();
  if (!target) return;
  byId("target").textContent = target.name;
  setCss(byId("target").previousElementSibling, { "--hue": hueOf(target.id) });
}

function createCard({ id }) {
  const card = fromTemplate("class-template").firstElementChild;
  setCss(card, { "--hue": hueOf(id) });
  const name = card.querySelector(".name");
  const problem = card.querySelector(".problem");
  problem.id = `${id}-problem`;
  name.setAttribute("aria-describedby", problem.id);
  name.maxLength = store.limits.name_length;
  name.addEventListener("focus", () => name.select());
  name.addEventListener("input", () => markValid(name, problem));
  name.addEventListener("keydown", (event) => {
    if (event.key === "Enter") name.blur();
    if (event.key === "Escape") name.value = classOf(id).name;
  });
  name.addEventListener("change", async () => {
    if (name.value === classOf(id)?.name) return;
    const json = { name: name.value };
    const done = await attempt(problem, () => change("PATCH", `classes/${id}`, { json }));
    name.setAttribute("aria-invalid", !done);
    // Restore a name that the server refused.
    if (!done && classOf(id)) name.value = classOf(id).name;
  });
  card.addEventListener("click", (event) => {
    const action = event.target.closest("[data-do]")?.dataset.do;
    if (action === "delete") deleteClass(id, problem);
    else if (!event.target.closest("input, .thumb")) setTarget(id);
  });
  acceptDrops(card, (dropped) => {
    const files = dropped.map(({ file }) => file);
    addTo(id, files);
  });
  return card;
}

// Hides the problem with a name as soon as the user changes it.
function markValid(box, problem) {
  box.setAttribute("aria-invalid", "false");
  showProblem(problem);
}

function updateCard(card, { id, name, examples }, warned) {
  const isTarget = id === store.target;
  // During an upload, only the card of its class changes.
  const warnings = examples.map((each) => warned.get(each.id));
  const state = JSON.stringify([name, examples, warnings, isTarget, noun()]);
  if (states.get(card) === state) return;
  states.set(card, state);
  card.classList.toggle("is-target", isTarget);
  card.setAttribute("aria-label", `Class ${name}`);
  const box = card.querySelector(".name");
  if (document.activeElement !== box || !box.dataset.name) box.value = name;
  box.dataset.name = name;
  const remove = card.querySelector("[data-do=delete]");
  remove.title = "Delete the class";
  remove.setAttribute("aria-label", `Delete the class ${name}`);
  const pick = card.querySelector("[data-do=pick]");
  pick.textContent = isTarget ? "Adding here" : "Add here";
  pick.setAttribute("aria-pressed", isTarget);
  pick.setAttribute("aria-label", `${pick.textContent}: ${name}`);
  card.querySelector(".count").textContent = plural(examples.length, noun());
  const thumbs = card.querySelector(".thumbs");
  thumbs.dataset.empty = `No ${noun()}s yet`;
  reconcile(
    thumbs,
    examples,
    (each) => each.id,
    createThumb,
    (thumb, example) => {
      const place = examples.indexOf(example) + 1;
      thumb.classList.toggle("is-warned", warned.has(example.id));
      thumb.title = warned.get(example.id) ?? example.name;
      thumb.setAttribute("aria-label", `${example.name}, ${noun()} ${place} of ${name}`);
    },
  );
}

// A thumbnail that opens the viewer; the Delete key deletes its photo.
function createThumb(example) {
  const image = make("img", {
    alt: "",
    src: imageUrl(example),
    loading: "lazy",
    decoding: "async",
  });
  const thumb = make(
    "button",
    {
      type: "button",
      class: "thumb",
      onclick: () => openViewer(example.id),
      onkeydown: async (event) => {
        if (event.key !== "Delete") return;
        const next = thumb.nextElementSibling ?? thumb.previousElementSibling;
        const remove = () => change("DELETE", `examples/${example.id}`);
        if (!(await attempt(byId("teach-problem"), remove))) return;
        announce(`Deleted ${example.name}.`);
        next?.focus();
      },
    },
    image,
  );
  return thumb;
}

async function addClass(event) {
  event.preventDefault();
  const box = event.target.elements.name;
  const problem = byId("new-class-problem");
  const json = { name: box.value };
  const session = await attempt(problem, () => change("POST", "classes", { json }));
  box.setAttribute("aria-invalid", !session);
  box.focus();
  if (!session) return;
  box.value = "";
  setTarget(session.classes.at(-1).id);
  announce(`Added the class ${session.classes.at(-1).name}.`);
}

async function deleteClass(id, problem) {
  const { name } = classOf(id);
  if (!(await attempt(problem, () => change("DELETE", `classes/${id}`)))) return;
  announce(`Deleted the class ${name}. Undo restores it.`);
  byId("undo").focus();
}

// Adds files to the class of their folder, or to the selected class.
async function addFiles(files) {
  if (!files.length) return;
  const folders = [...new Set(files.map(({ folder }) => folder).filter(Boolean))];
  const problem = byId("teach-problem");
  if (files.some(({ folder }) => !folder) && !store.target) {
    showProblem(problem, "Add a class first.");
    return;
  }
  const ids = new Map([[null, store.target]]);
  for (const folder of folders) {
    const id = await attempt(problem, () => findOrAddClass(folder));
    if (!id) return;
    ids.set(folder, id);
  }
  const classes = new Map(files.map(({ file, folder }) => [file, ids.get(folder)]));
  const where = folders.length
    ? plural(folders.length, "class", "classes")
    : `“${classOf(store.target).name}”`;
  await addByClass(classes, ` to ${where}`);
}

async function findOrAddClass(name) {
  const same = (each) => each.name.toLowerCase() === name.toLowerCase();
  const known = store.session.classes.find(same);
  if (known) return known.id;
  const session = await change("POST", "classes", { json: { name } });
  return session.classes.at(-1).id;
}

export function addTo(id, files) {
  return addByClass(new Map(files.map((file) => [file, id])), ` to “${classOf(id).name}”`);
}

// Uploads files to their classes, given as a map from files to the ids of classes.
async function addByClass(classes, where) {
  const query = batchQuery();
  const answers = await uploadAll([...classes.keys()], {
    send: (file) =>
      change("POST", `classes/${classes.get(file)}/examples${query}`, { files: [file] }),
    bar: byId("teach-upload"),
    problem: byId("teach-problem"),
    title: `Adding ${noun()}s${where}`,
  });
  announceAdded(answers, noun(), where);
}

// Shows the first warnings; a button shows the others.
function showWarnings({ warnings }) {
  const list = byId("warnings");
  const numMore = warnings.length - MAX_WARNINGS;
  list.hidden = !warnings.length;
  if (numMore <= 0) areAllWarningsShown = false;
  const visible = areAllWarningsShown ? warnings : warnings.slice(0, MAX_WARNINGS);
  reconcile(list, visible, ({ text, examples }) => [text, ...examples].join(), createWarning);
  const button = byId("more-warnings");
  button.hidden = numMore <= 0;
  button.textContent = areAllWarningsShown
    ? "Show fewer warnings"
    : `Show ${plural(numMore, "more warning")}`;
}

function createWarning({ text, examples }) {
  const id = examples.at(-1);
  const show = make("button", { type: "button", onclick: () => openViewer(id) }, "Show");
  return make("li", {}, make("span", {}, text), id ? show : null);
}
