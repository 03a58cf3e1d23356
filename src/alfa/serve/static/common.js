// Functions for all widgets, included before each script. Gradio provides `element`, `props`,
// `trigger`, and `watch`.
"use strict";

// Shows a problem that occurred before the server received an action.
let local_problem = "";
function show_problem(text) {
  local_problem = text;
  const place = element.querySelector(".alfa-local");
  place.textContent = text;
  place.hidden = !text;
}

// Answers can arrive out of order. Returns false and restores the later state if this one is older.
let latest = { turn: 0, markup: "" };
function is_latest() {
  const shown = element.querySelector("[data-turn]");
  const turn = shown ? Number(shown.dataset.turn) : 0;
  if (turn < latest.turn) {
    props.value = latest.markup;
    return false;
  }
  latest = { turn, markup: props.value };
  return true;
}

// The class that new pictures go to now; the user may select another one during an upload.
function target() {
  return Number(document.body.dataset.picked) || null;
}

// Uploads a file and returns its token.
async function upload(file, kind, limit) {
  const { name, size } = file;
  const refuse = (reason) => {
    throw new Error(`“${name}” ${reason}`);
  };
  if (size > limit) refuse(`is larger than ${Math.floor(limit / (1 << 20))} MB.`);
  const body = await file.arrayBuffer().catch(() => refuse("cannot be read; is it a folder?"));
  // The identifier of the session allows the server to drop the file when the user closes the tab.
  const query = new URLSearchParams({ kind, name, who: window.__gradio_session_hash__ || "" });
  const response = await fetch(`alfa/files?${query}`, {
    method: "POST",
    headers: { "Content-Type": "application/octet-stream" },
    body,
  }).catch(() => refuse("cannot be sent; is the server still running?"));
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.problem || `The server refused “${name}”.`);
  return answer.token;
}

// The number of problems to show; the others are counted.
const MAX_PROBLEMS = 5;

// Uploads files one after the other, and triggers an action on them. The data of `place` limits
// their number and size.
async function upload_and_act(files, action, kind, place, number = target()) {
  const tokens = [];
  const problems = [];
  const [limit, most] = [Number(place.dataset.limit), Number(place.dataset.most)];
  if (files.length > most) {
    show_problem(`Choose at most ${most} files at once, not ${files.length}.`);
    return;
  }
  show_problem("");
  element.classList.add("is-busy");
  for (const file of files) {
    // A problem with one file does not affect the others.
    try {
      tokens.push(await upload(file, kind, limit));
    } catch (error) {
      problems.push(error.message);
    }
  }
  element.classList.remove("is-busy");
  const more = problems.length - MAX_PROBLEMS;
  if (more > 0) problems.splice(MAX_PROBLEMS, more, `${more} more failed.`);
  show_problem(problems.join(" "));
  if (tokens.length) trigger("act", { do: action, class: number, files: tokens });
}
