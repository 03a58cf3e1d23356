"""`alfa adapt`."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alfa.cli._options import (
    Checkpoint,
    Device,
    Head,
    Json,
    NumSteps,
    OnProblem,
    Support,
    TheRun,
    Threads,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from alfa.data.photos import Photos
    from alfa.estimator import FewShotClassifier
    from alfa.report.predictions import Prediction

# The longest side of a thumbnail, and the number of images between two updates of the progress.
_THUMBNAIL_SIZE, _BATCH_SIZE = 128, 32
# Images that are normalized together for the transductive accuracy; more need too much memory.
_MAX_TOGETHER = 250


def adapt(
    run: TheRun,
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
        bool, typer.Option("--transductive", help="Normalize the predicted images together.")
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
    from alfa.cli._adapting import fit_and_collect_warnings
    from alfa.cli._options import check_choices
    from alfa.cli.progress import meter, tell_unfinished
    from alfa.cli.start import set_up
    from alfa.data.photos import check_num_classes, check_photos
    from alfa.estimator import FewShotClassifier, check_normalized
    from alfa.runs import Run

    check_choices(head=head, checkpoint=checkpoint, on_problem=on_problem)
    _check_output_folder(out, force=force)
    opened = Run.open(run)
    set_up(opened.experiment, device=device, threads=threads)
    check_normalized(opened.signature, run)
    classifier = FewShotClassifier(
        run,
        head=head,
        num_steps=num_steps,
        checkpoint=checkpoint,
        transductive=transductive,
        device=device,
    )
    with meter(run.name, quiet=as_json) as shown:
        tell_unfinished(shown, opened)
        learned, asked = _read_both(opened.signature.input_shape, support, predict, shown.update)
        check_photos(learned, asked, on_problem=on_problem)
        check_num_classes(learned, support)
        notes = fit_and_collect_warnings(classifier, learned)
        predictions = _predict(classifier, asked, shown.update)
    summary = _summary(classifier, learned, asked, predictions)
    summary["notes"] = [*notes, *summary["notes"]]
    command = _command(run, support, predict, classifier, on_problem=on_problem)
    files = _write(out, predictions, learned, summary, run=run, command=command)
    if as_json:
        typer.echo(json.dumps({**summary, **files}, indent=2))
    else:
        _print(summary, files)


def _check_output_folder(out: Path, *, force: bool) -> None:
    """Raise if files of the user could be lost, or the folder cannot be written."""
    from alfa._io import check_writable
    from alfa.errors import ConfigError

    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; choose a folder with --out.")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise ConfigError(
            f"{out} is not empty; choose another folder with --out, or replace predictions in it "
            "with --force."
        )
    check_writable(out / "predictions.csv")


def _command(
    run: Path,
    support: Path,
    predict: Sequence[Path],
    classifier: FewShotClassifier,
    *,
    on_problem: str,
) -> str:
    """The command line, without options that have their default."""
    words: list[Any] = ["alfa", "adapt", run, "--support", support]
    words += [word for path in predict for word in ("--predict", path)]
    for option, value, default in (
        ("--head", classifier.head, "trained"),
        ("--num-steps", classifier.num_steps, None),
        ("--checkpoint", classifier.checkpoint, "best"),
        ("--on-problem", on_problem, "stop"),
    ):
        words += [option, value] if value != default else []
    words += ["--transductive"] if classifier.transductive else []
    return shlex.join(map(str, words))


def _read_both(
    shape: Sequence[int], support: Path, predict: Sequence[Path], update: Callable[..., None]
) -> tuple[Photos, Photos]:
    """Read the support set, and the images to classify."""
    from alfa.data.photos import list_photos, list_support_photos, load_photos
    from alfa.report.predictions import num_shown

    listed = list_support_photos(support), list_photos(predict)
    total = sum(len(each.files) for each in listed)
    counter = itertools.count(1)

    def on_read() -> None:
        update("reading", next(counter), total, unit="images", transient=True)

    max_shown, max_shown_of_class = num_shown()
    options: dict[str, Any] = {"shape": shape, "side": _THUMBNAIL_SIZE, "on_read": on_read}
    learned = load_photos(listed[0], most=max_shown_of_class, **options)
    return learned, load_photos(listed[1], most=max_shown, **options)


def _predict(
    classifier: FewShotClassifier, asked: Photos, update: Callable[..., None]
) -> list[Prediction]:
    import numpy as np

    from alfa.report.predictions import Prediction

    total = len(asked.files)
    # Images that are normalized together must be predicted together.
    step = _BATCH_SIZE if classifier.is_inductive else total
    parts = []
    for first in range(0, total, step):
        parts.append(classifier.predict_proba(asked.pixels[first : first + step]))
        update("classifying", min(first + step, total), total, unit="images", transient=True)
    classes = [str(name) for name in classifier.classes_]
    return [
        Prediction(
            str(file.path),
            classes[row.argmax()],
            row.tolist(),
            file.label if file.label in classes else None,
            thumbnail,
        )
        for file, row, thumbnail in zip(
            asked.files, np.concatenate(parts), asked.thumbnails, strict=True
        )
    ]


def _summary(
    classifier: FewShotClassifier,
    learned: Photos,
    asked: Photos,
    predictions: Sequence[Prediction],
) -> dict[str, Any]:
    """All results, as --json prints them."""
    from alfa.data.photos import printable
    from alfa.report.predictions import is_formula

    names = [str(name) for name in classifier.classes_]
    hits = dict(zip(names, map(int, classifier.support_hits_), strict=True))
    problems = [*learned.problems, *asked.problems]
    notes = [
        f"{printable(name)}: none of the support images of this class is recognized"
        for name, count in hits.items()
        if not count
    ]
    both = {file.path.resolve() for file in learned.files} & {f.path.resolve() for f in asked.files}
    if both:
        notes.append(f"{len(both):,} of the images to classify are in the support set as well")
    notes += [str(problem) for problem in problems if not problem.fatal]
    notes += [
        f"{printable(name)}: a spreadsheet takes the name of this class for a formula"
        for name in names
        if is_formula(name)
    ]
    return {
        "num_steps": classifier.num_steps_,
        "checkpoint": classifier.checkpoint,
        "head": classifier.head,
        "transductive": not classifier.is_inductive,
        "classes": {
            name: {
                "support": learned.labels.count(name),
                "recognized": hits[name],
                "predicted": sum(p.label == name for p in predictions),
                "known": sum(p.true == name for p in predictions),
                "right": sum(p.true == p.label == name for p in predictions),
            }
            for name in names
        },
        "support_accuracy": classifier.support_accuracy_,
        "num_known": sum(p.true is not None for p in predictions),
        "accuracies": _accuracies(classifier, asked, predictions),
        "predictions": [
            {"file": p.file, "label": p.label, "probability": p.probability, "true": p.true}
            for p in predictions
        ],
        "left_out": [str(problem) for problem in problems if problem.fatal],
        "notes": notes,
    }


def _accuracies(
    classifier: FewShotClassifier, asked: Photos, predictions: Sequence[Prediction]
) -> dict[str, float] | None:
    """The accuracy on images of known class, inductive and, if the model can, transductive."""
    from alfa.errors import ConfigError

    known = [p for p in predictions if p.true is not None]
    if not known:
        return None
    modes = {True: "inductive", False: "transductive"}
    right = sum(not p.is_wrong for p in known)
    found = {modes[classifier.is_inductive]: right / len(known)}
    other = copy.copy(classifier).set_params(transductive=not classifier.transductive)
    # Some models support one mode only, and one image has no others to be normalized with.
    if other.is_inductive != classifier.is_inductive and len(predictions) > 1:
        # A single image can be too few to be normalized by itself.
        with contextlib.suppress(ConfigError):
            right = _num_right(other, asked, predictions)
            found[modes[other.is_inductive]] = right / len(known)
    return dict(sorted(found.items()))


def _num_right(
    classifier: FewShotClassifier, asked: Photos, predictions: Sequence[Prediction]
) -> int:
    """Predict all images again, a group at a time."""
    total = len(predictions)
    num_groups = -(-total // _MAX_TOGETHER)
    right = 0
    for first in range(num_groups):
        # Strided, because the images are sorted by class, and a group should have all classes.
        group = range(first, total, num_groups)
        labels = classifier.predict(asked.pixels[list(group)])
        right += sum(predictions[n].true == str(x) for n, x in zip(group, labels, strict=True))
    return right


def _write(
    out: Path,
    predictions: Sequence[Prediction],
    learned: Photos,
    summary: dict[str, Any],
    *,
    run: Path,
    command: str,
) -> dict[str, str]:
    """Write the table and the page; return their paths."""
    from alfa._io import write_atomic
    from alfa.report.predictions import predictions_csv, render_predictions_page

    support: dict[str, list[tuple[str, bytes]]] = {name: [] for name in summary["classes"]}
    for file, thumbnail in zip(learned.files, learned.thumbnails, strict=True):
        support[str(file.label)].append((str(file.path), thumbnail))
    facts = {
        "run": str(run),
        "learned from": f"{len(learned.files):,} images of {len(support):,} classes",
        "of these it recognizes": f"{100 * summary['support_accuracy']:.1f} %",
    }
    for name, accuracy in (summary["accuracies"] or {}).items():
        facts[f"{name} accuracy"] = f"{100 * accuracy:.1f} % of {summary['num_known']:,} images"
    page = render_predictions_page(
        predictions,
        support=support,
        title=f"Predictions of {run.name} after {summary['num_steps']} steps",
        facts=facts,
        notes=[*(f"left out: {line}" for line in summary["left_out"]), *summary["notes"]],
        command=command,
    )
    files = {}
    for kind, content in (("csv", predictions_csv(predictions, list(support))), ("html", page)):
        path = out / f"predictions.{kind}"
        # File names may not be valid text.
        write_atomic(path, content.encode("utf-8", "backslashreplace"))
        files[kind] = str(path)
    return files


def _print(summary: dict[str, Any], files: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table

    from alfa.cli._adapting import print_notes
    from alfa.data.photos import printable

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("class")
    known = summary["num_known"]
    for header in ("support", "predicted", *(["right"] if known else [])):
        table.add_column(header, justify="right", no_wrap=True)
    for name, counts in summary["classes"].items():
        right = [f"{counts['right']:,} of {counts['known']:,}"] if known else []
        table.add_row(printable(name), f"{counts['support']:,}", f"{counts['predicted']:,}", *right)
    # The name of a class may look like markup.
    Console(markup=False, emoji=False, highlight=False).print(table)
    typer.echo("")
    if known:
        both = ", ".join(f"{100 * a:.2f} % {name}" for name, a in summary["accuracies"].items())
        typer.echo(f"accuracy on the {known:,} images whose class is known: {both}")
    typer.echo(f"of the support images it recognizes {100 * summary['support_accuracy']:.1f} %")
    print_notes(summary)
    typer.echo(f"\nwritten: {files['html']}\nwritten: {files['csv']}")
