"""The page: its components, and the events that connect them with the actions.

Import this module only if gradio is installed and configured by `_server`.
"""

import itertools
import traceback
from typing import Any

import gradio as gr

from alfa.serve import _limits as limits
from alfa.serve._actions import ActionResult, Actions, next_turn
from alfa.serve._html import at_turn, render, script, static
from alfa.serve._model import Model
from alfa.serve._session import Session

# The parts of the session in the order of their components; predictions come last.
_PARTS = ("classes", "target", "learn_button", "learned", "rates")
# System fonts need no download.
_FONTS = ("ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")
# Events run concurrently, because sessions have locks, and show no progress bar.
_EVENT: dict[str, Any] = {
    "show_progress": "hidden",
    "trigger_mode": "multiple",
    "concurrency_id": "page",
    "concurrency_limit": 40,
    "api_visibility": "undocumented",
}


def theme() -> Any:
    return gr.themes.Base(
        primary_hue="indigo", neutral_hue="slate", font=_FONTS, font_mono=_MONO
    ).set(
        body_background_fill="*neutral_50",
        body_background_fill_dark="*neutral_950",
        # Gradio's default has too little contrast.
        body_text_color_subdued="*neutral_500",
        body_text_color_subdued_dark="*neutral_400",
    )


class Page:
    """The page of a model as gradio blocks."""

    def __init__(self, model: Model, actions: Actions, *, can_export: bool = False) -> None:
        self._model, self._actions, self._can_export = model, actions, can_export
        self._empty = Session(model)
        self._shown: list[Any] = []
        self._downloads = itertools.count(1)
        with gr.Blocks(title="alfa: teach a model", analytics_enabled=False) as self.blocks:
            # Limits the memory of gradio's own sessions.
            self.blocks.state_session_capacity = 2 * limits.MAX_SESSIONS
            announce = static("announce.js")
            gr.HTML(render("header", model), elem_classes="alfa-top", js_on_load=announce)
            with gr.Row(elem_classes="alfa-columns"):
                with gr.Column(min_width=320, elem_classes="alfa-panel"):
                    self._add_teaching()
                with gr.Column(min_width=320):
                    for add in (self._add_learning, self._add_trying, self._add_keeping):
                        with gr.Column(elem_classes="alfa-panel"):
                            add()
            self._connect()

    def _add_teaching(self) -> None:
        text = (
            f"Create {limits.MIN_CLASSES} to {self._model.max_classes} classes and add a few "
            f"pictures to each. Five are a good start; the limit is {limits.MAX_PER_CLASS} per "
            f"class and {limits.MAX_IMAGES} in total."
        )
        _text(render("step", 1, "Add examples", text))
        self._classes = self._state("classes", elem_id="classes", name="classes")
        self._state("target", elem_id="target")
        self._teach_inputs = self._add_inputs("teach", is_live=False)
        self._teach_notice = _text("", elem_id="teach-notice")

    def _add_learning(self) -> None:
        text = "The model adapts to your examples in a few steps. This takes a moment."
        _text(render("step", 2, "Learn", text))
        self._learn_button = self._state("learn_button", elem_id="learn")
        self._state("learned", elem_id="learned")
        title = "How it learned: the rates of each step"
        with gr.Accordion(title, open=False, elem_id="rates-box"):
            self._state("rates", elem_id="rates")

    def _add_trying(self) -> None:
        text = "Show the model a new picture and see its prediction."
        _text(render("step", 3, "Try it", text))
        with gr.Row(elem_classes="alfa-try"):
            with gr.Column(scale=5, min_width=240):
                self._try_inputs = self._add_inputs("try", is_live=True)
            with gr.Column(scale=5, min_width=200):
                self._try_notice = _text("", elem_id="try-notice")
                self._answer = self._state("nothing_tried", elem_id="answer")

    def _add_keeping(self) -> None:
        text = (
            "Save your examples as a zip file of pictures and load them later. Loading replaces "
            "your current classes."
        )
        _text(render("step", 4, "Save it", text))
        self._keep_buttons = _widget("keep", self._can_export, elem_id="keep")
        self._keep_notice = _text("", elem_id="keep-notice")
        download = script("download")
        self._download = gr.HTML({}, html_template="", js_on_load=download, elem_id="download")

    def _add_inputs(self, name: str, *, is_live: bool) -> list[Any]:
        """Add a tab for each input: pad, upload, and camera."""
        titles = {"pad": "Draw", "drop": "Upload", "camera": "Camera"}
        if not self._model.can_draw:
            del titles["pad"]
        inputs = []
        with gr.Tabs(elem_classes="alfa-tabs"):
            for part, title in titles.items():
                with gr.Tab(title):
                    inputs.append(_widget(part, is_live, elem_id=f"{name}-{part}"))
        return inputs

    def _state(self, part: str, *, elem_id: str, name: str = "follow") -> Any:
        """Add a component that shows a part of the session; `_show_session` updates it."""
        markup = at_turn(0, render(part, self._empty))
        self._shown.append(gr.HTML(markup, js_on_load=script(name), elem_id=elem_id))
        return self._shown[-1]

    def _connect(self) -> None:
        """Connect every event with its action and the components that show the result."""
        taught = [self._teach_notice, *self._shown]
        tried = [self._try_notice, self._answer]
        kept = [self._keep_notice, self._download, *self._shown]
        for number, part in enumerate([self._classes, *self._teach_inputs]):
            name = "teach" if not number else f"teach_{number}"
            part.act(self._on_teach, None, taught, api_name=name, **_EVENT)
        for number, part in enumerate(self._try_inputs, start=1):
            part.act(self._on_try, None, tried, api_name=f"try_{number}", **_EVENT)
        learned = [*taught, self._try_notice]
        self._learn_button.act(self._on_learn, None, learned, api_name="learn", **_EVENT)
        self._keep_buttons.act(self._on_keep, None, kept, api_name="keep", **_EVENT)
        self.blocks.unload(self._on_leave)

    def _on_teach(self, request: gr.Request, event: gr.EventData) -> list[Any]:
        result = self._actions.teach(request.session_hash, event._data)
        return [_notice(result), *self._show_session(request)]

    def _on_learn(self, request: gr.Request) -> list[Any]:
        result = self._actions.learn(request.session_hash)
        if result.problems:
            return [_notice(result), *self._show_session(request), gr.skip()]
        # The notice about earlier predictions is obsolete.
        return [_notice(result), *self._show_session(request, learned_at=result.turn), ""]

    def _on_try(self, request: gr.Request, event: gr.EventData) -> list[Any]:
        result = self._actions.try_out(request.session_hash, event._data)
        if not result.predictions:
            return [_notice(result), gr.skip()]
        answer = render("predictions", result.predictions)
        return [_notice(result), at_turn(result.turn, answer)]

    def _on_keep(self, request: gr.Request, event: gr.EventData) -> list[Any]:
        try:
            result = self._actions.keep(request.session_hash, event._data)
        # The browser disables its buttons until it receives an answer.
        except Exception as error:
            traceback.print_exc()
            reason = f"{type(error).__name__}: {error}".split("\n")[0]
            text = f"an unexpected error occurred ({reason}); see the server's terminal."
            result = ActionResult(problems=[text])
        token, name = result.file or ("", "")
        # The browser ignores an answer that equals the previous one, so each has a number.
        download = {"token": token, "name": name, "number": next(self._downloads)}
        return [_notice(result), download, *self._show_session(request)]

    def _on_leave(self, request: gr.Request) -> None:
        self._actions.leave(request.session_hash)
        holder, session_id = self.blocks.state_holder, request.session_hash or ""
        holder.session_data.pop(session_id, None)
        holder.time_last_used.pop(session_id, None)

    def _show_session(self, request: gr.Request, *, learned_at: int | None = None) -> list[Any]:
        """Render all components that show the session.

        Predictions that are newer than the turn `learned_at` remain visible.
        """
        session = self._actions.sessions.get(request.session_hash)
        if session is None:
            # All sessions are in use, or the user has closed the tab.
            return [gr.skip() for _ in self._shown]
        with session.lock:
            turn = next_turn()
            shown: list[Any] = [at_turn(turn, render(part, session)) for part in _PARTS]
            since = turn if session.adapted is None else learned_at
            untried = render("nothing_tried", session)
            return [*shown, gr.skip() if since is None else at_turn(since, untried)]


def _text(markup: str, *, elem_id: str | None = None) -> Any:
    return gr.HTML(markup, js_on_load=None, elem_id=elem_id)


def _widget(part: str, argument: Any, *, elem_id: str) -> Any:
    """Add a component with a script that triggers actions."""
    return gr.HTML(render(part, argument), js_on_load=script(part), elem_id=elem_id)


def _notice(result: ActionResult) -> str:
    return render("notice", result).strip()
