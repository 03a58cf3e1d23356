// Uploads with a progress bar: one request per photo, so that the bar counts photos.
import { announce, make, plural, showProblem } from "./dom.js";
import { store } from "./store.js";

// The server decodes one photo while the next one is on its way.
const NUM_PARALLEL = 2;
const MAX_PROBLEMS = 4;
// Batches run one after the other.
let queue = Promise.resolve();

// Sends files with `send(file)`. Shows progress in `bar` and problems in `problem`. Returns
// the answers of the server; `onAnswer` also receives each of them at once.
export function uploadAll(files, { send, bar, problem, title, onAnswer }) {
  const batch = queue.then(() => run(files, { send, bar, problem, title, onAnswer }));
  queue = batch.catch(() => {});
  return batch;
}

async function run(files, { send, bar, problem, title, onAnswer }) {
  showProblem(problem);
  const waiting = files.map((file, place) => [file, place]);
  // The server may have received the photos that are on their way, so these are not aborted.
  const progress = showProgress(bar, title, files.length, () => waiting.splice(0));
  const [answers, problems] = [[], []];
  let fatal = null;

  async function work() {
    while (waiting.length && !fatal) {
      const [file, place] = waiting.shift();
      try {
        checkSize(file);
        const answer = await send(file);
        answers.push(answer);
        problems.push(
          ...(answer.refused ?? []).map((refused) => named(refused.name, refused.detail)),
        );
        onAnswer?.(answer, file, place);
      } catch (error) {
        if (error.name === "AbortError") return;
        // Without a server or a session, the other files fail, too.
        if ([0, 401, 403, 404].includes(error.status)) fatal = error.message;
        else problems.push(named(file.name, error.message));
      }
      progress.advance();
    }
  }

  await Promise.all(Array.from({ length: NUM_PARALLEL }, work));
  progress.remove();
  if (fatal) problems.push(fatal);
  if (problems.length) showProblem(problem, summarize(problems));
  return answers;
}

function checkSize(file) {
  const limit = store.limits.file_bytes;
  if (file.size > limit) {
    throw new Error(
      `The file is larger than ${Math.floor(limit / (1 << 20))} MB; choose a smaller one.`,
    );
  }
}

const named = (name, text) => (text.includes(name) ? text : `“${name}”: ${text}`);

function summarize(problems) {
  const distinct = [...new Set(problems)];
  const more = distinct.length - MAX_PROBLEMS;
  if (more > 0) distinct.splice(MAX_PROBLEMS, more, `${more} more failed.`);
  return distinct.join(" ");
}

// A progress bar with the count of photos, the remaining time, and a button to cancel.
function showProgress(bar, title, count, cancel) {
  const meter = make("progress", { max: count, value: 0, "aria-label": title });
  const text = make("span");
  const button = make("button", { type: "button", onclick: cancel }, "Cancel");
  bar.replaceChildren(make("div", { class: "upload-text" }, text, button), meter);
  bar.hidden = false;
  const start = performance.now();
  let done = 0;
  const show = () => {
    text.textContent = `${title}: ${done} of ${count}${remaining(start, done, count)}`;
    meter.value = done;
  };
  show();
  return {
    advance() {
      done += 1;
      show();
    },
    remove() {
      bar.hidden = true;
      bar.replaceChildren();
    },
  };
}

function remaining(start, done, count) {
  const seconds = ((performance.now() - start) / 1000 / done) * (count - done);
  // The first photos do not allow an estimate.
  if (done < 2 || seconds < 1) return "";
  return seconds < 90 ? `, ${Math.ceil(seconds)} s left` : `, ${Math.ceil(seconds / 60)} min left`;
}

export function announceAdded(answers, noun, where) {
  const count = answers.reduce((sum, answer) => sum + answer.added.length, 0);
  if (count) announce(`Added ${plural(count, noun)}${where}.`);
  return count;
}

// One name per batch, so that undo removes the photos of a batch together.
export const batchQuery = () => `?batch=${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;

const compare = (a, b) => a.localeCompare(b, undefined, { numeric: true });

// Returns dropped files with the names of their folders, or null for files without a folder.
export async function droppedFiles(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => ({ file, folder: null }));
  const found = [];
  for (const entry of entries) await walk(entry, found);
  return inClassFolders(found);
}

async function walk(entry, found) {
  if (entry.isFile) {
    found.push({ file: await new Promise(entry.file.bind(entry)), path: entry.fullPath.slice(1) });
    return;
  }
  const reader = entry.createReader();
  // A reader returns the entries of a folder in several parts.
  for (;;) {
    const part = await new Promise(reader.readEntries.bind(reader));
    if (!part.length) return;
    for (const child of part) await walk(child, found);
  }
}

// Returns the files of a chosen folder with the names of their folders.
export const chosenFolder = (files) =>
  inClassFolders([...files].map((file) => ({ file, path: file.webkitRelativePath })));

// Replaces paths by folders. Only folders without further folders are classes; the others may contain
// lists and notes. Hidden files are not photos.
function inClassFolders(files) {
  const parents = new Set();
  for (const { path } of files) {
    const folders = path.split("/").slice(0, -1);
    for (let depth = 1; depth < folders.length; depth += 1) {
      parents.add(folders.slice(0, depth).join("/"));
    }
  }
  return files
    .map(({ file, path }) => ({ file, path, parent: path.split("/").slice(0, -1).join("/") }))
    .filter(({ path, parent }) => !parents.has(parent) && !/(^|\/)\./.test(path))
    .sort((a, b) => compare(a.path, b.path))
    .map(({ file, parent }) => ({ file, folder: parent.split("/").at(-1) || null }));
}
