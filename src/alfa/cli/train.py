"""`alfa train`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change one setting, such as `outer.num_iterations=100`."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]
Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1, mps.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="CPU threads; by default one for perceptrons.")
]


def train(
    experiment: Annotated[
        str | None,
        typer.Argument(help="A .toml file, or a built-in experiment such as `sinusoid-alfa`."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder; by default `runs/` and the name.")
    ] = None,
    settings: Set = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Decides everything random.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="A run folder to go on with, to the same numbers.")
    ] = None,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train a meta-learner, and test its best model.

    Examples:

        alfa train sinusoid-alfa --out runs/alfa

        alfa train my.toml --set rule.name=sgd --set outer.num_iterations=10000 --seed 1

        alfa train --resume runs/alfa
    """
    from alfa.cli.progress import meter, show_training
    from alfa.cli.show import result_table
    from alfa.cli.start import set_up
    from alfa.config import load_experiment
    from alfa.errors import ConfigError
    from alfa.train import Run
    from alfa.train import train as run_training

    overrides = [*(settings or []), *([f"seed={seed}"] if seed is not None else [])]
    if resume is not None:
        if experiment is not None or out is not None:
            raise ConfigError(
                "--resume takes its experiment and folder from the run; leave EXPERIMENT and "
                "--out away."
            )
        Run(resume).experiment()
        config, path = load_experiment(Run(resume).config, overrides), resume
    elif experiment is None:
        raise ConfigError("name an EXPERIMENT to train, or a run to go on with by --resume.")
    else:
        config = load_experiment(experiment, overrides)
        path = out or Path("runs") / Path(experiment).stem
    set_up(config, device=device, threads=threads)
    try:
        with meter(path.name, quiet=as_json) as shown:
            result = run_training(
                config,
                path,
                resume=resume is not None,
                device=device,
                on_progress=show_training(shown, path.name),
            )
    except KeyboardInterrupt:
        typer.echo(f"alfa: stopped; go on with `alfa train --resume {path}`.", err=True)
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        result_table({path.name: result}, folder=path)
