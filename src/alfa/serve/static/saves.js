// Downloads, and loading of saved examples.
import { download } from "./api.js";
import { announce, attempt, byId, plural, sentence, showProblem, whileBusy } from "./dom.js";
import { change, noun, pathOf } from "./store.js";

export function startSaves() {
  for (const button of document.querySelectorAll("[data-format]")) {
    const problem = byId(button.closest("#label") ? "rank-problem" : "save-problem");
    button.addEventListener("click", () =>
      whileBusy(button, () => attempt(problem, () => save(button.dataset.format))),
    );
  }
  const input = byId("load-file");
  byId("load").addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    const files = [...input.files];
    input.value = "";
    if (!files.length) return;
    whileBusy(byId("load"), () => attempt(byId("save-problem"), () => load(files)));
  });
}

function note(text) {
  byId("save-note").textContent = text;
  announce(text);
}

async function save(format) {
  byId("save-note").textContent =
    format === "onnx" ? "Preparing the file, which takes up to a minute…" : "Preparing the file…";
  try {
    const { blob, name } = await download(pathOf(`export?format=${format}`));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    // The browser has started the download by then.
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    note(`Saved ${name}.`);
  } catch (error) {
    byId("save-note").textContent = "";
    throw error;
  }
}

async function load(files) {
  byId("save-note").textContent = "Loading the examples…";
  try {
    const { session, added, refused } = await change("POST", "import", { files });
    const loaded = `Loaded ${plural(added.length, noun())} in ${plural(session.classes.length, "class", "classes")}.`;
    note(`${loaded} Undo restores the previous ones.`);
    showProblem(byId("save-problem"), refused.map(({ detail }) => sentence(detail)).join(" "));
  } catch (error) {
    byId("save-note").textContent = "";
    throw error;
  }
}
