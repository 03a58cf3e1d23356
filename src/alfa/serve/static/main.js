// Starts the page: connects its parts with the session of this tab.
import { startAnswers, tryAgain } from "./answers.js";
import { startClasses } from "./classes.js";
import { announce, attempt, byId, make, plural, sentence, showProblem, whileBusy } from "./dom.js";
import { ignoreOtherDrops } from "./inputs.js";
import { rank, startLabels } from "./labels.js";
import { startLearn } from "./learn.js";
import { startSaves } from "./saves.js";
import { change, modelOf, noun, open, startOver, store, subscribe } from "./store.js";
import { startTerms } from "./terms.js";
import { startViewer } from "./viewer.js";

const problem = byId("session-problem");

function startToolbar() {
  const picker = byId("model");
  picker.addEventListener("change", async () => {
    byId("model-about").textContent = "Embedding your examples with this model…";
    const json = { model: picker.value };
    const session = await whileBusy(picker, () =>
      attempt(problem, () => change("PATCH", "", { json })),
    );
    if (session) announce(`Selected the model ${modelOf().title}.`);
    showModel(store.session);
  });

  const undo = byId("undo");
  const takeBack = async () => {
    const label = store.session.undo_label;
    if (!store.session.can_undo) return;
    if (await attempt(problem, () => change("POST", "undo"))) announce(`Undone: ${label}.`);
  };
  undo.addEventListener("click", takeBack);
  window.addEventListener("keydown", (event) => {
    const isUndo = event.key === "z" && (event.ctrlKey || event.metaKey) && !event.shiftKey;
    if (!isUndo || event.target.closest("input, dialog[open]")) return;
    event.preventDefault();
    takeBack();
  });

  const restart = byId("restart");
  let timer = 0;
  const reset = () => {
    restart.textContent = "Start over";
    delete restart.dataset.sure;
  };
  restart.addEventListener("click", async () => {
    const { classes, unlabeled } = store.session;
    // The first click only asks for confirmation, because undo does not restore the session.
    if ((classes.length || unlabeled.length) && !restart.dataset.sure) {
      restart.dataset.sure = "yes";
      restart.textContent = "Delete everything?";
      timer = setTimeout(reset, 4000);
      return;
    }
    clearTimeout(timer);
    reset();
    await attempt(problem, startOver);
  });
}

function showModel(session) {
  const picker = byId("model");
  const key = JSON.stringify(store.models);
  if (picker.dataset.key !== key) {
    picker.dataset.key = key;
    picker.replaceChildren(
      ...store.models.map((model) =>
        make("option", { value: model.name, disabled: !model.available }, optionText(model)),
      ),
    );
  }
  picker.value = session.model;
  byId("model-about").textContent = endWithDot(modelOf(session).description);
  for (const part of document.querySelectorAll("[data-noun]")) part.textContent = `${noun()}s`;
}

const endWithDot = (text) => sentence(text).replace(/([^.])$/, "$1.");

const optionText = ({ title, available, reason }) =>
  available ? sentence(title) : `${sentence(title)} (${reason ?? "unavailable"})`;

function showToolbar(session) {
  const { can_undo: canUndo, undo_label: label } = session;
  byId("model").disabled = false;
  const undo = byId("undo");
  undo.disabled = !canUndo;
  undo.title = canUndo && label ? `Undo: ${label}` : "";
  undo.lastElementChild.textContent = canUndo && label ? `: ${label}` : "";
}

// Hides problems that a change may have solved, and all of them in a new session.
function hideProblems(session, old) {
  const parts =
    session.id === old?.id ? "#learn-problem, #rank-problem, #save-problem" : ".problem";
  if (session.id === old?.id && session.version === old.version) return;
  for (const part of document.querySelectorAll(parts)) showProblem(part);
  if (session.id !== old?.id) byId("save-note").textContent = "";
}

function showPrivacy() {
  const isLocal = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
  const where = isLocal ? "this computer" : `the server ${location.host}`;
  const hours = Math.round(store.limits.session_seconds / 3600);
  byId("privacy").textContent =
    `Your data stays in the memory of ${where}. It is deleted when you start over, when the server ` +
    `stops, or after ${plural(hours, "hour")} without use.`;
}

// Balances the columns of a wide page; a narrow one shows the steps in their order.
function balanceColumns() {
  const isWide = matchMedia("(min-width: 861px)");
  const balance = () =>
    isWide.matches ? byId("left").append(byId("label")) : byId("save").before(byId("label"));
  isWide.addEventListener("change", balance);
  balance();
}

function start() {
  balanceColumns();
  ignoreOtherDrops();
  startTerms();
  startViewer();
  startClasses();
  startLearn(() => Promise.all([tryAgain(), rank()]));
  startAnswers();
  startLabels();
  startSaves();
  startToolbar();
  subscribe(hideProblems);
  subscribe(showModel);
  subscribe(showToolbar);
}

start();
await attempt(problem, open);
// Without a session, only a reload helps.
if (store.session) showPrivacy();
else for (const part of document.querySelectorAll("main, .toolbar")) part.inert = true;
document.body.classList.add("is-ready");
