// A part of the page that the server updates after an action.
watch("value", is_latest);

element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (button && !button.disabled) trigger("act", { do: button.dataset.do });
});
