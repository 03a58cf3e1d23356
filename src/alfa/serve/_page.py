"""The page: what is where, and what happens when somebody does something.

Imported only where gradio is there and has been told to be quiet.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable
from typing import Any

import gradio as gr

from alfa.serve import _html as html
from alfa.serve import _widgets as widgets
from alfa.serve._actions import Actions, Outcome, next_turn
from alfa.serve._limits import MAX_PEOPLE, MAX_PICTURES, MAX_TRIED
from alfa.serve._model import Model
from alfa.serve._session import Session

# Fonts that are on every computer; none is fetched.
_FONTS = ("ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")
# Nothing of the page waits for something else; its own locks see to that.
_AT_ONCE = 40
# Every event is worth it, also while an earlier one is under way; and none greys out the page.
_EVENT: dict[str, Any] = {
    "show_progress": "hidden",
    "trigger_mode": "multiple",
    "concurrency_id": "page",
    "concurrency_limit": _AT_ONCE,
    "api_visibility": "undocumented",
}


def theme() -> Any:
    """Colours and fonts."""
    return gr.themes.Base(
        primary_hue="indigo", neutral_hue="slate", font=_FONTS, font_mono=_MONO
    ).set(
        body_background_fill="*neutral_50",
        body_background_fill_dark="*neutral_950",
        # Gradio's own is too faint to be read by everybody.
        body_text_color_subdued="*neutral_500",
        body_text_color_subdued_dark="*neutral_400",
    )


def build(model: Model, actions: Actions) -> Any:
    """Make the page of a model.

    Args:
        model: that is served.
        actions: what people can do.
    """
    with gr.Blocks(title="alfa: teach a model", analytics_enabled=False) as page:
        # Sessions of gradio that nobody will ask for again are not kept.
        page.state_session_capacity = 2 * MAX_PEOPLE
        said = widgets.static("said.js")
        gr.HTML(html.header(model), elem_classes="alfa-top", js_on_load=said)
        with gr.Row(elem_classes="alfa-columns"):
            with gr.Column(min_width=320, elem_classes="alfa-panel"):
                teaching = _Teaching(model)
            with gr.Column(min_width=320):
                with gr.Column(elem_classes="alfa-panel"):
                    learning = _Learning(model)
                with gr.Column(elem_classes="alfa-panel"):
                    trying = _Trying(model)
                with gr.Column(elem_classes="alfa-panel"):
                    keeping = _Keeping(can_export=actions.export is not None)
        _Wiring(page, actions, teaching, learning, trying, keeping).connect()
    return page


class _Inputs:
    """A pad, a place for files and a camera, each under its tab."""

    def __init__(self, model: Model, *, name: str, is_live: bool) -> None:
        self.parts: list[Any] = []
        with gr.Tabs(elem_classes="alfa-tabs"):
            if model.can_draw:
                with gr.Tab("Draw"):
                    self._add(widgets.pad(is_live=is_live), "pad", name)
            with gr.Tab("Upload"):
                most = MAX_TRIED if is_live else MAX_PICTURES
                self._add(widgets.drop(html.files_hint(), most=most), "drop", name)
            with gr.Tab("Camera"):
                self._add(widgets.camera(is_live=is_live), "camera", name)

    def _add(self, markup: str, kind: str, name: str) -> None:
        self.parts.append(_widget(markup, kind, elem_id=f"{name}-{kind}"))


class _Teaching:
    """Classes, and pictures for them."""

    def __init__(self, model: Model) -> None:
        gr.HTML(html.step(1, "Show it examples", html.limits(model)), js_on_load=None)
        empty = Session(model)
        self.classes = _follower(html.classes(empty), elem_id="classes", kind="classes")
        self.target = _follower(html.target(empty), elem_id="target")
        self.inputs = _Inputs(model, name="teach", is_live=False)
        self.notice = gr.HTML("", elem_id="teach-notice", js_on_load=None)


class _Learning:
    """The button, how well it went, and the rates."""

    def __init__(self, model: Model) -> None:
        text = "The model adapts to your examples in a few steps, which takes a moment."
        gr.HTML(html.step(2, "Learn", text), js_on_load=None)
        empty = Session(model)
        self.button = _follower(html.learn_button(empty), elem_id="learn")
        self.result = _follower(html.learnt(empty), elem_id="learnt")
        title = "How it learnt: the rates of each step"
        with gr.Accordion(title, open=False, elem_id="rates-box"):
            self.rates = _follower(html.rates(empty), elem_id="rates")


class _Trying:
    """New pictures, and what they are taken for."""

    def __init__(self, model: Model) -> None:
        text = "Show it something new and see what it takes it for."
        gr.HTML(html.step(3, "Try it", text), js_on_load=None)
        with gr.Row(elem_classes="alfa-try"):
            with gr.Column(scale=5, min_width=240):
                self.inputs = _Inputs(model, name="try", is_live=True)
            with gr.Column(scale=5, min_width=200):
                self.notice = gr.HTML("", elem_id="try-notice", js_on_load=None)
                empty = html.nothing_tried(Session(model))
                self.answer = _follower(empty, elem_id="answer")


class _Keeping:
    """What can be taken along."""

    def __init__(self, *, can_export: bool) -> None:
        text = (
            "Save your examples as a zip of pictures and load them another time; they then take "
            "the place of your classes."
        )
        gr.HTML(html.step(4, "Keep it", text), js_on_load=None)
        self.buttons = _widget(widgets.keep(can_export=can_export), "keep", elem_id="keep")
        self.notice = gr.HTML("", elem_id="keep-notice", js_on_load=None)
        self.delivery = gr.HTML(
            {},
            html_template="",
            js_on_load=widgets.script("delivery"),
            elem_id="delivery",
        )


class _Wiring:
    """What happens when somebody does something."""

    def __init__(
        self,
        page: gr.Blocks,
        actions: Actions,
        teaching: _Teaching,
        learning: _Learning,
        trying: _Trying,
        keeping: _Keeping,
    ) -> None:
        self._page, self._actions = page, actions
        self._teaching, self._learning = teaching, learning
        self._trying, self._keeping = trying, keeping
        self._answers = itertools.count(1)
        # What follows from what somebody has, in the order of `_shown`.
        self._follow = [
            teaching.classes,
            teaching.target,
            learning.button,
            learning.result,
            learning.rates,
            trying.answer,
        ]

    def connect(self) -> None:
        """Connect every part with what it does."""
        told = [self._teaching.notice, *self._follow]
        kept = [self._keeping.notice, self._keeping.delivery, *self._follow]
        learned = [*told, self._trying.notice]
        tried = [self._trying.notice, self._trying.answer]
        for number, part in enumerate([self._teaching.classes, *self._teaching.inputs.parts]):
            name = "teach" if not number else f"teach_{number}"
            part.act(self._teach(), None, told, api_name=name, **_EVENT)
        for number, part in enumerate(self._trying.inputs.parts, start=1):
            part.act(self._try_out(), None, tried, api_name=f"try_{number}", **_EVENT)
        self._learning.button.act(self._learn(), None, learned, api_name="learn", **_EVENT)
        self._keeping.buttons.act(self._keep(), None, kept, api_name="keep", **_EVENT)
        self._page.unload(self._leave())

    def _teach(self) -> Callable[..., Any]:
        def teach(request: gr.Request, event: gr.EventData) -> list[Any]:
            outcome = self._actions.teach(request.session_hash, event._data)
            return [_notice(outcome), *self._shown(request)]

        return teach

    def _learn(self) -> Callable[..., Any]:
        def learn(request: gr.Request) -> list[Any]:
            outcome = self._actions.learn(request.session_hash)
            if outcome.problems:
                return [_notice(outcome), *self._shown(request), gr.skip()]
            # What was said of pictures before was said by another model.
            return [_notice(outcome), *self._shown(request, learnt_at=outcome.turn), ""]

        return learn

    def _try_out(self) -> Callable[..., Any]:
        def try_out(request: gr.Request, event: gr.EventData) -> list[Any]:
            outcome = self._actions.try_out(request.session_hash, event._data)
            if not outcome.predictions:
                return [_notice(outcome), gr.skip()]
            answer = html.at_turn(outcome.turn, html.predictions(outcome.predictions))
            return [_notice(outcome), answer]

        return try_out

    def _keep(self) -> Callable[..., Any]:
        def keep(request: gr.Request, event: gr.EventData) -> list[Any]:
            try:
                outcome = self._actions.keep(request.session_hash, event._data)
            # Whatever it is, the browser must hear that it is over, or no button works again.
            except Exception as error:
                traceback.print_exc()
                reason = f"{type(error).__name__}: {error}".split("\n")[0]
                text = f"this did not work ({reason}); more is told where the server was started."
                outcome = Outcome(problems=[text])
            token, name = outcome.file or ("", "")
            # A number of its own, so that the browser hears of every answer.
            delivery = {"token": token, "name": name, "number": next(self._answers)}
            return [_notice(outcome), delivery, *self._shown(request)]

        return keep

    def _leave(self) -> Callable[..., Any]:
        def leave(request: gr.Request) -> None:
            self._actions.leave(request.session_hash)
            # What gradio itself remembers of a tab is of no use any more, either.
            held, who = self._page.state_holder, request.session_hash or ""
            held.session_data.pop(who, None)
            held.time_last_used.pop(who, None)

        return leave

    def _shown(self, request: gr.Request, *, learnt_at: int | None = None) -> list[Any]:
        """Everything that follows from what somebody has.

        Args:
            request: theirs.
            learnt_at: the turn in which something was learnt a moment ago. Nothing had been tried
                by then; what was tried since keeps its place.
        """
        session = self._actions.people.known(request.session_hash)
        if session is None:
            # There was no room for them, or they have left in the meantime.
            return [gr.skip() for _ in self._follow]
        with session.lock:
            turn = next_turn()
            parts = [html.classes, html.target, html.learn_button, html.learnt, html.rates]
            shown: list[Any] = [html.at_turn(turn, part(session)) for part in parts]
            since = turn if session.learnt is None else learnt_at
            untried = html.nothing_tried(session)
            return [*shown, gr.skip() if since is None else html.at_turn(since, untried)]


def _widget(markup: str, kind: str, *, elem_id: str) -> Any:
    """Something of the page's own that acts."""
    return gr.HTML(markup, js_on_load=widgets.script(kind), elem_id=elem_id)


def _follower(markup: str, *, elem_id: str, kind: str = "follow") -> Any:
    """A part that changes with what somebody has."""
    return _widget(html.at_turn(0, markup), kind, elem_id=elem_id)


def _notice(outcome: Outcome) -> str:
    return html.notice(outcome.problems, is_problem=True) + html.notice(
        outcome.done, is_problem=False
    )
