// Save, load and download.
const input = element.querySelector("input");

element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (!button) return;
  if (button.dataset.do === "load") {
    input.click();
    return;
  }
  // A model takes seconds to write, in which nothing else would show that it is coming.
  element.classList.add("is-busy");
  trigger("act", { do: button.dataset.do });
});

document.addEventListener("alfa-kept", () => element.classList.remove("is-busy"));

input.addEventListener("change", () => {
  const files = Array.from(input.files);
  if (files.length) hand_over(files, "load", "examples", input);
  input.value = "";
});
