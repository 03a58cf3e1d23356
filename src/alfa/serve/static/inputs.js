// Tabs to draw, upload, or photograph examples.
import { makeCamera } from "./camera.js";
import { fromTemplate } from "./dom.js";
import { makePad } from "./pad.js";
import { droppedFiles } from "./uploads.js";

// Adds the tabs to a place. `onFiles` receives objects with a file and its folder, `onDrawing` a
// file with strokes and the canvas.
export function makeInputs(place, { label, isLive, onFiles, onDrawing }) {
  place.append(fromTemplate("inputs-template"));
  const tabs = [...place.querySelectorAll("[role=tab]")];
  const panels = [...place.querySelectorAll("[role=tabpanel]")];
  place.querySelector("[role=tablist]").setAttribute("aria-label", label);
  tabs.forEach((tab, number) => {
    tab.id = `${place.id}-${tab.dataset.tab}`;
    tab.setAttribute("aria-controls", `${tab.id}-panel`);
    panels[number].id = `${tab.id}-panel`;
    panels[number].setAttribute("aria-labelledby", tab.id);
    tab.addEventListener("click", () => select(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const visible = tabs.filter((each) => !each.hidden);
      const next = visible.at((visible.indexOf(tab) + step) % visible.length);
      select(next);
      next.focus();
    });
  });

  const camera = makeCamera(place.querySelector(".camera"), (file) =>
    onFiles([{ file, folder: null }]),
  );
  function select(selected) {
    tabs.forEach((tab, number) => {
      const isSelected = tab === selected;
      tab.setAttribute("aria-selected", isSelected);
      tab.tabIndex = isSelected ? 0 : -1;
      panels[number].hidden = !isSelected;
    });
    if (selected.dataset.tab !== "camera") camera.stop();
  }

  makePad(place.querySelector(".pad"), { isLive, onDrawing });
  makeDrop(place.querySelector(".drop"), onFiles);
  let canDraw = null;
  return {
    // Shows the pad if the model recognizes drawings.
    setCanDraw(value) {
      if (value === canDraw) return;
      canDraw = value;
      tabs[0].hidden = !canDraw;
      select(tabs[canDraw ? 0 : 1]);
    },
  };
}

// Connects an area to drop or choose files.
export function makeDrop(zone, onFiles) {
  const input = zone.querySelector("input");
  input.addEventListener("change", () => {
    const files = [...input.files].map((file) => ({ file, folder: null }));
    // Allow the user to choose the same file again.
    input.value = "";
    if (files.length) onFiles(files);
  });
  acceptDrops(zone, onFiles);
}

// Makes an element a target for dropped files.
export function acceptDrops(zone, onFiles) {
  zone.addEventListener("dragover", (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    zone.classList.add("is-over");
  });
  zone.addEventListener("dragleave", (event) => {
    if (!zone.contains(event.relatedTarget)) zone.classList.remove("is-over");
  });
  zone.addEventListener("drop", async (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    zone.classList.remove("is-over");
    const files = await droppedFiles(event.dataTransfer);
    if (files.length) onFiles(files);
  });
}

// Prevents the browser from opening files that are dropped on other places, which would leave the page.
export function ignoreOtherDrops() {
  for (const name of ["dragover", "drop"]) {
    window.addEventListener(name, (event) => {
      if (event.dataTransfer.types.includes("Files")) event.preventDefault();
    });
  }
}
