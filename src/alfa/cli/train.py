"""`alfa train`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from alfa.config import Experiment

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
    or_resume: Annotated[
        bool, typer.Option("--or-resume", help="Go on if the folder has this run already.")
    ] = False,
    processes: Annotated[
        int, typer.Option(min=1, help="How many train it together on this machine.")
    ] = 1,
    max_restarts: Annotated[
        int, typer.Option(min=0, help="How often to go on after one of them has died.")
    ] = 0,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train a meta-learner, and test its best model.

    On several machines, start it by `torchrun ... -m alfa train ...` on each.

    Examples:

        alfa train sinusoid-alfa --out runs/alfa

        alfa train my.toml --set rule.name=sgd --set outer.num_iterations=10000 --seed 1

        alfa train --resume runs/alfa

        alfa train cifar-fs-alfa --processes 2 --max-restarts 3
    """
    from alfa.config import load_experiment
    from alfa.errors import ConfigError
    from alfa.train import Run, is_one_of_many

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
    if or_resume and Run(path).exists:
        resume = path
    if processes == 1 and max_restarts == 0:
        _train(config, path, resume is not None, device, threads, as_json)
        return
    if is_one_of_many():
        raise ConfigError("--processes is for one machine alone; leave it to torchrun here.")
    # Before anything is started: what is wrong is then said once.
    Run(path).check(resume=resume is not None)
    from alfa.cli.launch import launch

    launch(
        _words(experiment, path, overrides, resume, device, threads, as_json),
        count=processes,
        max_restarts=max_restarts,
        hint=f"go on with `alfa train --resume {path}`",
    )


def _words(
    experiment: str | None,
    path: Path,
    overrides: list[str],
    resume: Path | None,
    device: str,
    threads: int | None,
    as_json: bool,
) -> list[str]:
    """What one of several processes is called with."""
    which = ["--resume", str(path)] if resume is not None else [str(experiment), "--out", str(path)]
    words = ["train", *which, *(word for change in overrides for word in ("--set", change))]
    words += ["--device", device, *([] if threads is None else ["--threads", str(threads)])]
    return [*words, *(["--json"] if as_json else [])]


def _train(
    config: Experiment,
    path: Path,
    resume: bool,
    device: str,
    threads: int | None,
    as_json: bool,
) -> None:
    from alfa.cli.progress import meter, show_training
    from alfa.cli.show import result_table
    from alfa.cli.start import set_up
    from alfa.cli.stopping import stoppable
    from alfa.errors import AlfaError
    from alfa.train import Run, joined
    from alfa.train import train as run_training

    with joined(device) as (others, own_device):
        quiet = as_json or not others.is_first
        with stoppable(quiet=quiet) as wish:
            try:
                others.together(lambda: set_up(config, device=own_device, threads=threads))
                # One that was started anew goes on, whatever it was called with.
                began = resume or (_is_restarted() and others.from_first(lambda: Run(path).exists))
                with meter(path.name, quiet=quiet) as shown:
                    result = run_training(
                        config,
                        path,
                        resume=began,
                        device=own_device,
                        processes=others,
                        should_stop=wish,
                        on_progress=show_training(shown, path.name),
                    )
            except KeyboardInterrupt:
                if others.is_first:
                    wish.tell(f"go on with `alfa train --resume {path}`")
                raise typer.Exit(wish.code) from None
            except (AlfaError, OSError):
                # The first one speaks for all.
                if others.is_first:
                    raise
                raise typer.Exit(2) from None
    if not others.is_first:
        return
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        result_table({path.name: result}, folder=path)


def _is_restarted() -> bool:
    """Whether torch has started this process again, after it or another one has died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0
