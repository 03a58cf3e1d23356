"""`alfa pretrain`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from alfa.cli import _options as opts
from alfa.cli import lazy
from alfa.cli.progress import meter
from alfa.cli.show import print_json
from alfa.cli.start import Computing
from alfa.cli.stopping import stoppable


def pretrain(
    target: Annotated[str, Argument(help="Dataset such as `cub`, or experiment (.toml).")],
    backbone: opts.Backbone = None,
    out: Annotated[Path | None, Option(help="Folder; defaults to `pretrained/TARGET`.")] = None,
    epochs: Annotated[int | None, Option(min=1, help="Passes over all images (10).")] = None,
    batch_size: Annotated[int | None, Option(min=2, help="Images per batch (64).")] = None,
    learning_rate: Annotated[float | None, Option(help="Initial learning rate (0.001).")] = None,
    augment: Annotated[bool, Option("--augment", help="Flip and shift images at random.")] = False,
    settings: opts.Set = None,
    seed: opts.Seed = None,
    device: opts.Device = "cpu",
    threads: opts.Threads = None,
    as_json: opts.Json = False,
) -> None:
    """Pretrain the backbone of an experiment to classify all training classes.

    Meta-training can start from the result. If the command is interrupted, run it again to resume.
    The [pretraining] section of the experiment sets all other options.

    Examples:

        alfa pretrain my.toml --out pretrained/birds --epochs 20
        alfa train my.toml --set model.weights=pretrained/birds/backbone.safetensors
        alfa pretrain cifar-fs --backbone resnet12
    """
    training = lazy.training
    overrides = opts.with_seed(settings, seed)
    config = lazy.config.compose(target, backbone=backbone, overrides=overrides)
    name = "-".join(filter(None, [Path(target).stem, backbone]))
    path = out or Path("pretrained") / name
    Computing(device, threads).set_up(config)
    given = {"num_epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate}
    chosen: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if augment:
        chosen["augment"] = True
    options = replace(config.pretraining or training.Pretraining(), **chosen)
    hint = "run the same command again to resume"
    with stoppable(quiet=as_json, hint=hint) as request, meter(path.name, quiet=as_json) as shown:

        def on_progress(done: int, total: int, epoch: training.Epoch | None) -> None:
            note = "" if epoch is None else _figures(epoch.loss, epoch.accuracy)
            shown.update("pretraining", done, total, unit="batches", note=note)

        result = training.pretrain_run(
            lazy.runs.Run.new(path, config),
            options=options,
            device=device,
            should_stop=request,
            on_progress=on_progress,
        )
    if as_json:
        print_json(result)
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
