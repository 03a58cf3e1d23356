// Learning, and the estimate of the accuracy.
import {
  announce,
  attempt,
  byId,
  inPercent,
  make,
  plural,
  sentence,
  similarity,
  term,
  whileBusy,
} from "./dom.js";
import { change, classOf, hueOf, imageUrl, noun, store, subscribe } from "./store.js";
import { openViewer } from "./viewer.js";

// The share of the chart that a label needs.
const MIN_SPACE = 0.15;
let shown = "";

export function startLearn(onLearned) {
  const button = byId("learn");
  button.addEventListener("click", async () => {
    button.textContent = "Learning…";
    const problem = byId("learn-problem");
    const session = await whileBusy(button, () => attempt(problem, () => change("POST", "learn")));
    showState(store.session);
    if (!session) return;
    announce(`Learned. ${headline(session.learned)}.`);
    await onLearned();
  });
  subscribe(showState);
}

function showState(session) {
  const { learned, stale, classes, learn_reason: learnReason } = session;
  const button = byId("learn");
  if (!button.disabled) button.textContent = learned && stale ? "Learn again" : "Learn";
  const note = byId("learn-note");
  note.classList.toggle("is-stale", Boolean(learned && stale));
  note.textContent = sentence(learnReason ?? pending(learned, stale));
  note.hidden = !note.textContent;
  // The names of the classes are part of the result.
  const state = JSON.stringify([session.id, learned, classes.map((each) => [each.id, each.name])]);
  if (state === shown) return;
  shown = state;
  byId("learned").replaceChildren(...(learned ? describe(learned) : []));
}

function pending(learned, stale) {
  if (!learned) return "Ready: press Learn.";
  return stale ? "The examples have changed. Press Learn again." : "";
}

// Rounds down below 100 %, because a finite number of photos proves no perfect accuracy.
const careful = (share) => inPercent(Math.min(0.99, share));

// Rounds an interval outward, so that the text contains it.
const bounds = ({ low, high }) =>
  [Math.floor(100 * low) / 100, Math.ceil(100 * high) / 100].map((each) => inPercent(each));

function headline({ accuracy }) {
  return accuracy ? `About ${careful(accuracy.value)} of new ${noun()}s right` : "Accuracy unknown";
}

function describe(learned) {
  const { accuracy, accuracy_reason: reason, seconds } = learned;
  const mood = !accuracy
    ? "plain"
    : accuracy.value >= 0.9
      ? "good"
      : accuracy.value >= 0.6
        ? "fair"
        : "poor";
  const score = make("div", { class: `score is-${mood}` }, make("strong", {}, headline(learned)));
  if (accuracy) {
    const [low, high] = bounds(accuracy);
    score.append(
      make(
        "p",
        {},
        "Estimated ",
        term("accuracy", "accuracy"),
        " with an ",
        term("interval", "interval"),
        ` between ${low} and ${high}, from ${plural(accuracy.num_examples, noun())} that the model predicted`,
        " without having seen them.",
      ),
      intervalChart(accuracy, learned.per_class.length),
    );
  } else {
    // The headline contains the first words.
    score.append(make("p", {}, sentence((reason ?? "").replace(/^unknown, because /, ""))));
  }
  const parts = [
    score,
    accuracy && perClass(learned),
    confusions(learned),
    details(learned, seconds),
  ];
  return parts.filter(Boolean);
}

// A line for the interval, a dot for the estimate, and a mark for guessing.
function intervalChart({ value, low, high }, numClasses) {
  const chance = 1 / numClasses;
  const range = bounds({ low, high }).join(" and ");
  const text = `Accuracy ${careful(value)}, between ${range}; guessing: ${inPercent(chance)}`;
  const parts = [
    ["range", { left: `${100 * low}%`, width: `${100 * (high - low)}%` }],
    ["chance", { left: `${100 * chance}%` }],
    ["value", { left: `${100 * value}%` }],
  ].map(([name, css]) => make("span", { class: name, css }));
  const left = `${100 * Math.max(chance, MIN_SPACE / 2)}%`;
  const label = make("span", { class: "chance-label", css: { left } }, "guessing");
  return make(
    "div",
    { class: "interval", role: "img", "aria-label": text },
    make("div", { class: "interval-track" }, ...parts),
    label,
    chance < MIN_SPACE ? "" : make("span", { class: "end" }, inPercent(0)),
    make("span", { class: "end is-right" }, inPercent(1)),
  );
}

function perClass({ per_class: rows }) {
  const list = make("ul", { class: "class-bars", "aria-label": "Accuracy of each class" });
  const byClass = new Map(rows.map((row) => [row.class_id, row]));
  for (const each of store.session.classes.filter(({ id }) => byClass.has(id))) {
    const { class_id: id, accuracy, num_examples: count } = byClass.get(each.id);
    const right = accuracy === null ? "—" : `${Number((accuracy * count).toFixed(1))} of ${count}`;
    const bar = make(
      "span",
      { class: "track" },
      make("span", { css: { width: `${100 * (accuracy ?? 0)}%` } }),
    );
    const row = make(
      "li",
      { css: { "--hue": hueOf(id) } },
      make("span", { class: "bar-name", title: each.name }, each.name),
      bar,
      make("span", { class: "bar-value" }, right),
    );
    list.append(row);
  }
  const caption = make(
    "p",
    { class: "caption" },
    `Held-out ${noun()}s predicted correctly, on average`,
  );
  return make("div", { class: "per-class" }, caption, list);
}

function confusions({ confused }) {
  const known = confused.filter(({ example_id: id }) => exampleOf(id));
  if (!known.length) return null;
  const list = make("div", { class: "confused" });
  for (const { example_id: id, true: truth, predicted } of known) {
    const text = `${nameOf(truth)}, predicted as ${nameOf(predicted)}`;
    list.append(
      make(
        "button",
        { type: "button", title: text, onclick: () => openViewer(id) },
        make("img", { src: imageUrl(exampleOf(id)), alt: "", loading: "lazy" }),
        make("span", {}, make("b", {}, nameOf(truth)), make("br"), `as ${nameOf(predicted)}`),
      ),
    );
  }
  return make(
    "details",
    { class: "more", open: true },
    make("summary", {}, `${plural(known.length, "held-out prediction")} wrong`),
    list,
  );
}

const exampleOf = (id) =>
  store.session.classes.flatMap((each) => each.examples).find((each) => each.id === id);
// The API refers to a class by its name or id.
const nameOf = (name) => classOf(name)?.name ?? name;

function details(learned, seconds) {
  const {
    calibration_error: error,
    head,
    head_reason: why,
    threshold,
    false_alarm_rate: rate,
  } = learned;
  const list = make("dl", { class: "facts" });
  const add = (name, value) => list.append(make("dt", {}, name), make("dd", {}, value));
  if (threshold !== null) {
    add(
      term("none", "None of these"),
      `Familiarity below ${similarity(threshold, 1)}; rejects about ` +
        `${inPercent(rate)} of ${noun()}s of your classes.`,
    );
  } else {
    add(term("none", "None of these"), `Needs more ${noun()}s.`);
  }
  if (error !== null) add(term("calibration", "Calibration error"), error.toFixed(3));
  if (head) add(term("head", "Head"), why ? `${head}: ${why}` : head);
  add("Time", `${seconds.toFixed(2)} s`);
  return make("details", { class: "more" }, make("summary", {}, "Details"), list);
}
