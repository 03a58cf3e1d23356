"""Train in this process, or together with other processes, and print the results."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import typer

from alfa.cli import lazy
from alfa.cli.progress import meter, show_training
from alfa.cli.show import print_json, print_results, seeds_text
from alfa.cli.start import Computing
from alfa.cli.stopping import exit_code, stoppable
from alfa.errors import AlfaError, ConfigError


def check_free(path: Path, *, or_resume: bool) -> None:
    """Raise unless a run can start in a folder, or be resumed."""
    files = lazy.runs.RunFiles(path)
    if not (or_resume and files.exists):
        files.check_empty()


def train_and_print(
    config: lazy.config.Experiment, path: Path, computing: Computing, *, or_resume: bool
) -> None:
    """Train one run; the first process prints the result."""
    hint = f"resume it with `alfa train --resume {path}`"
    result = _train(config, path, computing, or_resume=or_resume, hint=hint)
    if result is not None and computing.as_json:
        print_json(result)
    elif result is not None:
        print_results({path.name: result}, folder=path)


def train_seeds(
    config: lazy.config.Experiment,
    path: Path,
    num_seeds: int,
    computing: Computing,
    *,
    or_resume: bool,
) -> None:
    """Train a run for each of several seeds, and print their results and statistics."""
    if lazy.runs.RunFiles(path).exists:
        raise ConfigError(f"{path} is a run; choose another folder for --seeds with --out.")
    seeds = range(config.seed, config.seed + num_seeds)
    configs = {path / f"seed-{s}": config.model_copy(update={"seed": s}) for s in seeds}
    complete = {folder: _complete_result(own, folder) for folder, own in configs.items()}
    for folder, result in complete.items():
        if result is None:
            check_free(folder, or_resume=or_resume)
    hint = "run the same command with --or-resume to continue"
    results: dict[str, dict[str, Any]] = {}
    for folder, own in configs.items():
        result = complete[folder]
        if result is None:
            result = _train(own, folder, computing, or_resume=or_resume, hint=hint)
            assert result is not None, "--seeds uses one process"
        else:
            with meter(folder.name, quiet=computing.as_json) as shown:
                shown.print("already complete")
        results[folder.name] = result
    tests = [result["test"] for result in results.values()]
    figure = "loss" if tests[0]["accuracy"] is None else "accuracy"
    statistics = lazy.evaluation.seed_statistics([test[figure] for test in tests])
    if computing.as_json:
        print_json({"runs": results, "seeds": asdict(statistics)})
        return
    print_results(results, folder=path)
    text = seeds_text(statistics, is_accuracy=figure == "accuracy")
    typer.echo(f"\nover {num_seeds} seeds: {figure} {text} (95 % interval of the mean)")


def _complete_result(config: lazy.config.Experiment, path: Path) -> dict[str, Any] | None:
    """Return the result of a complete run of this experiment, if there is one."""
    if not lazy.runs.RunFiles(path).exists:
        return None
    run = lazy.runs.Run.open(path)
    if run.fingerprint != config.fingerprint() or run.result is None:
        return None
    return run.result if run.result["num_iterations"] == config.outer.num_iterations else None


def _train(
    config: lazy.config.Experiment, path: Path, computing: Computing, *, or_resume: bool, hint: str
) -> dict[str, Any] | None:
    """Train a run; return its result in the first process, and None in the others."""
    with lazy._distributed.joined(computing.device) as (processes, device):
        quiet = computing.as_json or not processes.is_first
        with stoppable(quiet=quiet) as request:
            try:
                processes.together(lambda: replace(computing, device=device).set_up(config))
                with meter(path.name, quiet=quiet) as shown:
                    result = lazy.training.train_run(
                        lazy.runs.Run.new(path, config),
                        resume=must_resume(path, processes, or_resume=or_resume),
                        device=device,
                        processes=processes,
                        should_stop=request,
                        on_progress=show_training(shown, path.name),
                    )
            except KeyboardInterrupt:
                if processes.is_first:
                    request.report(hint)
                raise typer.Exit(request.exit_code) from None
            except (AlfaError, OSError) as error:
                # The first process reports the error for all.
                if processes.is_first:
                    raise
                raise typer.Exit(exit_code(error)) from None
    return result if processes.is_first else None


def must_resume(path: Path, processes: lazy._distributed.Processes, *, or_resume: bool) -> bool:
    """Return True if the run exists, and these processes must resume it.

    Restarted processes resume it regardless of their arguments. The machines of one launch may
    disagree on the number of restarts, and only the first process needs the folder.
    """
    files, name = lazy.runs.RunFiles(path), lazy._distributed.launch_name()
    may_be_restarted = processes.any(lazy._distributed.is_restarted()) or name is not None
    return processes.from_first(
        lambda: files.exists and (or_resume or (may_be_restarted and files.belongs_to(name)))
    )
