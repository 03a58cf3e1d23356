"""`alfa pretrain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from alfa.cli.train import Device, Json, Set, Threads


def pretrain(
    experiment: Annotated[
        str, typer.Argument(help="A .toml file, or a built-in experiment such as `strokes-alfa`.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="A folder; by default `pretrained/` and the name.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="How often every image is seen.")] = 10,
    batch_size: Annotated[int, typer.Option(min=2, help="Images of a step.")] = 64,
    learning_rate: Annotated[
        float, typer.Option(help="At the start; it falls to zero along half a cosine.")
    ] = 0.001,
    augment: Annotated[
        bool, typer.Option("--augment", help="Flip and move images at random.")
    ] = False,
    settings: Set = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Decides everything random.")] = None,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train an experiment's backbone as an ordinary classifier of all training classes.

    A meta-learner then begins with it. What was stopped goes on where it was.

    Examples:

        alfa pretrain my.toml --out pretrained/birds --epochs 20

        alfa train my.toml --set model.weights=pretrained/birds/backbone.safetensors
    """
    from alfa.cli.progress import meter
    from alfa.cli.start import set_up
    from alfa.cli.stopping import stoppable
    from alfa.config import load_experiment
    from alfa.train import Epoch, Pretraining
    from alfa.train import pretrain as run_pretraining

    overrides = [*(settings or []), *([f"seed={seed}"] if seed is not None else [])]
    config = load_experiment(experiment, overrides)
    path = out or Path("pretrained") / Path(experiment).stem
    options = Pretraining(epochs, batch_size, learning_rate, augment)
    set_up(config, device=device, threads=threads)
    with stoppable(quiet=as_json) as wish:
        try:
            with meter(path.name, quiet=as_json) as shown:

                def on_progress(done: int, total: int, epoch: Epoch | None) -> None:
                    note = ""
                    if epoch is not None:
                        note = f"loss {epoch.loss:.3f}"
                        if epoch.accuracy is not None:
                            note += f", accuracy {100 * epoch.accuracy:.2f} % on images held out"
                    shown.update("pretraining", done, total, unit="batches", note=note)

                result = run_pretraining(
                    config,
                    path,
                    options=options,
                    device=device,
                    should_stop=wish,
                    on_progress=on_progress,
                )
        except KeyboardInterrupt:
            wish.tell("run the same command again to go on")
            raise typer.Exit(wish.code) from None
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    accuracy = result["accuracy"]
    held = "" if accuracy is None else f", accuracy {100 * accuracy:.2f} % on images held out"
    typer.echo(
        f"{result['num_classes']:,} classes of {result['num_images']:,} images: loss "
        f"{result['loss']:.3f}{held}, {result['seconds']:.0f} s\n\nwritten: {result['weights']}; "
        f"begin with it by `alfa train ... --set model.weights={result['weights']}`"
    )
