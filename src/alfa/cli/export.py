"""`alfa export`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alfa.cli.adapt import Checkpoint, Head, NumSteps, OnProblem, Support
from alfa.cli.train import Json, Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from alfa.data._pictures import Pictures


def export(
    run: Annotated[Path, typer.Argument(help="A run folder that `alfa train` made.")],
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
    from alfa.cli.adapt import check_options, input_shape, kept_warnings
    from alfa.cli.progress import meter, tell_unfinished
    from alfa.cli.start import set_up
    from alfa.data._pictures import check_classes, judge, read, support_in
    from alfa.errors import ConfigError
    from alfa.estimator import FewShotClassifier
    from alfa.export import check_installed, export_onnx
    from alfa.train import Run
    from alfa.train.files import check_writable

    check_options(head, checkpoint, on_problem)
    if to.suffix != ".onnx":
        raise ConfigError(f"--to is {to}, but must end in .onnx.")
    check_writable(to)
    check_installed()
    set_up(Run(run).experiment(), device="cpu", threads=threads)
    learned = read(support_in(support), shape=input_shape(run))
    judge(learned, on_problem=on_problem)
    check_classes(learned, support)
    classifier = FewShotClassifier(run, head=head, num_steps=num_steps, checkpoint=checkpoint)
    with kept_warnings() as told:
        classifier.fit(learned.pixels, learned.labels)
    with meter(run.name, quiet=as_json) as shown:
        tell_unfinished(shown, Run(run))
        exported = export_onnx(classifier, to, check_on=_own_sizes(learned, shown.update))
    summary = {
        **asdict(exported),
        "path": str(exported.path),
        "num_steps": classifier.num_steps_,
        "left_out": [str(problem) for problem in learned.problems if problem.fatal],
        "notes": [*told, *(str(problem) for problem in learned.problems if not problem.fatal)],
    }
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        _print(summary)


def _print(summary: dict[str, Any]) -> None:
    from alfa.cli.adapt import print_notes
    from alfa.data._pictures import plain

    num_channels, height, width = summary["input_shape"]
    classes, grey = summary["classes"], " in grey" if num_channels == 1 else ""
    typer.echo(
        f"{len(classes):,} classes: {', '.join(map(plain, classes))}\n"
        f"images of any size, brought to {height} x {width}{grey} inside\n"
        f"probabilities differ from torch's by {summary['max_difference']:.1e} at most, over "
        f"{summary['num_checked']:,} images"
    )
    print_notes(summary)
    megabytes = summary["num_bytes"] / 1e6
    typer.echo(f"\nwritten: {summary['path']} (opset {summary['opset']}, {megabytes:.2f} MB)")


def _own_sizes(learned: Pictures, update: Callable[..., None]) -> Iterator[Path]:
    """The support set once more, every image of its own size, and how far the check is."""
    total = len(learned.files)
    for number, file in enumerate(learned.files):
        yield file.path
        update("checking", number + 1, total, unit="images", passing=True)
