"""Training in this process and those that were started with it, and printing the results."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from alfa import training
from alfa._distributed import Processes, is_restarted, joined, launch_name
from alfa.cli._groups import seed_folder
from alfa.cli.progress import meter, show_training
from alfa.cli.show import result_table, seeds_text
from alfa.cli.start import set_up
from alfa.cli.stopping import exit_code, stoppable
from alfa.config import Experiment
from alfa.errors import AlfaError, ConfigError
from alfa.evaluation import seed_statistics
from alfa.runs import Run, RunFiles


@dataclass(frozen=True)
class Computing:
    """The options of a command about where to compute, and what to print."""

    device: str
    threads: int | None
    as_json: bool

    @property
    def words(self) -> list[str]:
        """The same options as arguments."""
        threads = [] if self.threads is None else ["--threads", str(self.threads)]
        return ["--device", self.device, *threads, *(["--json"] if self.as_json else [])]


def train_and_print(
    config: Experiment, path: Path, computing: Computing, *, or_resume: bool
) -> None:
    """Train one run; the first process prints the result."""
    hint = f"resume it with `alfa train --resume {path}`"
    result = _train(config, path, computing, or_resume=or_resume, hint=hint)
    if result is None:
        return
    if computing.as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        result_table({path.name: result}, folder=path)


def train_seeds(
    config: Experiment, path: Path, num_seeds: int, computing: Computing, *, or_resume: bool
) -> None:
    """Train a run for each of several seeds, and print their results and statistics."""
    if RunFiles(path).exists:
        raise ConfigError(f"{path} is a run; choose another folder for --seeds with --out.")
    seeds = range(config.seed, config.seed + num_seeds)
    configs = {seed_folder(path, s): config.model_copy(update={"seed": s}) for s in seeds}
    complete = {folder: _complete_result(own, folder) for folder, own in configs.items()}
    for folder, result in complete.items():
        if result is None and not (or_resume and RunFiles(folder).exists):
            RunFiles(folder).check_empty()
    hint = "run the same command with --or-resume to continue"
    results: dict[str, dict[str, Any]] = {}
    for folder, own in configs.items():
        if (result := complete[folder]) is not None:
            with meter(folder.name, quiet=computing.as_json) as shown:
                shown.tell("already complete")
        else:
            result = _train(own, folder, computing, or_resume=or_resume, hint=hint)
        assert result is not None, "--seeds is for one process"
        results[folder.name] = result
    tests = [result["test"] for result in results.values()]
    figure = "loss" if tests[0]["accuracy"] is None else "accuracy"
    statistics = seed_statistics([test[figure] for test in tests])
    if computing.as_json:
        typer.echo(json.dumps({"runs": results, "seeds": asdict(statistics)}, indent=2))
        return
    result_table(results, folder=path)
    text = seeds_text(statistics, is_accuracy=figure == "accuracy")
    typer.echo(f"\nover {num_seeds} seeds: {figure} {text} (95 % interval of the mean)")


def _complete_result(config: Experiment, path: Path) -> dict[str, Any] | None:
    """The result of a run of this experiment; None if it is not complete."""
    if not RunFiles(path).exists:
        return None
    run = Run.open(path)
    if run.fingerprint != config.fingerprint() or run.result is None:
        return None
    return run.result if run.result["num_iterations"] == config.outer.num_iterations else None


def _train(
    config: Experiment, path: Path, computing: Computing, *, or_resume: bool, hint: str
) -> dict[str, Any] | None:
    """Train a run; returns its result, but None in all processes other than the first."""
    with joined(computing.device) as (others, device):
        quiet = computing.as_json or not others.is_first
        with stoppable(quiet=quiet) as request:
            try:
                others.together(lambda: set_up(config, device=device, threads=computing.threads))
                with meter(path.name, quiet=quiet) as shown:
                    result = training.train_run(
                        Run.new(path, config),
                        resume=has_begun(path, others, or_resume=or_resume),
                        device=device,
                        processes=others,
                        should_stop=request,
                        on_progress=show_training(shown, path.name),
                    )
            except KeyboardInterrupt:
                if others.is_first:
                    request.report(hint)
                raise typer.Exit(request.exit_code) from None
            except (AlfaError, OSError) as error:
                # The first process reports the error for all.
                if others.is_first:
                    raise
                raise typer.Exit(exit_code(error)) from None
    return result if others.is_first else None


def has_begun(path: Path, others: Processes, *, or_resume: bool) -> bool:
    """Whether the run exists, and these processes are to resume it.

    Restarted processes resume it, whatever their arguments. The machines of one launch may
    disagree on the number of restarts, and only the first process needs the folder.
    """
    files, name = RunFiles(path), launch_name()
    is_again = others.any(is_restarted()) or name is not None

    def resumes() -> bool:
        return files.exists and (or_resume or (is_again and files.belongs_to(name)))

    return others.from_first(resumes)
