// The camera, which is on only while its preview is visible.
const box = element.querySelector(".alfa-camera");
const video = element.querySelector("video");
let stream = null;
let is_starting = false;

function stop() {
  if (stream) stream.getTracks().forEach((track) => track.stop());
  stream = null;
  video.srcObject = null;
  box.classList.remove("is-on");
}

function reason(error) {
  if (error.name === "NotAllowedError") {
    return "The browser has no permission to use the camera. Allow it in the address bar and try again.";
  }
  if (error.name === "NotFoundError") return "No camera was found.";
  return "The camera is unavailable. Another program may be using it.";
}

async function start() {
  // After a second click, the first camera stream could never be stopped.
  if (is_starting || stream) return;
  is_starting = true;
  show_problem("");
  try {
    const wanted = { video: { facingMode: "environment", width: 640, height: 480 } };
    stream = await navigator.mediaDevices.getUserMedia(wanted);
    // The user may have left the tab while the browser asked for permission.
    if (!box.offsetParent) return stop();
    video.srcObject = stream;
    await video.play();
    box.classList.add("is-on");
  } catch (error) {
    stop();
    show_problem(reason(error));
  } finally {
    is_starting = false;
  }
}

// Takes a picture of the central square, as in the preview.
function shoot() {
  const side = Math.min(video.videoWidth, video.videoHeight);
  if (!side) return;
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = side;
  const left = (video.videoWidth - side) / 2;
  const above = (video.videoHeight - side) / 2;
  canvas.getContext("2d").drawImage(video, left, above, side, side, 0, 0, side, side);
  canvas.toBlob(
    (blob) => upload_and_act([new File([blob], "camera.jpg")], box.dataset.what, "picture", box),
    "image/jpeg",
    0.95,
  );
}

box.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (button) ({ start, stop, shoot })[button.dataset.do]();
});

new IntersectionObserver((seen) => {
  if (stream && !seen[seen.length - 1].isIntersecting && !box.offsetParent) stop();
}).observe(box);
window.addEventListener("pagehide", stop);
