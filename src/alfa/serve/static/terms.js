// Explanations of technical terms: popovers next to the word that the user clicked.
const GAP = 6;
const MARGIN = 8;
let opener = null;

export function startTerms() {
  const remember = (event) => {
    opener = event.target.closest("[popovertarget]") ?? opener;
  };
  document.addEventListener("click", remember, true);
  for (const definition of document.querySelectorAll(".definition")) {
    definition.addEventListener("toggle", (event) => {
      if (event.newState === "open") follow();
    });
  }
  for (const name of ["scroll", "resize"]) window.addEventListener(name, follow, true);
}

// Keeps the open popover at its word, and closes it when the word leaves the screen.
function follow() {
  const definition = document.querySelector(".definition:popover-open");
  if (!definition || !opener) return;
  const word = opener.getBoundingClientRect();
  if (word.bottom < 0 || word.top > window.innerHeight) definition.hidePopover();
  else place(definition, word);
}

function place(definition, word) {
  const { width, height } = definition.getBoundingClientRect();
  const left = Math.min(word.left, document.documentElement.clientWidth - width - MARGIN);
  const below = word.bottom + GAP;
  const fits = below + height <= window.innerHeight - MARGIN;
  definition.style.left = `${Math.max(MARGIN, left)}px`;
  definition.style.top = `${fits ? below : Math.max(MARGIN, word.top - GAP - height)}px`;
}
