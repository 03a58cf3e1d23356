"""`alfa adapt`."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from alfa._io import check_writable, write_atomic
from alfa.cli import _options as opts
from alfa.cli import lazy
from alfa.cli._adapting import check_and_fit, print_notes
from alfa.cli.progress import meter, report_unfinished
from alfa.cli.show import print_json, print_table
from alfa.cli.start import Computing
from alfa.errors import ConfigError

if TYPE_CHECKING:
    from alfa.data import ImageFormat
    from alfa.data.photos import Photos
    from alfa.estimator import FewShotClassifier
    from alfa.report.predictions import Prediction

# The longest side of a thumbnail, and the number of images between two progress updates.
_THUMBNAIL_SIZE, _BATCH_SIZE = 128, 32
# Images that the transductive accuracy normalizes together; more would need too much memory.
_MAX_TOGETHER = 250


def adapt(
    support: opts.Support,
    predict: Annotated[list[Path], Option(help="Images or folders of images to classify.")],
    run: opts.PhotoModel = Path("photos"),
    out: Annotated[Path, Option(help="Output folder.")] = Path("predictions"),
    head: opts.Head = "trained",
    num_steps: opts.NumSteps = None,
    checkpoint: opts.Checkpoint = "best",
    transductive: Annotated[
        bool, Option("--transductive", help="Normalize the classified images together.")
    ] = False,
    reject: Annotated[
        bool, Option("--reject/--no-reject", help="Label unfamiliar images `none of these`.")
    ] = True,
    on_problem: opts.OnProblem = "stop",
    force: Annotated[bool, Option("--force", help="Write into a nonempty folder.")] = False,
    device: opts.Device = "cpu",
    threads: opts.Threads = None,
    as_json: opts.Json = False,
) -> None:
    """Classify images after learning a few images of your own classes.

    RUN is a trained run or a model that `alfa models` lists; `photos`, the default, is for photos
    of any kind and needs `pip install 'alfa[photos]'`.

    The command estimates the accuracy on new images by cross-validation on the support set. Writes
    `predictions.csv` with the probability of every class, and `predictions.html` with the images.
    Unfamiliar images are labeled `none of these`; this happens to about 5 % of the images of your
    classes. If the images to classify are in folders named after the classes, these names count as
    their true classes, and the command reports two accuracies: inductive (each image is normalized
    separately) and transductive (images are normalized in groups of up to 250, or all at once with
    `--transductive`).

    In the CSV, a file name that starts like a formula gets the prefix `./`; labels are unchanged.

    Examples:

        alfa adapt --support pets --predict unsorted
        alfa adapt runs/strokes-demo --support letters --predict scans
        alfa adapt runs/cifar --support pets --predict a.jpg --predict b.jpg --head zero
    """
    opts.check_choices(head=head, checkpoint=checkpoint, on_problem=on_problem)
    _check_output_folder(out, force=force)
    opened = Computing(device, threads).open_run(run)
    image_format = lazy.estimator.check_images(opened.signature, run)
    options: dict[str, Any] = {"head": head, "num_steps": num_steps, "checkpoint": checkpoint}
    classifier = lazy.estimator.FewShotClassifier(
        run, transductive=transductive, device=device, **options
    )
    with meter(run.name, quiet=as_json) as shown:
        report_unfinished(shown, opened)
        learned, queries = _load(image_format, support, predict, shown.update)
        notes = check_and_fit(classifier, learned, queries, folder=support, on_problem=on_problem)
        if reject:
            _check_names(learned)
        predictions = _predict(classifier, learned, queries, shown.update, rejects=reject)
        result = _Adapted(classifier, learned, queries, predictions)
    summary = result.summary(notes)
    command = _command(run, support, predict, on_problem=on_problem, **options)
    command += "" if reject else " --no-reject"
    command += " --transductive" if transductive else ""
    files = _write(out, result, summary, run=run, command=command)
    if as_json:
        print_json({**summary, **files})
    else:
        _print(summary, files)


def _check_output_folder(out: Path, *, force: bool) -> None:
    """Raise if the user could lose files, or the folder cannot be written."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out must be a folder, but {out} is a file.")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise ConfigError(f"{out} is not empty; change --out, or replace predictions with --force.")
    check_writable(out / "predictions.csv")


def _check_names(learned: Photos) -> None:
    from alfa.report.predictions import NONE

    if NONE in learned.labels:
        raise ConfigError(
            f"a class is named {NONE!r}, the label of unfamiliar images; rename its folder, or use "
            "--no-reject."
        )


def _load(
    image_format: ImageFormat,
    support: Path,
    predict: Sequence[Path],
    update: Callable[..., None],
) -> tuple[Photos, Photos]:
    from alfa.report.predictions import MOST_OF_CLASS, MOST_SHOWN

    photos = lazy.photos
    listed = photos.list_support_photos(support), photos.list_photos(predict)
    total = sum(len(each.files) for each in listed)
    done = itertools.count(1)

    def on_read() -> None:
        update("reading", next(done), total, unit="images", transient=True)

    options: dict[str, Any] = {"image_format": image_format, "on_read": on_read}
    options["side"] = _THUMBNAIL_SIZE
    learned = photos.load_photos(listed[0], most=MOST_OF_CLASS, **options)
    return learned, photos.load_photos(listed[1], most=MOST_SHOWN, **options)


def _predict(
    classifier: FewShotClassifier,
    learned: Photos,
    queries: Photos,
    update: Callable[..., None],
    *,
    rejects: bool,
) -> list[Prediction]:
    from alfa.report.predictions import Prediction

    total = len(queries.files)
    # Images that are normalized together must be predicted together.
    step = _BATCH_SIZE if classifier.is_inductive else total
    rows: list[Any] = []
    none: list[bool] = []
    for first in range(0, total, step):
        found = classifier.assess(queries.pixels[first : first + step])
        rows += list(found.probabilities)
        none += found.is_none.tolist()
        update("classifying", len(rows), total, unit="images", transient=True)
    classes = [str(name) for name in classifier.classes_]
    # The accuracy on images that the classifier has learned would say little.
    support = {file.path.resolve() for file in learned.files}
    predictions = []
    for file, row, is_none, thumbnail in zip(
        queries.files, rows, none, queries.thumbnails, strict=True
    ):
        is_new = file.path.resolve() not in support
        label, true = (
            classes[row.argmax()],
            file.label if file.label in classes and is_new else None,
        )
        rest = thumbnail, rejects and is_none
        predictions.append(Prediction(str(file.path), label, row.tolist(), true, *rest))
    return predictions


@dataclass(frozen=True)
class _Adapted:
    """A classifier after adaptation, its images, and its predictions."""

    classifier: FewShotClassifier
    learned: Photos
    queries: Photos
    predictions: Sequence[Prediction]

    def summary(self, notes: Sequence[str]) -> dict[str, Any]:
        """Return all results, as --json prints them."""
        clf, predictions = self.classifier, self.predictions
        names = [str(name) for name in clf.classes_]
        problems = [*self.learned.problems, *self.queries.problems]
        return {
            "num_steps": clf.num_steps_,
            "checkpoint": clf.checkpoint,
            "head": clf.head_,
            "head_reason": clf.head_reason_,
            "transductive": not clf.is_inductive,
            "classes": {
                name: {
                    "support": self.learned.labels.count(name),
                    "predicted": sum(p.shown == name for p in predictions),
                    "known": sum(p.true == name for p in predictions),
                    "right": sum(p.true == p.label == name for p in predictions),
                }
                for name in names
            },
            "num_none": sum(p.is_none for p in predictions),
            "estimated_accuracy": _estimate(clf),
            "calibration_error": clf.calibration_ and clf.calibration_.error,
            "num_known": sum(p.true is not None for p in predictions),
            "accuracies": self._accuracies(),
            "predictions": [
                {"file": p.file, "label": p.shown, "probability": p.probability, "true": p.true}
                for p in predictions
            ],
            "left_out": [str(problem) for problem in problems if problem.fatal],
            "notes": [*notes, *self._notes(names)],
        }

    def _notes(self, names: Sequence[str]) -> list[str]:
        """Return notes on classes and images that may surprise the user."""
        from alfa.report.predictions import is_formula

        text = lazy.photos.printable
        photos = self.learned, self.queries
        notes = []
        paths, query_paths = ({file.path.resolve() for file in each.files} for each in photos)
        if both := paths & query_paths:
            notes.append(
                f"{len(both):,} of the images to classify are also in the support set, so they do "
                "not count in the accuracy"
            )
        folders = {file.label for file in self.queries.files if file.label is not None}
        if others := sorted(folders - set(names)):
            notes.append(
                f"the folders {', '.join(map(text, others))} have the name of no class, so their "
                "images do not count in the accuracy"
            )
        notes += [str(problem) for each in photos for problem in each.problems if not problem.fatal]
        formula = "spreadsheets interpret the name of this class as a formula"
        return notes + [f"{text(name)}: {formula}" for name in names if is_formula(name)]

    def _accuracies(self) -> dict[str, float] | None:
        """Return the inductive and transductive accuracy on images of known class.

        Some models support only one of them.
        """
        known = [p for p in self.predictions if p.true is not None]
        if not known:
            return None
        modes = {True: "inductive", False: "transductive"}
        right = sum(not p.is_wrong for p in known)
        accuracies = {modes[self.classifier.is_inductive]: right / len(known)}
        other = copy.copy(self.classifier)
        other.set_params(transductive=not self.classifier.transductive)
        if other.is_inductive != self.classifier.is_inductive and len(self.predictions) > 1:
            # Some models cannot normalize a single image.
            with contextlib.suppress(ConfigError):
                accuracies[modes[other.is_inductive]] = self._num_right(other) / len(known)
        return dict(sorted(accuracies.items()))

    def _num_right(self, classifier: FewShotClassifier) -> int:
        """Classify all images in groups with another classifier, and count the correct ones."""
        total = len(self.predictions)
        num_groups = -(-total // _MAX_TOGETHER)
        right = 0
        for first in range(num_groups):
            # The images are sorted by class; a group takes every n-th one to contain all classes.
            group = list(range(first, total, num_groups))
            labels = map(str, classifier.predict(self.queries.pixels[group]))
            right += sum(self.predictions[n].true == x for n, x in zip(group, labels, strict=True))
        return right


def _estimate(classifier: FewShotClassifier) -> dict[str, Any] | None:
    """Return the estimated accuracy on new images; None without a cross-validation."""
    found = classifier.accuracy_
    return None if found is None else {**asdict(found), "text": str(found)}


def _command(run: Path, support: Path, predict: Sequence[Path], **options: Any) -> str:
    """Return the command line without options that have their default."""
    defaults = {"head": "trained", "num_steps": None, "checkpoint": "best", "on_problem": "stop"}
    given = {name: value for name, value in options.items() if value != defaults[name]}
    words = ["alfa", "adapt", str(run), "--support", str(support)]
    words += [word for path in predict for word in ("--predict", str(path))]
    words += [word for name, value in given.items() for word in (opts.flag(name), str(value))]
    return shlex.join(words)


def _write(
    out: Path, result: _Adapted, summary: dict[str, Any], *, run: Path, command: str
) -> dict[str, str]:
    from alfa.report.predictions import predictions_csv, render_predictions_page

    learned = result.learned
    support: dict[str, list[tuple[str, bytes]]] = {name: [] for name in summary["classes"]}
    for file, thumbnail in zip(learned.files, learned.thumbnails, strict=True):
        support[str(file.label)].append((str(file.path), thumbnail))
    facts = {
        "run": str(run),
        "support set": f"{len(learned.files):,} images of {len(support):,} classes",
    }
    if summary["estimated_accuracy"] is not None:
        facts["estimated accuracy on new images"] = summary["estimated_accuracy"]["text"]
    facts |= _accuracy_texts(summary)
    page = render_predictions_page(
        result.predictions,
        support=support,
        title=f"Predictions of {run.name}{_after(summary['num_steps'])}",
        facts=facts,
        notes=[*(f"skipped: {line}" for line in summary["left_out"]), *summary["notes"]],
        command=command,
    )
    contents = {"csv": predictions_csv(result.predictions, list(support)), "html": page}
    for kind, content in contents.items():
        # File names may not be valid text.
        write_atomic(out / f"predictions.{kind}", content.encode("utf-8", "backslashreplace"))
    return {kind: str(out / f"predictions.{kind}") for kind in contents}


def _accuracy_texts(summary: dict[str, Any]) -> dict[str, str]:
    """Return the accuracies on images of known class, by name; most models have only one."""
    from alfa.assessment import share_interval

    accuracies, known, texts = summary["accuracies"] or {}, summary["num_known"], {}
    for name, accuracy in accuracies.items():
        ends = share_interval(accuracy, known)
        low, high = math.floor(100 * ends[0]), math.ceil(100 * ends[1])
        label = f"{name} accuracy" if len(accuracies) > 1 else "accuracy"
        texts[label] = f"{100 * accuracy:.1f} %, between {low} and {high} %, on {known:,} images"
    return texts


def _after(num_steps: int) -> str:
    return f" after {num_steps} steps" if num_steps else ""


def _print(summary: dict[str, Any], files: dict[str, str]) -> None:
    known = summary["num_known"]
    headers, rows = ["class", "support", "predicted", *(["right"] if known else [])], []
    for name, counts in summary["classes"].items():
        right = [f"{counts['right']:,} of {counts['known']:,}"] if known else []
        cells = (f"{counts['support']:,}", f"{counts['predicted']:,}", *right)
        rows.append([lazy.photos.printable(name), *cells])
    print_table(headers, rows, wraps=("class",))
    typer.echo("")
    if known:
        for name, text in _accuracy_texts(summary).items():
            typer.echo(f"{name}: {text}")
    if summary["num_none"]:
        typer.echo(f"{summary['num_none']:,} unfamiliar images belong to none of these classes")
    if summary["estimated_accuracy"] is not None:
        typer.echo(f"estimated accuracy on new images: {summary['estimated_accuracy']['text']}")
    print_notes(summary)
    typer.echo(f"\nwritten: {files['html']}\nwritten: {files['csv']}")
