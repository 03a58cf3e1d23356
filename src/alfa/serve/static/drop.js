// An area to drop or choose files.
const zone = element.querySelector(".alfa-drop");
const input = element.querySelector("input");

function take(list) {
  const files = Array.from(list);
  if (files.length) upload_and_act(files, zone.dataset.what, zone.dataset.kind, zone);
}

input.addEventListener("change", () => {
  take(input.files);
  // Allow the user to choose the same file again.
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
