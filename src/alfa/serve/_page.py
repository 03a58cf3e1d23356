"""The page: its components, and the events that connect them with the actions.

Import this module only if gradio is installed, and after the settings in `_server`.
"""

from __future__ import annotations

import itertools
import traceback
from typing import Any

import gradio as gr

from alfa.serve._actions import ActionResult, Actions, next_turn
from alfa.serve._html import at_turn, render, script, static
from alfa.serve._limits import MAX_IMAGES, MAX_PER_CLASS, MAX_SESSIONS, MIN_CLASSES
from alfa.serve._model import Model
from alfa.serve._session import Session

# System fonts, so that none is fetched.
_FONTS = ("ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")
# Events run concurrently, without a progress bar; sessions have locks.
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


def build(model: Model, actions: Actions) -> Any:
    """Build the page of a model as gradio blocks."""
    return _Page(model, actions).blocks


class _Page:
    def __init__(self, model: Model, actions: Actions) -> None:
        self._model, self._actions = model, actions
        self._downloads = itertools.count(1)
        empty = Session(model)
        with gr.Blocks(title="alfa: teach a model", analytics_enabled=False) as self.blocks:
            # Gradio's own sessions are not kept for long.
            self.blocks.state_session_capacity = 2 * MAX_SESSIONS
            said = static("said.js")
            gr.HTML(render("header", model), elem_classes="alfa-top", js_on_load=said)
            with gr.Row(elem_classes="alfa-columns"):
                with gr.Column(min_width=320, elem_classes="alfa-panel"):
                    self._add_teaching(empty)
                with gr.Column(min_width=320):
                    with gr.Column(elem_classes="alfa-panel"):
                        self._add_learning(empty)
                    with gr.Column(elem_classes="alfa-panel"):
                        self._add_trying(empty)
                    with gr.Column(elem_classes="alfa-panel"):
                        self._add_keeping()
            self._connect()

    def _add_teaching(self, empty: Session) -> None:
        text = (
            f"Make {MIN_CLASSES} to {self._model.max_classes} classes and give each a few pictures:"
            f" five are a good start, {MAX_PER_CLASS} the most ({MAX_IMAGES} in all)."
        )
        _text(render("step", 1, "Show it examples", text))
        self._classes = _state("classes", empty, elem_id="classes", name="classes")
        self._target = _state("target", empty, elem_id="target")
        self._teach_inputs = self._add_inputs("teach", is_live=False)
        self._teach_notice = _text("", elem_id="teach-notice")

    def _add_learning(self, empty: Session) -> None:
        text = "The model adapts to your examples in a few steps, which takes a moment."
        _text(render("step", 2, "Learn", text))
        self._learn_button = _state("learn_button", empty, elem_id="learn")
        self._learned = _state("learned", empty, elem_id="learnt")
        title = "How it learnt: the rates of each step"
        with gr.Accordion(title, open=False, elem_id="rates-box"):
            self._rates = _state("rates", empty, elem_id="rates")

    def _add_trying(self, empty: Session) -> None:
        text = "Show it something new and see what it takes it for."
        _text(render("step", 3, "Try it", text))
        with gr.Row(elem_classes="alfa-try"):
            with gr.Column(scale=5, min_width=240):
                self._try_inputs = self._add_inputs("try", is_live=True)
            with gr.Column(scale=5, min_width=200):
                self._try_notice = _text("", elem_id="try-notice")
                self._answer = _state("nothing_tried", empty, elem_id="answer")

    def _add_keeping(self) -> None:
        text = (
            "Save your examples as a zip of pictures and load them another time; they then take "
            "the place of your classes."
        )
        _text(render("step", 4, "Keep it", text))
        self._keep_buttons = _widget("keep", self._actions.can_export, elem_id="keep")
        self._keep_notice = _text("", elem_id="keep-notice")
        deliver = script("delivery")
        self._download = gr.HTML({}, html_template="", js_on_load=deliver, elem_id="delivery")

    def _add_inputs(self, name: str, *, is_live: bool) -> list[Any]:
        """A pad, an upload, and a camera, each under its tab."""
        titles = {"pad": "Draw", "drop": "Upload", "camera": "Camera"}
        if not self._model.can_draw:
            del titles["pad"]
        inputs = []
        with gr.Tabs(elem_classes="alfa-tabs"):
            for part, title in titles.items():
                with gr.Tab(title):
                    inputs.append(_widget(part, is_live, elem_id=f"{name}-{part}"))
        return inputs

    def _connect(self) -> None:
        # In the order of `_show_session`.
        shown = [self._classes, self._target, self._learn_button, self._learned, self._rates]
        shown.append(self._answer)
        taught = [self._teach_notice, *shown]
        tried = [self._try_notice, self._answer]
        kept = [self._keep_notice, self._download, *shown]
        self._num_shown = len(shown)
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
        # Earlier predictions are those of another model.
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
        # The browser waits for an answer before its buttons work again.
        except Exception as error:
            traceback.print_exc()
            reason = f"{type(error).__name__}: {error}".split("\n")[0]
            text = f"this did not work ({reason}); more is told where the server was started."
            result = ActionResult(problems=[text])
        token, name = result.file or ("", "")
        # The number makes each answer differ, or the browser would not see it.
        download = {"token": token, "name": name, "number": next(self._downloads)}
        return [_notice(result), download, *self._show_session(request)]

    def _on_leave(self, request: gr.Request) -> None:
        self._actions.leave(request.session_hash)
        holder, session_id = self.blocks.state_holder, request.session_hash or ""
        holder.session_data.pop(session_id, None)
        holder.time_last_used.pop(session_id, None)

    def _show_session(self, request: gr.Request, *, learned_at: int | None = None) -> list[Any]:
        """All components that show the session.

        Args:
            request: of the user.
            learned_at: the turn in which the model was adapted a moment ago; predictions that were
                made since then stay.
        """
        session = self._actions.sessions.get(request.session_hash)
        if session is None:
            # The page is full, or the tab was closed.
            return [gr.skip() for _ in range(self._num_shown)]
        with session.lock:
            turn = next_turn()
            parts = ("classes", "target", "learn_button", "learned", "rates")
            shown: list[Any] = [at_turn(turn, render(part, session)) for part in parts]
            since = turn if session.adapted is None else learned_at
            untried = render("nothing_tried", session)
            return [*shown, gr.skip() if since is None else at_turn(since, untried)]


def _text(markup: str, *, elem_id: str | None = None) -> Any:
    return gr.HTML(markup, js_on_load=None, elem_id=elem_id)


def _widget(part: str, argument: Any, *, elem_id: str) -> Any:
    """A component with a script that triggers actions."""
    return gr.HTML(render(part, argument), js_on_load=script(part), elem_id=elem_id)


def _state(part: str, session: Session, *, elem_id: str, name: str = "follow") -> Any:
    """A component that shows a part of the session."""
    markup = at_turn(0, render(part, session))
    return gr.HTML(markup, js_on_load=script(name), elem_id=elem_id)


def _notice(result: ActionResult) -> str:
    return render("notice", result).strip()
