// Requests to the server. The API is next to this folder, so the page works below any path.
const BASE = new URL("../api/v1/", import.meta.url);
const MAX_ATTEMPTS = 20;

// Users of the page press a button, in contrast to clients of the API.
export const NOT_LEARNED = "The model has not learned yet; press Learn first.";

// An error of the API, whose message tells the user the reason and the fix.
class Problem extends Error {
  constructor(status, { code = "", detail = "", title = "", field = null } = {}) {
    const text = detail || title || `The server answered with status ${status}.`;
    super(code === "not-learned" ? NOT_LEARNED : text);
    Object.assign(this, { name: "Problem", status, code, field });
  }
}

export const urlOf = (path) => new URL(path, BASE).href;

// Sends a request and returns the response. A busy server says when to send it again.
async function send(method, path, { json, files, signal } = {}) {
  const options = { method, signal };
  if (json !== undefined) {
    options.body = JSON.stringify(json);
    options.headers = { "Content-Type": "application/json" };
  } else if (files) {
    options.body = new FormData();
    for (const file of files) options.body.append("files", file, file.name);
  }
  for (let attempt = 1; ; attempt += 1) {
    let response;
    try {
      response = await fetch(urlOf(path), options);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem(0, { detail: "The server cannot be reached; is it still running?" });
    }
    if (response.ok) return response;
    if (response.status !== 429 || attempt === MAX_ATTEMPTS) {
      throw new Problem(response.status, await response.json().catch(() => ({})));
    }
    await pause(1000 * (Number(response.headers.get("Retry-After")) || 1), signal);
  }
}

export async function call(method, path, options) {
  const response = await send(method, path, options);
  return response.status === 204 ? null : response.json();
}

// Fetches a file and returns its content and name.
export async function download(path) {
  const response = await send("GET", path);
  const name = /filename\*=UTF-8''([^;]+)/.exec(response.headers.get("Content-Disposition"))[1];
  return { blob: await response.blob(), name: decodeURIComponent(name) };
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
