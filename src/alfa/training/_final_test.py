"""The final test of a training."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from alfa.data import Split
from alfa.errors import DivergedError
from alfa.evaluation import ADVICE, Evaluation, difference
from alfa.learner import Learner
from alfa.runs import Checkpoint, load_best
from alfa.training._consistency import versions

if TYPE_CHECKING:
    from alfa.training._loop import TrainingLoop


@dataclass(eq=False)
class FinalTest:
    """The test of the best models of a training loop."""

    loop: TrainingLoop

    def run(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Test the best model in validation and the ensemble, and write the result."""
        loop = self.loop
        run, state, plan = loop.run, loop.state, loop.step.plan
        if not state.best:
            raise DivergedError(
                f"no validation of {run.path} was finite, so there is no best model to test; "
                f"{ADVICE}"
            )
        first, processes = state.best[0], loop.processes
        best = loop.from_first(lambda: load_best(run, iteration=first.iteration))
        tested = self._evaluate("testing the best model", [best])
        results: dict[str, Any] = {"test": tested.as_dict()}
        if loop.trainer.validate_start:
            results |= self._compare_with_start(best, tested)
        wanted = state.best_iterations[: loop.trainer.ensemble]
        saved = processes.from_first(lambda: run.files.members(wanted))
        members = [loop.from_first(partial(run.load_member, number)) for number in saved]
        if len(members) > 1:
            ensemble = self._evaluate(f"testing {len(members)} models", members)
            results["ensemble"] = {**ensemble.as_dict(), "iterations": saved}
        result = {
            **results,
            "best_iteration": first.iteration,
            "val_loss": first.loss,
            **({} if first.accuracy is None else {"val_accuracy": first.accuracy}),
            **({} if first.metric is None else {"val_metric": first.metric}),
            "num_iterations": state.iteration,
            "skipped": state.skipped,
            "num_meta_parameters": sum(p.numel() for p in loop.step.parameters),
            "seconds": round(state.seconds, 2),
            "engine": {
                "memory": None if plan is None else plan.mode,
                "tasks_at_once": None if plan is None else plan.tasks_at_once,
                "processes": processes.count,
            },
            "versions": {**versions(), "python": platform.python_version()},
            "config": run.config(),
            **extra,
        }
        processes.from_first(lambda: run.files.write_result(result))
        return result

    def _compare_with_start(self, best: Checkpoint, tested: Evaluation) -> dict[str, Any]:
        """Test the untrained learner, too; return its test and the gains of the best model.

        A gain is positive if the best model is better. The best model was selected on the tasks of
        the gain in validation, but not on those of the gain in test.
        """
        start = self.loop.from_first(lambda: self.loop.run.load_checkpoint("start"))
        start_tested = self._evaluate("testing the start", [start])
        validated = self._evaluate("validating the best model", [best], split="val")
        start_validated = self._evaluate("validating the start", [start], split="val")
        gains = {}
        for split, pair in (
            ("val", (validated, start_validated)),
            ("test", (tested, start_tested)),
        ):
            better, other = pair if tested.figure.larger_is_better else pair[::-1]
            gain = difference(better, other)
            gains[split] = {**asdict(gain), "is_decided": gain.is_decided}
        return {"start": start_tested.as_dict(), "gain": gains}

    def _evaluate(
        self, what: str, members: list[Checkpoint], *, split: Split = "test"
    ) -> Evaluation:
        """Evaluate the models of some checkpoints on the tasks of a split."""
        loop = self.loop
        is_test = split == "test"
        num_tasks = loop.trainer.num_test_tasks if is_test else loop.trainer.num_val_tasks

        def learners() -> Iterator[Learner]:
            for member in members:
                member.restore(loop.learner)
                yield loop.learner

        report = partial(loop.report_work, what, num_tasks * len(members))
        return loop.evaluate(learners(), num_tasks=num_tasks, split=split, on_tasks=report)
