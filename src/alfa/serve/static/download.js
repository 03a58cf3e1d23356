// Downloads a file from the server, and reports that a save, load, or export has finished.
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
