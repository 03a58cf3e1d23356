"""The parts of the page that show what somebody has; everything that they typed is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from alfa.serve._charts import loss_chart, rates_chart
from alfa.serve._limits import (
    MAX_FILE,
    MAX_NAME,
    MAX_PER_CLASS,
    MAX_PICTURES,
    MIN_CLASSES,
    megabytes,
)
from alfa.serve._model import Model
from alfa.serve._session import Class, Prediction, Session

# Rows of probabilities below each of several pictures.
_BEST = 3


def header(model: Model) -> str:
    """What this page is, and what the model takes."""
    _, height, width = model.signature.input_shape
    kind = "grey" if model.is_grey else "coloured"
    name = model.run.name or model.run.resolve().name
    return f"""
<header class="alfa-header">
  <div class="alfa-mark" aria-hidden="true">&alpha;</div>
  <div>
    <h1>Teach a model with a few pictures</h1>
    <p>The model <b>{escape(name)}</b> was trained on {escape(model.title)}, {kind} pictures of
    <span class="alfa-size">{width} &times; {height}</span> pixels. Everything stays on this
    computer and is gone when you close the page.</p>
  </div>
</header>
<div class="alfa-unseen" role="status"></div>"""


def at_turn(turn: int, markup: str) -> str:
    """A part that changes: of two, the browser keeps to the later, whichever it hears of first."""
    return f'<div data-turn="{turn}">{markup}</div>'


def step(number: int, title: str, text: str) -> str:
    """The heading of one of the steps that a person takes."""
    return (
        f'<div class="alfa-step"><span>{number}</span><div><h2>{escape(title)}</h2>'
        f"<p>{escape(text)}</p></div></div>"
    )


def limits(model: Model) -> str:
    """What can be made, in one sentence."""
    return (
        f"Make {MIN_CLASSES} to {model.max_classes} classes and give each a few pictures: five are "
        f"a good start, {MAX_PER_CLASS} the most ({MAX_PICTURES} in all)."
    )


def files_hint() -> str:
    """What can be uploaded."""
    return f"JPEG, PNG, WebP and others, up to {megabytes(MAX_FILE)} each"


def classes(session: Session) -> str:
    """A card for each class, and a button for one more."""
    cards = "".join(_card(each, session) for each in session.classes)
    full = len(session.classes) >= session.model.max_classes
    more = (
        ""
        if full
        else '<button type="button" class="alfa-more" data-do="add">+ Add a class</button>'
    )
    return (
        f'<div class="alfa-classes" data-limit="{MAX_FILE}" data-most="{MAX_PICTURES}">'
        f"{cards}{more}</div>"
        '<p class="alfa-local" role="alert" hidden></p>'
    )


def _card(each: Class, session: Session) -> str:
    name, is_picked = escape(each.name), each.number == session.picked
    thumbs = "".join(
        f'<button type="button" class="alfa-thumb" data-do="discard" data-picture="{p.number}" '
        f'title="Remove this picture" aria-label="Remove picture {place} of {name}">'
        f'<img alt="" src="{p.address}"></button>'
        for place, p in enumerate(each.pictures, start=1)
    )
    count = len(each.pictures)
    told = "picture" if count == 1 else "pictures"
    where = "Adding here" if is_picked else "Add here"
    removable = len(session.classes) > MIN_CLASSES
    remove = (
        f'<button type="button" class="alfa-remove" data-do="remove" data-count="{count}" '
        f'aria-label="Remove the class {name}" title="Remove the class">✕</button>'
    )
    return f"""
<section class="alfa-class{" is-picked" if is_picked else ""}" data-class="{each.number}"
    style="--hue:{hue(each.number)}" aria-label="Class {name}">
  <div class="alfa-class-head"><i class="alfa-dot"></i>
    <input class="alfa-name" value="{name}" maxlength="{MAX_NAME}" aria-label="Name of the class"
      spellcheck="false" autocomplete="off">
    {remove if removable else ""}</div>
  <div class="alfa-thumbs">{thumbs or '<span class="alfa-empty">No pictures yet</span>'}</div>
  <div class="alfa-class-foot"><span>{count} {told}</span>
    <button type="button" class="alfa-pick" data-do="pick" aria-pressed="{str(is_picked).lower()}"
      >{where}</button></div>
</section>"""


def target(session: Session) -> str:
    """Which class new pictures go to."""
    picked = session.class_of(session.picked)
    return (
        f'<div class="alfa-target" style="--hue:{hue(picked.number)}">New pictures go to '
        f'<i class="alfa-dot"></i><b>{escape(picked.name)}</b></div>'
    )


def hue(number: int) -> int:
    """The colour of a class; any two that follow each other are far apart."""
    return round(number * 137.508 + 75) % 360


def learn_button(session: Session) -> str:
    """The button that starts it, where there is something to learn."""
    again = session.learnt is not None and session.is_stale
    state = "" if session.missing() is None else " disabled"
    return (
        '<div class="alfa-buttons"><button type="button" class="is-main" data-do="learn"'
        f"{state}>{'Learn again' if again else 'Learn'}</button></div>"
    )


def learnt(session: Session) -> str:
    """How well the examples are known, or what to do first."""
    missing = session.missing()
    if session.learnt is None:
        text = missing or "Ready: press Learn."
        return f'<p class="alfa-note">{escape(text)}</p>'
    found = session.learnt
    again = (
        f'<p class="alfa-note is-stale">{escape(missing or "The examples have changed.")} '
        f"{'' if missing else 'Press Learn again.'}</p>"
        if session.is_stale
        else ""
    )
    num_steps = len(found.losses) - 1
    share = found.num_right / found.num_examples
    mood = "is-good" if share >= 0.9 else "is-fair" if share >= 0.6 else "is-poor"
    return f"""{again}
<div class="alfa-score {mood}"><strong>{found.num_right} of {found.num_examples} examples
  recognised</strong><span>Accuracy {share:.0%} after {num_steps}
  {"step" if num_steps == 1 else "steps"}, which took {1000 * found.seconds:.0f} ms</span></div>
<div class="alfa-caption">Loss: how wrong it is about your examples, before learning and after each
step</div>
{loss_chart(found.losses, num_classes=len(found.classifier.classes_))}"""


def rates(session: Session) -> str:
    """The rates of every step."""
    if session.learnt is None:
        return '<p class="alfa-note">Press Learn, and they are drawn here.</p>'
    rule = session.model.rule
    told = (
        "ALFA generated these for your examples: it looks at the weights and gradients of each "
        "layer before every step. Other examples give other rates."
        if rule == "alfa"
        else f"What the rule “{rule}” used in every step, for each layer."
    )
    return f'<p class="alfa-note">{escape(told)}</p>{rates_chart(session.learnt.rates)}'


def predictions(found: Sequence[Prediction]) -> str:
    """What the model says of one picture, or of several."""
    if not found:
        return ""
    only = len(found) == 1
    parts = []
    for each in found:
        rows = each.classes if only else each.classes[:_BEST]
        bars = "".join(_bar(*row, is_first=place == 0) for place, row in enumerate(rows))
        name = f'<div class="alfa-file">{escape(each.name)}</div>' if each.name else ""
        parts.append(
            f'<div class="alfa-answer"><figure><img alt="The picture as the model sees it" '
            f'src="{each.picture}"></figure><div class="alfa-odds">{name}{bars}</div></div>'
        )
    return f'<div class="alfa-answers">{"".join(parts)}</div>'


def nothing_tried(session: Session) -> str:
    """Where the answer will be."""
    text = (
        "Teach it first: give examples and press Learn."
        if session.learnt is None
        else "Now show it something new, and see what it takes it for."
    )
    return f'<p class="alfa-note">{text}</p>'


def _bar(number: int, name: str, probability: float, *, is_first: bool) -> str:
    return (
        f'<div class="alfa-odd{" is-first" if is_first else ""}" style="--hue:{hue(number)}" '
        f'data-probability="{probability!r}">'
        f'<span class="alfa-odd-name" title="{escape(name)}">{escape(name)}</span> '
        f'<span class="alfa-odd-value">{_percent(probability)}</span>'
        f'<div class="alfa-track"><div style="width:{100 * probability:.2f}%"></div></div></div>'
    )


def _percent(probability: float) -> str:
    """Never 100 % or 0 % of what is not certain."""
    if 0.0005 < probability < 0.9995:
        return f"{probability:.1%}".replace("%", " %")
    return "> 99.9 %" if probability > 0.5 else "< 0.1 %"


def notice(sentences: Sequence[str], *, is_problem: bool) -> str:
    """What came of what somebody did; nothing if there is nothing to say."""
    if not sentences:
        return ""
    kind = "is-problem" if is_problem else "is-done"
    lines = "".join(f"<div>{escape(sentence_of(text))}</div>" for text in sentences)
    return f'<div class="alfa-notice {kind}">{lines}</div>'


def sentence_of(text: str) -> str:
    """The text of an error as a sentence by itself."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.isalpha() else text
