// Before every widget's own script; `element` and `trigger` come from the page.
"use strict";

// Tells what went wrong before anything reached the server.
function tell(text) {
  const place = element.querySelector(".alfa-local");
  place.textContent = text;
  place.hidden = !text;
}

// The class that new pictures go to at this moment; another may be picked while they are on
// their way.
function target() {
  return Number(document.body.dataset.picked) || null;
}

// Brings a file to the server and gives what it is asked for by.
async function send(content, name, kind) {
  const address = `alfa/files?kind=${kind}&name=${encodeURIComponent(name)}`;
  const answer = await fetch(address, {
    method: "POST",
    headers: { "Content-Type": "application/octet-stream" },
    body: content,
  });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.problem);
  return told.token;
}

// Brings files to the server, one after the other, and says what to do with them.
async function hand_over(files, what, kind, limit) {
  const number = target();
  const large = files.filter((file) => file.size > limit);
  const megabytes = Math.floor(limit / (1 << 20));
  tell(large.map((file) => `“${file.name}” is larger than ${megabytes} MB.`).join(" "));
  const tokens = [];
  element.classList.add("is-busy");
  try {
    for (const file of files) {
      if (file.size <= limit) tokens.push(await send(file, file.name, kind));
    }
    if (tokens.length) trigger("act", { do: what, class: number, files: tokens });
  } catch (error) {
    tell(error.message || "The server does not answer; is it still running?");
  } finally {
    element.classList.remove("is-busy");
  }
}
