// Small helpers for elements. No text is ever parsed as HTML.

const MOMENT = 800;

export const byId = (id) => document.getElementById(id);

// Creates an element: properties that start with "on" are listeners, "data" and "css" are objects.
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "css") setCss(element, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Sets CSS properties one by one, which the security policy allows, in contrast to attributes.
export function setCss(element, properties) {
  for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, value);
}

export const fromTemplate = (id) => byId(id).content.cloneNode(true);

// Updates the children of an element to match items; children of unchanged items keep their focus.
export function reconcile(parent, items, key, create, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    let child = old.get(key(item));
    if (child) {
      old.delete(key(item));
    } else {
      child = create(item);
      child.dataset.key = key(item);
    }
    update?.(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const child of old.values()) child.remove();
}

// Shows a problem next to the control that caused it, or hides the last one.
export function showProblem(place, text = "") {
  if (place.textContent !== text) place.textContent = text;
  place.hidden = !text;
}

// Runs an action and shows its problem at a place; returns its result, or undefined if it failed.
export async function attempt(place, action) {
  showProblem(place);
  try {
    return await action();
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    showProblem(place, sentence(error.message));
    return undefined;
  }
}

// Disables a button while an action runs, and keeps its focus.
export async function whileBusy(button, action) {
  const isFocused = document.activeElement === button;
  button.disabled = true;
  button.setAttribute("aria-busy", "true");
  try {
    return await action();
  } finally {
    button.disabled = false;
    button.removeAttribute("aria-busy");
    if (isFocused && document.activeElement === document.body) button.focus();
  }
}

// Announces a change to screen readers, together with changes of the last moment.
let recent = "";
let forget = 0;
export function announce(text) {
  recent = recent ? `${recent} ${text}` : text;
  const region = byId("status");
  // A repeated text is announced only if it changes.
  region.textContent = region.textContent === recent ? `${recent}\u00a0` : recent;
  clearTimeout(forget);
  forget = setTimeout(() => (recent = ""), MOMENT);
}

// Capitalizes a message, and turns a leading argument of the API into a word.
export function sentence(text) {
  const words = text.replace(/^`(\w+)` /, (_, name) => `the ${name.replaceAll("_", " ")} `);
  return /^[a-z-]+ /.test(words) ? words[0].toUpperCase() + words.slice(1) : words;
}

// A word with an explanation, which the page contains as a popover.
export const term = (name, text) =>
  make("button", { type: "button", class: "term", popovertarget: `term-${name}` }, text);

// Formats a share of 0 to 1; the space before the sign does not break.
export const inPercent = (share, digits = 0) => `${(100 * share).toFixed(digits)}\u00a0%`;

export function probability(share) {
  if (share > 0.0005 && share < 0.9995) return inPercent(share, 1);
  return share > 0.5 ? `> ${inPercent(0.999, 1)}` : `< ${inPercent(0.001, 1)}`;
}

// Formats a similarity with the digits that distinguish it from another one.
export const similarity = (value, other) => value.toFixed(Math.abs(value - other) < 0.01 ? 4 : 2);

export const plural = (count, noun, nouns = `${noun}s`) => `${count} ${count === 1 ? noun : nouns}`;
