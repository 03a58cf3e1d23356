"""`alfa export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alfa.cli._options import Checkpoint, Head, Json, NumSteps, OnProblem, Support, TheRun, Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from alfa.data.photos import Photos


def export(
    run: TheRun,
    support: Support,
    to: Annotated[Path, typer.Option(help="The file; ends in .onnx, and is replaced.")],
    head: Head = "trained",
    num_steps: NumSteps = None,
    checkpoint: Checkpoint = "best",
    on_problem: OnProblem = "stop",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Adapt a trained run to a few images of your own classes, and write the model as ONNX.

    The file runs wherever ONNX does, without torch or alfa. It takes `images`, uint8 [batch,
    height, width, channel], of any size, in grey or in colours, and gives `probabilities`, float32
    [batch, class]; the labels are in its metadata. It is compared with torch before it is written.
    Needs `pip install 'alfa[export]'`.

    Examples:

        alfa export runs/strokes-demo --support letters --to letters.onnx

        alfa export runs/cifar --support pets --to pets.onnx --head zero --checkpoint ensemble

    In Python, with nothing but numpy, Pillow and onnxruntime:

        import json, numpy, onnxruntime, PIL.Image
        model = onnxruntime.InferenceSession("letters.onnx")
        names = json.loads(model.get_modelmeta().custom_metadata_map["classes"])
        image = numpy.asarray(PIL.Image.open("scan.png").convert("RGB"))
        print(names[model.run(None, {"images": image[None]})[0][0].argmax()])
    """
    from alfa._io import check_writable
    from alfa.cli._adapting import fit_and_collect_warnings
    from alfa.cli._options import check_choices
    from alfa.cli.progress import meter, tell_unfinished
    from alfa.cli.start import set_up
    from alfa.data.photos import (
        check_num_classes,
        check_photos,
        list_support_photos,
        load_photos,
    )
    from alfa.errors import ConfigError
    from alfa.estimator import FewShotClassifier, check_normalized
    from alfa.export import check_installed, export_onnx
    from alfa.runs import Run

    check_choices(head=head, checkpoint=checkpoint, on_problem=on_problem)
    if to.suffix != ".onnx":
        raise ConfigError(f"--to is {to}, but must end in .onnx.")
    check_writable(to)
    check_installed()
    opened = Run.open(run)
    set_up(opened.experiment, device="cpu", threads=threads)
    check_normalized(opened.signature, run)
    learned = load_photos(list_support_photos(support), shape=opened.signature.input_shape)
    check_photos(learned, on_problem=on_problem)
    check_num_classes(learned, support)
    classifier = FewShotClassifier(run, head=head, num_steps=num_steps, checkpoint=checkpoint)
    notes = fit_and_collect_warnings(classifier, learned)
    with meter(run.name, quiet=as_json) as shown:
        tell_unfinished(shown, opened)
        exported = export_onnx(classifier, to, check_on=_paths(learned, shown.update))
    summary = {
        "path": str(to),
        "opset": exported.opset,
        "classes": exported.classes,
        "input_shape": exported.input_shape,
        "num_bytes": len(exported.content),
        "num_checked": exported.num_checked,
        "max_difference": exported.max_difference,
        "num_steps": classifier.num_steps_,
        "left_out": [str(problem) for problem in learned.problems if problem.fatal],
        "notes": [*notes, *(str(problem) for problem in learned.problems if not problem.fatal)],
    }
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        _print(summary)


def _print(summary: dict[str, Any]) -> None:
    from alfa.cli._adapting import print_notes
    from alfa.data.photos import printable

    num_channels, height, width = summary["input_shape"]
    classes, grey = summary["classes"], " in grey" if num_channels == 1 else ""
    typer.echo(
        f"{len(classes):,} classes: {', '.join(map(printable, classes))}\n"
        f"images of any size, brought to {height} x {width}{grey} inside\n"
        f"probabilities differ from torch's by {summary['max_difference']:.1e} at most, over "
        f"{summary['num_checked']:,} images"
    )
    print_notes(summary)
    megabytes = summary["num_bytes"] / 1e6
    typer.echo(f"\nwritten: {summary['path']} (opset {summary['opset']}, {megabytes:.2f} MB)")


def _paths(learned: Photos, update: Callable[..., None]) -> Iterator[Path]:
    """The files of the support set, which are checked in their original sizes."""
    total = len(learned.files)
    for number, file in enumerate(learned.files):
        yield file.path
        update("checking", number + 1, total, unit="images", transient=True)
