// The session of this tab. The server holds it; the tab remembers its id, so it survives a reload.
import { call, urlOf } from "./api.js";
import { announce, byId, showProblem } from "./dom.js";

const KEY = `alfa-session:${urlOf("")}`;
const listeners = [];
const hues = new Map();

export const store = { session: null, models: [], defaultModel: null, limits: {}, target: null };

// Calls a listener after every change.
export function subscribe(listener) {
  listeners.push(listener);
}

export const modelOf = (session = store.session) =>
  store.models.find((model) => model.name === session.model);
export const noun = () => (modelOf()?.input === "drawing" ? "drawing" : "photo");
export const classOf = (id) => store.session.classes.find((each) => each.id === id);
export const targetClass = () => classOf(store.target);

// Hues of successive classes differ strongly; a class keeps its hue.
export function hueOf(id) {
  if (!hues.has(id)) hues.set(id, Math.round(hues.size * 137.508 + 75) % 360);
  return hues.get(id);
}

// Takes over a session from an answer, unless a later one has arrived before.
function accept(session) {
  const old = store.session;
  if (old?.id === session.id && old.version > session.version) return;
  store.session = session;
  for (const each of session.classes) hueOf(each.id);
  if (!targetClass()) store.target = session.classes.at(-1)?.id ?? null;
  for (const listener of listeners) listener(session, old);
}

export function setTarget(id) {
  store.target = id;
  for (const listener of listeners) listener(store.session, store.session);
}

// Sends a request below the session; answers with a session replace the current one.
export async function change(method, path, options) {
  const { id } = store.session;
  let answer;
  try {
    answer = await call(method, `sessions/${id}/${path}`.replace(/\/$/, ""), options);
  } catch (error) {
    if (error.status === 404 && (await renewIfExpired(id)))
      throw new DOMException("", "AbortError");
    throw error;
  }
  const session = answer?.session ?? answer;
  // The user may have started over in the meantime.
  if (session?.id === store.session.id) accept(session);
  return answer;
}

export const pathOf = (suffix) => `sessions/${store.session.id}/${suffix}`;
export const imageUrl = (example, size = "thumbnail") =>
  urlOf(pathOf(`examples/${example.id}/image?size=${size}`));

async function create(model) {
  const session = await call("POST", "sessions", { json: model ? { model } : {} });
  sessionStorage.setItem(KEY, session.id);
  store.target = null;
  hues.clear();
  accept(session);
}

// Starts a new session if the server has deleted this one; returns whether it has.
async function renewIfExpired(id) {
  const isGone = await call("GET", `sessions/${id}`).then(
    () => false,
    (error) => error.status === 404,
  );
  if (!isGone) return false;
  // Several requests may notice it.
  if (store.session.id === id) {
    await create(store.session.model);
    const text =
      "The session has expired, and the server has deleted its data. A new one has started.";
    showProblem(byId("session-problem"), text);
  }
  return true;
}

// Continues the session of this tab, or starts one.
export async function open() {
  const { models, default: defaultModel, limits } = await call("GET", "models");
  Object.assign(store, { models, defaultModel, limits });
  const id = sessionStorage.getItem(KEY);
  if (id) {
    try {
      accept(await call("GET", `sessions/${encodeURIComponent(id)}`));
      return;
    } catch (error) {
      if (error.status !== 404) throw error;
    }
  }
  await create(null);
}

export async function startOver() {
  const { id, model } = store.session;
  await create(model);
  await call("DELETE", `sessions/${id}`).catch(() => {});
  announce("Deleted all classes and started over.");
}
