// Buttons to save, load, and export.
const input = element.querySelector("input");

element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (!button) return;
  if (button.dataset.do === "load") {
    input.click();
    return;
  }
  // An export takes seconds, so the page shows that it is in progress.
  element.classList.add("is-busy");
  trigger("act", { do: button.dataset.do });
});

document.addEventListener("alfa-kept", () => element.classList.remove("is-busy"));

input.addEventListener("change", () => {
  const files = Array.from(input.files);
  if (files.length) upload_and_act(files, "load", "examples", input);
  input.value = "";
});
