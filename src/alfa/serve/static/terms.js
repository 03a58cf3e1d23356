// Explanations of technical terms: popovers next to the word that the user clicked.
const GAP = 6;
const MARGIN = 8;
let opener = null;

export function startTerms() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[popovertarget]");
    if (button) opener = button;
  }, true);
  for (const definition of document.querySelectorAll(".definition")) {
    definition.addEventListener("toggle", (event) => {
      if (event.newState === "open" && opener) place(definition, opener.getBoundingClientRect());
    });
  }
  // A popover does not follow its word.
  window.addEventListener("scroll", () => document.querySelector(".definition:popover-open")?.hidePopover());
}

function place(definition, word) {
  const { width, height } = definition.getBoundingClientRect();
  const left = Math.min(word.left, document.documentElement.clientWidth - width - MARGIN);
  const below = word.bottom + GAP;
  const fits = below + height <= window.innerHeight - MARGIN;
  definition.style.left = `${Math.max(MARGIN, left)}px`;
  definition.style.top = `${fits ? below : Math.max(MARGIN, word.top - GAP - height)}px`;
}
