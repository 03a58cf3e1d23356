"""The parts of the page that take something: a pad, a place for files, a camera."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from alfa.serve._limits import MAX_FILE, MAX_ZIP, megabytes


def script(name: str) -> str:
    """The script of a widget, with what all of them share before it."""
    return f"{static('common.js')}\n{static(f'{name}.js')}"


def static(name: str) -> str:
    """A file that comes with the page."""
    return (files("alfa.serve") / "static" / name).read_text(encoding="utf-8")


def pad(*, is_live: bool) -> str:
    """A pad to draw on.

    Args:
        is_live: every stroke is looked at once it is drawn; otherwise a button hands over the
            whole drawing.
    """
    hint = "Draw here: it answers after every stroke" if is_live else "Draw here"
    add = '<button type="button" class="is-main" data-do="draw">Add this drawing</button>'
    return f"""
<div class="alfa-pad is-empty{" alfa-live" if is_live else ""}">
  <div class="alfa-paper"><canvas width="560" height="560" aria-label="Drawing pad"></canvas>
    <span class="alfa-hint">{hint}</span></div>
  <div class="alfa-side">
    <p>One symbol at a time, drawn as you like: its size and place make no difference. Draw it
    again a few times, as different as you might draw it later.</p>
    <div class="alfa-buttons">{"" if is_live else add}
      <button type="button" data-do="undo">Undo</button>
      <button type="button" data-do="clear">Clear</button></div></div>
</div>"""


def drop(hint: str, *, most: int) -> str:
    """A place where pictures are dropped or chosen.

    Args:
        hint: what they can be.
        most: how many at once.
    """
    return f"""
<label class="alfa-drop" data-what="files" data-kind="picture" data-limit="{MAX_FILE}"
  data-most="{most}">
  <input type="file" multiple accept="image/*" aria-label="Choose pictures">
  <span class="alfa-drop-icon" aria-hidden="true">⇪</span>
  <b>Drop pictures here, or click to choose</b>
  <span>{escape(hint)}</span>
</label>
<p class="alfa-local" role="alert" hidden></p>"""


def camera(*, is_live: bool) -> str:
    """A camera, off until somebody starts it.

    Args:
        is_live: as of a pad.
    """
    return f"""
<div class="alfa-camera{" alfa-live" if is_live else ""}" data-what="files" data-limit="{MAX_FILE}"
  data-most="1">
  <div class="alfa-view"><video muted playsinline aria-label="Camera"></video>
    <span class="alfa-hint">The camera is off</span></div>
  <div class="alfa-side">
    <p>Hold it before the camera so that it fills the square. Take a few pictures, from different
    sides.</p>
    <div class="alfa-buttons">
      <button type="button" class="is-main when-off" data-do="start">Start the camera</button>
      <button type="button" class="is-main when-on" data-do="shoot">Take a picture</button>
      <button type="button" class="when-on" data-do="stop">Stop</button></div></div>
</div>
<p class="alfa-local" role="alert" hidden></p>"""


def keep(*, can_export: bool) -> str:
    """What can be taken along, and brought back.

    Args:
        can_export: whether the adapted model can be handed out.
    """
    export = (
        '<button type="button" data-do="export">Download the model (ONNX)</button>'
        if can_export
        else ""
    )
    return f"""
<div class="alfa-buttons alfa-keep">
  <button type="button" data-do="save">Save the examples</button>
  <button type="button" data-do="load"
    title="A zip of class folders, up to {megabytes(MAX_ZIP)}; replaces the classes that are here"
    >Load examples</button>
  <input type="file" accept=".zip" data-limit="{MAX_ZIP}" data-most="1" hidden
    aria-label="Choose a zip">
  {export}</div>
<p class="alfa-local" role="alert" hidden></p>"""
