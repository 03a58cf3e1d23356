// The drawing pad. It sends the pen's path, which the server renders like the training images.
const STROKES = "application/vnd.alfa.strokes+json";
const PEN_WIDTH = 0.05;

export function makePad(pad, { isLive, onDrawing }) {
  const canvas = pad.querySelector("canvas");
  const pen = canvas.getContext("2d");
  const side = canvas.width;
  let strokes = [];
  let stroke = null;
  let numDrawings = 0;
  if (isLive) pad.querySelector("[data-do=add]").remove();

  function line(from, to) {
    pen.beginPath();
    pen.moveTo(from[0] * side, from[1] * side);
    pen.lineTo(to[0] * side, to[1] * side);
    pen.stroke();
  }

  function redraw() {
    pen.fillStyle = "white";
    pen.fillRect(0, 0, side, side);
    pen.lineWidth = side * PEN_WIDTH;
    pen.lineCap = pen.lineJoin = "round";
    pen.strokeStyle = "#20242c";
    for (const points of strokes) {
      points.forEach((point, place) => line(points[Math.max(0, place - 1)], point));
    }
    pad.classList.toggle("is-empty", strokes.length === 0);
    for (const button of pad.querySelectorAll("button")) button.disabled = strokes.length === 0;
  }

  function place(event) {
    const box = canvas.getBoundingClientRect();
    const at = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    return at.map((value) => Math.round(1000 * Math.min(1, Math.max(0, value))) / 1000);
  }

  function emit() {
    // The server renders a PNG.
    const name = `drawing-${numDrawings + 1}.png`;
    onDrawing(new File([JSON.stringify(strokes)], name, { type: STROKES }), canvas);
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    event.preventDefault();
    canvas.setPointerCapture(event.pointerId);
    stroke = [place(event)];
    strokes.push(stroke);
    redraw();
  });

  canvas.addEventListener("pointermove", (event) => {
    if (!stroke) return;
    // A browser may combine several moves in one event.
    const moves = event.getCoalescedEvents?.() ?? [];
    for (const move of moves.length ? moves : [event]) {
      const next = place(move);
      const last = stroke.at(-1);
      if (next[0] === last[0] && next[1] === last[1]) continue;
      line(last, next);
      stroke.push(next);
    }
  });

  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, () => {
      if (!stroke) return;
      stroke = null;
      if (isLive) emit();
    });
  }

  const actions = {
    clear() {
      strokes = [];
      redraw();
    },
    back() {
      strokes.pop();
      redraw();
      if (isLive && strokes.length) emit();
    },
    add() {
      emit();
      numDrawings += 1;
      actions.clear();
    },
  };
  pad.addEventListener("click", (event) => {
    const button = event.target.closest("[data-do]");
    if (button) actions[button.dataset.do]();
  });
  redraw();
}
