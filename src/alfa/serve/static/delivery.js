// Hands over a file that the server has ready, and says that what was asked for is done.
watch("value", () => {
  document.dispatchEvent(new Event("alfa-kept"));
  if (!props.value.token) return;
  const link = document.createElement("a");
  link.href = `alfa/files/${props.value.token}`;
  link.download = props.value.name;
  document.body.append(link);
  link.click();
  link.remove();
});
