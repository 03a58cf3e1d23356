// The camera, which is on only while its preview is visible.
import { showProblem } from "./dom.js";

export function makeCamera(box, onFile) {
  const video = box.querySelector("video");
  const problem = box.querySelector(".problem");
  let stream = null;
  let isStarting = false;
  let numPhotos = 0;

  function stop() {
    stream?.getTracks().forEach((track) => track.stop());
    stream = null;
    video.srcObject = null;
    box.classList.remove("is-on");
  }

  async function start() {
    // After a second click, the first camera stream could never be stopped.
    if (isStarting || stream) return;
    isStarting = true;
    showProblem(problem);
    try {
      const wanted = { video: { facingMode: "environment", width: 1280, height: 960 } };
      stream = await navigator.mediaDevices.getUserMedia(wanted);
      // The user may have left the tab while the browser asked for permission.
      if (!box.offsetParent) return;
      video.srcObject = stream;
      await video.play();
      box.classList.add("is-on");
    } catch (error) {
      stop();
      showProblem(problem, reason(error));
    } finally {
      isStarting = false;
      if (!box.offsetParent) stop();
    }
  }

  // Takes a photo of the central square, as in the preview.
  function shoot() {
    const side = Math.min(video.videoWidth, video.videoHeight);
    if (!side) return;
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = side;
    const left = (video.videoWidth - side) / 2;
    const above = (video.videoHeight - side) / 2;
    canvas.getContext("2d").drawImage(video, left, above, side, side, 0, 0, side, side);
    numPhotos += 1;
    const name = `camera-${numPhotos}.jpg`;
    canvas.toBlob(
      (blob) => onFile(new File([blob], name, { type: "image/jpeg" })),
      "image/jpeg",
      0.95,
    );
  }

  const actions = { start, stop, shoot };
  box.addEventListener("click", (event) => {
    const button = event.target.closest("[data-do]");
    if (button) actions[button.dataset.do]();
  });
  window.addEventListener("pagehide", stop);
  return { stop };
}

function reason(error) {
  if (!window.isSecureContext) {
    return "The browser allows the camera only on this computer or over HTTPS; upload photos instead.";
  }
  if (error.name === "NotAllowedError") {
    return "The browser has no permission to use the camera. Allow it in the address bar and try again.";
  }
  if (error.name === "NotFoundError") return "No camera was found.";
  return "The camera is unavailable. Another program may be using it.";
}
