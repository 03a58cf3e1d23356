"""`alfa adapt`."""

from __future__ import annotations

import contextlib
import copy
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alfa.cli.train import Device, Json, Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from alfa.data._pictures import Pictures
    from alfa.estimator import FewShotClassifier
    from alfa.report.predictions import Prediction

Support = Annotated[
    Path,
    typer.Option(help="A folder of class folders: a few images of each class to learn from."),
]
Head = Annotated[
    str,
    typer.Option(help="The last layer: trained, or zero or prototype for any number of classes."),
]
NumSteps = Annotated[
    int | None, typer.Option(min=0, help="Inner steps; by default as in the run's test.")
]
Checkpoint = Annotated[
    str, typer.Option(help="best, last, or ensemble: the mean of the best epochs' models.")
]
OnProblem = Annotated[str, typer.Option(help="stop, or skip the images that cannot be used.")]

# The longest side of pictures on the page, and how many images are predicted between two news.
_SIDE, _AT_ONCE = 128, 32
# Images that are normalised together to tell what that gives; all of many would need too much
# memory.
_TOGETHER = 250
# Notes on images that the terminal shows.
_SHOWN = 5


def adapt(
    run: Annotated[Path, typer.Argument(help="A run folder that `alfa train` made.")],
    support: Support,
    predict: Annotated[
        list[Path],
        typer.Option(help="A folder of images, or an image; several for several."),
    ],
    out: Annotated[Path, typer.Option(help="The folder that predictions go to.")] = Path(
        "predictions"
    ),
    head: Head = "trained",
    num_steps: NumSteps = None,
    checkpoint: Checkpoint = "best",
    transductive: Annotated[
        bool, typer.Option("--transductive", help="Normalise the predicted images together.")
    ] = False,
    on_problem: OnProblem = "stop",
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder that is not empty.")
    ] = False,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Adapt a trained run to a few images of your own classes, and classify others.

    Writes `predictions.csv`, with the probability of every class, and `predictions.html`, with the
    pictures. Images to classify that lie in folders called as classes are taken to be of these,
    and the accuracy on them is told: inductive, each image by itself, and transductive, normalised
    together, 250 at a time, or all at once with `--transductive`.

    In the CSV a file whose name begins like a formula has `./` before it; a label is never changed.

    Examples:

        alfa adapt runs/strokes-demo --support letters --predict scans

        alfa adapt runs/cifar --support pets --predict a.jpg --predict b.jpg --head zero
    """
    from alfa.cli.progress import meter, tell_unfinished
    from alfa.cli.start import set_up
    from alfa.data._pictures import check_classes, judge
    from alfa.estimator import FewShotClassifier
    from alfa.train import Run

    check_options(head, checkpoint, on_problem)
    check_folder(out, force=force)
    experiment = Run(run).experiment()
    set_up(experiment, device=device, threads=threads)
    classifier = FewShotClassifier(
        run,
        head=head,
        num_steps=num_steps,
        checkpoint=checkpoint,
        transductive=transductive,
        device=device,
    )
    with meter(run.name, quiet=as_json) as shown:
        tell_unfinished(shown, Run(run))
        learned, asked = _read_both(run, support, predict, shown.update)
        judge(learned, asked, on_problem=on_problem)
        check_classes(learned, support)
        with kept_warnings() as told:
            classifier.fit(learned.pixels, learned.labels)
        predictions = _predictions(classifier, asked, shown.update)
    summary = _summary(classifier, learned, asked, predictions)
    summary["notes"] = [*told, *summary["notes"]]
    words = ["alfa", "adapt", run, "--support", support]
    words += [word for path in predict for word in ("--predict", path)]
    words += _words(head, num_steps, checkpoint, transductive, on_problem)
    files = _write(out, predictions, learned, summary, run=run, command=shlex.join(map(str, words)))
    if as_json:
        typer.echo(json.dumps({**summary, **files}, indent=2))
    else:
        _print(summary, files)


@contextlib.contextmanager
def kept_warnings() -> Iterator[list[str]]:
    """Our own warnings as sentences, which are worth keeping with what came of it."""
    import warnings

    from alfa.errors import AlfaWarning

    sentences: list[str] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", AlfaWarning)
        yield sentences
    for warning in told:
        if issubclass(warning.category, AlfaWarning):
            sentences.append(str(warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def check_options(head: str, checkpoint: str, on_problem: str) -> None:
    """Raise if an option has a value that it cannot have."""
    from alfa.errors import check_choice

    check_choice("--head", head, ("trained", "prototype", "zero"))
    check_choice("--checkpoint", checkpoint, ("best", "last", "ensemble"))
    check_choice("--on-problem", on_problem, ("stop", "skip"))


def check_folder(out: Path, *, force: bool) -> None:
    """Raise if files of the user's could be lost, or nothing can be written.

    Raises:
        ConfigError: it is no folder, or holds something.
        OSError: it cannot be written to.
    """
    from alfa.errors import ConfigError
    from alfa.train.files import check_writable

    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; choose a folder with --out.")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise ConfigError(
            f"{out} is not empty; choose another folder with --out, or replace predictions in it "
            "with --force."
        )
    check_writable(out / "predictions.csv")


def _words(
    head: str, num_steps: int | None, checkpoint: str, transductive: bool, on_problem: str
) -> list[str]:
    """Options that are not as they are by default, as they are typed."""
    words = {"--head": (head, "trained"), "--num-steps": (num_steps, None)}
    words |= {"--checkpoint": (checkpoint, "best"), "--on-problem": (on_problem, "stop")}
    typed = [(option, value) for option, (value, usual) in words.items() if value != usual]
    return [str(w) for pair in typed for w in pair] + ["--transductive"] * transductive


def input_shape(run: Path) -> tuple[int, ...]:
    """The shape of the images that a run's model takes.

    Raises:
        ConfigError: it takes no images.
    """
    from alfa.errors import ConfigError
    from alfa.estimator._images import check_normalised
    from alfa.train import Run

    signature = Run(run).signature(Run(run).experiment())
    if len(signature.input_shape) != 3:
        raise ConfigError(f"{run} was not trained on images; give a run that was.")
    check_normalised(signature, run)
    return signature.input_shape


def _read_both(
    run: Path, support: Path, predict: Sequence[Path], update: Callable[..., None]
) -> tuple[Pictures, Pictures]:
    """The support set, and what is to be classified."""
    from alfa.data._pictures import pictures_in, read, support_in
    from alfa.report.predictions import num_shown

    shape = input_shape(run)
    both = support_in(support), pictures_in(predict)
    total = sum(len(listed.pictures) for listed in both)
    done = 0

    def on_read() -> None:
        nonlocal done
        done += 1
        update("reading", done, total, unit="images", passing=True)

    most, most_of_class = num_shown()
    learned, asked = (
        read(listed, shape=shape, side=_SIDE, most=count, on_read=on_read)
        for listed, count in zip(both, (most_of_class, most), strict=True)
    )
    return learned, asked


def _predictions(
    classifier: FewShotClassifier, asked: Pictures, update: Callable[..., None]
) -> list[Prediction]:
    import numpy as np

    from alfa.report.predictions import Prediction

    total = len(asked.files)
    # What is normalised together must be given together.
    step = _AT_ONCE if classifier.is_inductive else total
    parts = []
    for first in range(0, total, step):
        parts.append(classifier.predict_proba(asked.pixels[first : first + step]))
        update("classifying", min(first + step, total), total, unit="images", passing=True)
    probabilities = np.concatenate(parts)
    classes = [str(name) for name in classifier.classes_]
    return [
        Prediction(
            str(file.path),
            classes[row.argmax()],
            row.tolist(),
            file.label if file.label in classes else None,
            picture,
        )
        for file, row, picture in zip(asked.files, probabilities, asked.thumbnails, strict=True)
    ]


def _summary(
    classifier: FewShotClassifier,
    learned: Pictures,
    asked: Pictures,
    predictions: Sequence[Prediction],
) -> dict[str, Any]:
    """Everything that was found, as it is printed."""
    from alfa.data._pictures import plain
    from alfa.report.predictions import is_formula

    known = [number for number, found in enumerate(predictions) if found.true is not None]
    problems = [*learned.problems, *asked.problems]
    hits = dict(zip(map(str, classifier.classes_), map(int, classifier.support_hits_), strict=True))
    notes = [
        f"{plain(name)}: none of the images that it was shown of this class is recognised"
        for name, count in hits.items()
        if not count
    ]
    both = {file.path.resolve() for file in learned.files} & {f.path.resolve() for f in asked.files}
    if both:
        notes.append(f"{len(both):,} of the images to classify are in the support set as well")
    notes += [str(problem) for problem in problems if not problem.fatal]
    notes += [
        f"{plain(name)}: a spreadsheet takes the name of this class for a formula"
        for name in classifier.classes_
        if is_formula(name)
    ]
    return {
        "num_steps": classifier.num_steps_,
        "checkpoint": classifier.checkpoint,
        "head": classifier.head,
        "transductive": not classifier.is_inductive,
        "classes": {
            str(name): {
                "support": learned.labels.count(name),
                "recognised": hits[str(name)],
                "predicted": sum(found.label == name for found in predictions),
                "known": sum(found.true == name for found in predictions),
                "right": sum(found.true == found.label == name for found in predictions),
            }
            for name in classifier.classes_
        },
        "support_accuracy": classifier.support_accuracy_,
        "num_known": len(known),
        "accuracies": _accuracies(classifier, asked, predictions, known),
        "predictions": [
            {"file": p.file, "label": p.label, "probability": p.probability, "true": p.true}
            for p in predictions
        ],
        "left_out": [str(problem) for problem in problems if problem.fatal],
        "notes": notes,
    }


def _accuracies(
    classifier: FewShotClassifier,
    asked: Pictures,
    predictions: Sequence[Prediction],
    known: Sequence[int],
) -> dict[str, float] | None:
    """Of the images whose class is known: as they were predicted, and the other way."""
    from alfa.errors import ConfigError

    if not known:
        return None
    right = sum(not predictions[number].is_wrong for number in known)
    found = {_way(classifier): right / len(known)}
    other = copy.copy(classifier).set_params(transductive=not classifier.transductive)
    # Some models can only do one of them; one image alone has no others to be normalised with.
    if _way(other) not in found and len(predictions) > 1:
        # A single image can be too few to be normalised by itself.
        with contextlib.suppress(ConfigError):
            found[_way(other)] = _accuracy(other, asked, predictions, known)
    return dict(sorted(found.items()))


def _way(classifier: FewShotClassifier) -> str:
    return "inductive" if classifier.is_inductive else "transductive"


def _accuracy(
    classifier: FewShotClassifier,
    asked: Pictures,
    predictions: Sequence[Prediction],
    known: Sequence[int],
) -> float:
    """What comes of predicting all of them once more, some at a time."""
    total = len(predictions)
    count = -(-total // _TOGETHER)
    right = 0
    for first in range(count):
        # Every so many-th, because they lie class by class, and a group should have all classes.
        group = range(first, total, count)
        labels = classifier.predict(asked.pixels[list(group)])
        right += sum(predictions[n].true == str(x) for n, x in zip(group, labels, strict=True))
    return right / len(known)


def _write(
    out: Path,
    predictions: Sequence[Prediction],
    learned: Pictures,
    summary: dict[str, Any],
    *,
    run: Path,
    command: str,
) -> dict[str, str]:
    """Write both files, and tell where they are."""
    from alfa.report.predictions import comma_separated, render
    from alfa.train.files import write_atomic

    support: dict[str, list[tuple[str, bytes]]] = {name: [] for name in summary["classes"]}
    for file, picture in zip(learned.files, learned.thumbnails, strict=True):
        support[str(file.label)].append((str(file.path), picture))
    facts = {
        "run": str(run),
        "learned from": f"{len(learned.files):,} images of {len(support):,} classes",
        "of these it recognises": f"{100 * summary['support_accuracy']:.1f} %",
    }
    for name, accuracy in (summary["accuracies"] or {}).items():
        facts[f"{name} accuracy"] = f"{100 * accuracy:.1f} % of {summary['num_known']:,} images"
    page = render(
        predictions,
        support=support,
        title=f"Predictions of {run.name} after {summary['num_steps']} steps",
        facts=facts,
        notes=[*(f"left out: {line}" for line in summary["left_out"]), *summary["notes"]],
        command=command,
    )
    table = comma_separated(predictions, list(support))
    files = {"csv": out / "predictions.csv", "html": out / "predictions.html"}
    for path, content in zip(files.values(), (table, page), strict=True):
        # Names of files may be no text; the backslashes say what they are.
        write_atomic(path, content.encode("utf-8", "backslashreplace"))
    return {kind: str(path) for kind, path in files.items()}


def _print(summary: dict[str, Any], files: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table

    from alfa.data._pictures import plain

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("class")
    known = summary["num_known"]
    for header in ("support", "predicted", *(["right"] if known else [])):
        table.add_column(header, justify="right", no_wrap=True)
    for name, counts in summary["classes"].items():
        right = [f"{counts['right']:,} of {counts['known']:,}"] if known else []
        table.add_row(plain(name), f"{counts['support']:,}", f"{counts['predicted']:,}", *right)
    # A class may be called like markup.
    Console(markup=False, emoji=False, highlight=False).print(table)
    if known:
        both = ", ".join(f"{100 * a:.2f} % {name}" for name, a in summary["accuracies"].items())
        typer.echo(f"\naccuracy on the {known:,} images whose class is known: {both}")
    blank = "" if known else "\n"
    share = 100 * summary["support_accuracy"]
    typer.echo(f"{blank}of the support images it recognises {share:.1f} %")
    print_notes(summary)
    typer.echo(f"\nwritten: {files['html']}\nwritten: {files['csv']}")


def print_notes(summary: dict[str, Any]) -> None:
    """What was left out, all of it, and a few of the other notes."""
    for title, lines, limit in (
        ("left out", summary["left_out"], None),
        ("worth knowing", summary["notes"], _SHOWN),
    ):
        if lines:
            shown = "".join(f"\n  - {line}" for line in lines[:limit])
            rest = len(lines[limit:]) if limit else 0
            more = f"\n  and {rest} more, which --json lists" if rest else ""
            typer.echo(f"\n{title}: {len(lines)}{shown}{more}")
