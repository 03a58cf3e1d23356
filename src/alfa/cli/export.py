"""`alfa export`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from alfa._io import check_writable
from alfa.cli import _options as opts
from alfa.cli import lazy
from alfa.cli._adapting import check_and_fit, print_notes
from alfa.cli.progress import Meter, meter, report_unfinished
from alfa.cli.show import print_json
from alfa.cli.start import Computing
from alfa.errors import ConfigError


def export(
    support: opts.Support,
    to: Annotated[Path, Option(help="Output file (.onnx); an existing one is replaced.")],
    run: opts.PhotoModel = Path("photos"),
    head: opts.Head = "trained",
    num_steps: opts.NumSteps = None,
    checkpoint: opts.Checkpoint = "best",
    on_problem: opts.OnProblem = "stop",
    threads: opts.Threads = None,
    as_json: opts.Json = False,
) -> None:
    """Adapt a trained run to a few images of your own classes, and export the model to ONNX.

    The file runs with any ONNX runtime, without torch or alfa. Its input is `images`, uint8 [batch,
    height, width, channel], of any size, grayscale or color. Its outputs are `probabilities`,
    float32 [batch, class], calibrated, and `familiarity`, float32 [batch]; an image of lower
    familiarity than the `threshold` of the metadata belongs to none of the classes. The metadata
    also contains the labels. Before writing the file, alfa compares its outputs with torch's.
    Requires `pip install 'alfa[export]'`.

    Examples:

        alfa export --support pets --to pets.onnx
        alfa export runs/strokes-demo --support letters --to letters.onnx
        alfa export runs/cifar --support pets --to pets.onnx --head zero --checkpoint ensemble

    In Python, with only numpy, Pillow, and onnxruntime:

        import json, numpy, onnxruntime, PIL.Image
        model = onnxruntime.InferenceSession("letters.onnx")
        names = json.loads(model.get_modelmeta().custom_metadata_map["classes"])
        image = numpy.asarray(PIL.Image.open("scan.png").convert("RGB"))
        print(names[model.run(None, {"images": image[None]})[0][0].argmax()])
    """
    opts.check_choices(head=head, checkpoint=checkpoint, on_problem=on_problem)
    if to.suffix != ".onnx":
        raise ConfigError(f"--to must end in .onnx, got {to}.")
    check_writable(to)
    lazy.export.check_installed()
    opened = Computing(threads=threads).open_run(run)
    image_format = lazy.estimator.check_images(opened.signature, run)
    listed = lazy.photos.list_support_photos(support)
    learned = lazy.photos.load_photos(listed, image_format=image_format)
    classifier = lazy.estimator.FewShotClassifier(
        run, head=head, num_steps=num_steps, checkpoint=checkpoint
    )
    notes = check_and_fit(classifier, learned, folder=support, on_problem=on_problem)
    with meter(run.name, quiet=as_json) as shown:
        report_unfinished(shown, opened)
        exported = lazy.export.export_onnx(classifier, to, check_on=_paths(learned, shown))
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
        print_json(summary)
    else:
        _print(summary)


def _print(summary: dict[str, Any]) -> None:
    num_channels, height, width = summary["input_shape"]
    classes, gray = summary["classes"], " in grayscale" if num_channels == 1 else ""
    typer.echo(
        f"{len(classes):,} classes: {', '.join(map(lazy.photos.printable, classes))}\n"
        f"input images have any size; the model resizes them to {height} x {width}{gray}\n"
        f"maximum difference from torch's probabilities: {summary['max_difference']:.1e} over "
        f"{summary['num_checked']:,} images"
    )
    print_notes(summary)
    megabytes = summary["num_bytes"] / 1e6
    typer.echo(f"\nwritten: {summary['path']} (opset {summary['opset']}, {megabytes:.2f} MB)")


def _paths(learned: lazy.photos.Photos, shown: Meter) -> Iterator[Path]:
    """Yield the files of the support set, in whose original sizes the model is checked."""
    for number, file in enumerate(learned.files, start=1):
        yield file.path
        shown.update("checking", number, len(learned.files), unit="images", transient=True)
