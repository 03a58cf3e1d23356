// A part that shows what follows from what somebody did.
watch("value", is_latest);

element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (button && !button.disabled) trigger("act", { do: button.dataset.do });
});
