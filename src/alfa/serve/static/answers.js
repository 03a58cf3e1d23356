// Predictions for new photos and drawings.
import {
  announce,
  attempt,
  byId,
  make,
  plural,
  probability as formatProbability,
  setCss,
  showProblem,
  similarity,
  term,
} from "./dom.js";
import { addTo } from "./classes.js";
import { makeInputs } from "./inputs.js";
import { call, NOT_LEARNED } from "./api.js";
import { change, hueOf, modelOf, noun, pathOf, store, subscribe } from "./store.js";
import { uploadAll } from "./uploads.js";

const MAX_TRIED = 50;
// Bars of the most probable classes, for one photo and for several ones.
const MAX_BARS = 5;
const MAX_BARS_EACH = 3;
// Files of the shown predictions, and addresses of their previews.
let tried = [];
let aborter = new AbortController();

export function startAnswers() {
  const inputs = makeInputs(byId("try-inputs"), {
    label: "Try the model",
    isLive: true,
    onFiles: (files) => tryFiles(files.map(({ file }) => file)),
    onDrawing: tryDrawing,
  });
  let sessionId = null;
  subscribe((session) => {
    inputs.setCanDraw(modelOf().input === "drawing");
    if (session.id === sessionId && session.learned) return;
    sessionId = session.id;
    clear();
  });
}

function clear() {
  for (const { url } of tried) URL.revokeObjectURL(url);
  tried = [];
  const text = store.session.learned
    ? `Show the model a new ${noun()} to see its prediction.`
    : "Add examples and press Learn first.";
  byId("answers").replaceChildren(make("p", { class: "note" }, text));
}

// Predicts the shown photos again after the model has learned.
export async function tryAgain() {
  showProblem(byId("try-problem"));
  if (tried.length) await predictAll(tried.map(({ file }) => file));
  else clear();
}

function tryFiles(files) {
  if (files.length <= MAX_TRIED) return predictAll(files);
  const text = `Choose at most ${MAX_TRIED} ${noun()}s at once, got ${files.length}; “Label next” takes more.`;
  return showProblem(byId("try-problem"), text);
}

function hasLearned() {
  if (store.session.learned) return true;
  showProblem(byId("try-problem"), NOT_LEARNED);
  return false;
}

async function predictAll(files) {
  if (!hasLearned()) return;
  const places = files.map((file) => ({
    file,
    url: previewOf(file),
    card: make("div", { class: "answer" }),
  }));
  const previous = tried;
  tried = places;
  const predictions = [];
  await uploadAll(files, {
    send: (file) => change("POST", "predict", { files: [file] }),
    bar: byId("try-upload"),
    problem: byId("try-problem"),
    title: `Predicting ${noun()}s`,
    onAnswer: ({ predictions: [prediction] }, file, place) => {
      if (!prediction || tried !== places) return;
      // The old predictions remain visible until the first new one arrives.
      if (!predictions.length) byId("answers").replaceChildren(...places.map(({ card }) => card));
      predictions.push(prediction);
      places[place].card.append(...describe(prediction, places[place]));
    },
  });
  if (tried !== places) return;
  for (const { url } of previous) {
    if (!places.some((each) => each.url === url)) URL.revokeObjectURL(url);
  }
  // The server has refused the files of empty cards.
  for (const { card } of places) {
    if (!card.children.length) card.remove();
  }
  if (predictions.length === 1) announce(`Prediction: ${verdict(predictions[0])}.`);
  else if (predictions.length) announce(`Predicted ${plural(predictions.length, noun())}.`);
}

const previewOf = (file) =>
  tried.find((each) => each.file === file)?.url ?? URL.createObjectURL(file);

// Predicts a drawing after every stroke. A newer drawing cancels the request of an older one.
async function tryDrawing(file, canvas) {
  if (!hasLearned()) return;
  aborter.abort();
  aborter = new AbortController();
  const { signal } = aborter;
  const send = () => call("POST", pathOf("predict"), { files: [file], signal });
  const preview = await new Promise((done) => canvas.toBlob(done));
  const answer = await attempt(byId("try-problem"), send);
  if (!answer || signal.aborted) return;
  const [prediction] = answer.predictions;
  if (!prediction) {
    showProblem(byId("try-problem"), answer.refused[0]?.detail);
    return;
  }
  for (const { url } of tried) URL.revokeObjectURL(url);
  tried = [{ file, url: URL.createObjectURL(preview), card: make("div", { class: "answer" }) }];
  tried[0].card.append(...describe(prediction, tried[0]));
  byId("answers").replaceChildren(tried[0].card);
  announce(`Prediction: ${verdict(prediction)}.`);
}

const verdict = ({ is_none: isNone, label }) => (isNone ? "none of these" : label);

function describe(prediction, { file, url }) {
  const image = make("img", { src: url, alt: prediction.name });
  // The browser cannot show every format that the server reads.
  image.addEventListener("error", () =>
    image.replaceWith(make("span", { class: "no-preview" }, "No preview")),
  );
  const { probabilities, is_none: isNone } = prediction;
  const title = isNone ? term("none", "None of these") : make("b", {}, prediction.label);
  const numBars = tried.length > 1 ? MAX_BARS_EACH : MAX_BARS;
  const best = probabilities.slice(0, numBars);
  const rest = probabilities.slice(numBars);
  const parts = make(
    "div",
    { class: `odds${isNone ? " is-none" : ""}` },
    make(
      "div",
      { class: "verdict" },
      title,
      make("span", { class: "file", title: prediction.name }, prediction.name),
    ),
    ...best.map(bar),
  );
  if (rest.length) {
    const others = plural(rest.length, "other class", "other classes");
    parts.append(make("details", { class: "more" }, make("summary", {}, others), ...rest.map(bar)));
  }
  const meter = familiarity(prediction);
  if (meter) parts.append(meter);
  if (store.session.classes.length) parts.append(adder(file, prediction));
  return [make("figure", {}, image), parts];
}

function bar({ class_id: id, name, probability }) {
  const fill = make("span");
  setCss(fill, { width: `${100 * probability}%` });
  const row = make(
    "div",
    { class: "odd" },
    make("span", { class: "bar-name", title: name }, name),
    make("span", { class: "bar-value" }, formatProbability(probability)),
    make("span", { class: "track" }, fill),
  );
  setCss(row, { "--hue": hueOf(id) });
  return row;
}

// A bar from 0 to 1 with a mark at the threshold of "none of these".
function familiarity({ familiarity: value, threshold, is_none: isNone }) {
  if (threshold === null || value === null) return null;
  const share = (number) => `${100 * Math.min(1, Math.max(0, number))}%`;
  const side = isNone ? "below" : "above";
  const text = `${similarity(value, threshold)}, ${side} the threshold of ${similarity(threshold, value)}`;
  const meter = make(
    "div",
    { class: "meter", role: "img", "aria-label": `Familiarity ${text}` },
    make("span", { class: "fill", css: { width: share(value) } }),
    make("span", { class: "mark", css: { left: share(threshold) } }),
  );
  return make(
    "div",
    { class: "familiarity" },
    make("p", {}, term("none", "Familiarity"), ` ${text}`),
    meter,
  );
}

// A list to add the photo to a class, for example after a wrong prediction.
function adder(file, { name, label }) {
  const options = store.session.classes.map((each) =>
    make("option", { value: each.id }, each.name),
  );
  const select = make(
    "select",
    { "aria-label": `Add ${name} to a class` },
    make("option", { value: "" }, label === null ? "Add to a class…" : "Wrong? Add to a class…"),
    ...options,
  );
  select.addEventListener("change", async () => {
    const id = select.value;
    if (!id) return;
    select.disabled = true;
    await addTo(id, [file]);
  });
  return select;
}
