// Where files are dropped or chosen.
const zone = element.querySelector(".alfa-drop");
const input = element.querySelector("input");

function take(list) {
  const files = Array.from(list);
  if (files.length) hand_over(files, zone.dataset.what, zone.dataset.kind, zone);
}

input.addEventListener("change", () => {
  take(input.files);
  // The same file can be chosen once more.
  input.value = "";
});

for (const name of ["dragenter", "dragover"]) {
  zone.addEventListener(name, (event) => {
    event.preventDefault();
    zone.classList.add("is-over");
  });
}
zone.addEventListener("dragleave", () => zone.classList.remove("is-over"));
zone.addEventListener("drop", (event) => {
  event.preventDefault();
  zone.classList.remove("is-over");
  take(event.dataTransfer.files);
});
