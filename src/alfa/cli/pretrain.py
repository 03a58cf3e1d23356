"""`alfa pretrain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from alfa.cli._options import Backbone, Device, Json, Seed, Set, Threads, with_seed


def pretrain(
    target: Annotated[
        str, typer.Argument(help="A dataset such as `cub`, or an experiment, a .toml file.")
    ],
    backbone: Backbone = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder; by default `pretrained/` and TARGET.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over all images.")] = 10,
    batch_size: Annotated[int, typer.Option(min=2, help="Images of a step.")] = 64,
    learning_rate: Annotated[
        float, typer.Option(help="At the start; it falls to zero along half a cosine.")
    ] = 0.001,
    augment: Annotated[
        bool, typer.Option("--augment", help="Flip and move images at random.")
    ] = False,
    settings: Set = None,
    seed: Seed = None,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train the backbone of an experiment as an ordinary classifier of all training classes.

    A meta-learner can start from the result. If it was stopped, the same command resumes it.

    Examples:

        alfa pretrain my.toml --out pretrained/birds --epochs 20

        alfa train my.toml --set model.weights=pretrained/birds/backbone.safetensors

        alfa pretrain cifar-fs --backbone resnet12
    """
    from alfa import training
    from alfa.cli.progress import meter
    from alfa.cli.start import set_up
    from alfa.cli.stopping import stoppable
    from alfa.config import compose
    from alfa.runs import Run

    config = compose(target, backbone=backbone, overrides=with_seed(settings, seed))
    name = "-".join(filter(None, [Path(target).stem, backbone]))
    path = out or Path("pretrained") / name
    options = training.Pretraining(epochs, batch_size, learning_rate, augment)
    set_up(config, device=device, threads=threads)
    with stoppable(quiet=as_json) as request:
        try:
            with meter(path.name, quiet=as_json) as shown:

                def on_progress(done: int, total: int, epoch: training.Epoch | None) -> None:
                    note = "" if epoch is None else _figures(epoch.loss, epoch.accuracy)
                    shown.update("pretraining", done, total, unit="batches", note=note)

                result = training.pretrain_run(
                    Run.new(path, config),
                    options=options,
                    device=device,
                    should_stop=request,
                    on_progress=on_progress,
                )
        except KeyboardInterrupt:
            request.report("run the same command again to resume it")
            raise typer.Exit(request.exit_code) from None
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    typer.echo(
        f"{result['num_classes']:,} classes of {result['num_images']:,} images: "
        f"{_figures(result['loss'], result['accuracy'])}, {result['seconds']:.0f} s\n\n"
        f"written: {result['weights']}; start from it with `alfa train ... --set "
        f"model.weights={result['weights']}`"
    )


def _figures(loss: float, accuracy: float | None) -> str:
    held_out = "" if accuracy is None else f", accuracy {100 * accuracy:.2f} % on held-out images"
    return f"loss {loss:.3f}{held_out}"
