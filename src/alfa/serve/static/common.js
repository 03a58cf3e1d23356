// Before every widget's own script; `element`, `props`, `trigger` and `watch` come from the page.
"use strict";

// Tells what went wrong before anything reached the server.
let told = "";
function tell(text) {
  told = text;
  const place = element.querySelector(".alfa-local");
  place.textContent = text;
  place.hidden = !text;
}

// Answers can come in another order than they were given in: what shows a later state stays.
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

// The class that new pictures go to at this moment; another may be picked while they are on
// their way.
function target() {
  return Number(document.body.dataset.picked) || null;
}

// Brings a file to the server and gives what it is asked for by.
async function send(file, kind, limit) {
  const { name, size } = file;
  const refuse = (why) => {
    throw new Error(`“${name}” ${why}`);
  };
  if (size > limit) refuse(`is larger than ${Math.floor(limit / (1 << 20))} MB.`);
  const body = await file.arrayBuffer().catch(() => refuse("cannot be read; is it a folder?"));
  // The server drops what is on its way when the tab is closed.
  const asked = new URLSearchParams({ kind, name, who: window.__gradio_session_hash__ || "" });
  const answer = await fetch(`alfa/files?${asked}`, {
    method: "POST",
    headers: { "Content-Type": "application/octet-stream" },
    body,
  }).catch(() => refuse("cannot be sent; is the server still running?"));
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(said.problem || `“${name}” was refused by the server.`);
  return said.token;
}

// Problems that are told one by one; of many, the others are counted.
const MAX_TOLD = 5;

// Brings files to the server, one after the other, and says what to do with them. `place` says how
// many there may be, and how large each.
async function hand_over(files, what, kind, place, number = target()) {
  const tokens = [];
  const problems = [];
  const [limit, most] = [Number(place.dataset.limit), Number(place.dataset.most)];
  if (files.length > most) {
    tell(`These are ${files.length} files; take ${most} at once at most.`);
    return;
  }
  tell("");
  element.classList.add("is-busy");
  for (const file of files) {
    // What is wrong with one does not keep the others.
    try {
      tokens.push(await send(file, kind, limit));
    } catch (error) {
      problems.push(error.message);
    }
  }
  element.classList.remove("is-busy");
  const more = problems.length - MAX_TOLD;
  if (more > 0) problems.splice(MAX_TOLD, more, `So it is with ${more} more.`);
  tell(problems.join(" "));
  if (tokens.length) trigger("act", { do: what, class: number, files: tokens });
}
