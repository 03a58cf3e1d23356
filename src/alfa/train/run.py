"""A run folder: what an experiment leaves behind.

config.toml                 the experiment, every option spelled out
signature.json              what a model must know of the tasks it was trained on
metrics.jsonl               one JSON object per validation
checkpoints/                last.safetensors and previous.safetensors, the newest state and the one
                            before it; best.safetensors; epoch-*.safetensors, which are tested
                            together
result.json                 the test, when training is complete
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import tomli_w
from pydantic import BaseModel, NonNegativeInt, TypeAdapter, ValidationError, model_validator

from alfa.build import build_tasks
from alfa.config import Experiment, load_experiment, to_dict
from alfa.data import Signature
from alfa.errors import BusyError, CheckpointError
from alfa.inner import MemoryPlan
from alfa.lock import try_lock
from alfa.train.best import Best, Epoch
from alfa.train.checkpoint import Checkpoint, load_newest
from alfa.train.files import named_errors, read_json, write_atomic, write_json
from alfa.types import PositiveFloat

# A file of ours that is not written to its end yet.
_LEFTOVER = re.compile(r"\..+\.(toml|json|jsonl|safetensors)\.\w{8}")
# How often, and after how many seconds, a lock is tried again.
_TRIES, _PAUSE = 5, 0.1


class Run:
    """One run folder.

    Args:
        path: the folder; it need not exist yet.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = path = Path(path)
        self.config = path / "config.toml"
        self.signature_file = path / "signature.json"
        self.metrics = path / "metrics.jsonl"
        self.result = path / "result.json"
        # Hidden, so that a folder with nothing else counts as empty.
        self.launch_file = path / ".launch.json"

    def checkpoint(self, name: str) -> Path:
        return self.path / "checkpoints" / f"{name}.safetensors"

    def member(self, iteration: int) -> Path:
        """One of the best models, which are tested together."""
        return self.checkpoint(f"epoch-{iteration:06d}")

    def keep_members(self, iterations: Sequence[int]) -> None:
        """Remove all other models that were once among the best."""
        wanted = {self.member(iteration) for iteration in iterations}
        for path in (self.path / "checkpoints").glob("epoch-*.safetensors"):
            if path not in wanted:
                path.unlink()

    def forget_models(self) -> None:
        """Remove the best models, which are those of a training that nobody can go on with."""
        self.keep_members([])
        self.checkpoint("best").unlink(missing_ok=True)

    def add_best_member(self, iteration: int, experiment: Experiment) -> None:
        """Count the best model among those that are tested together.

        A run that was to test it alone has not kept it as one of them.

        Args:
            iteration: of the best model.
            experiment: of this run.
        """
        if self.member(iteration).is_file() or not self.checkpoint("best").is_file():
            return
        best = self.load_checkpoint("best", experiment)
        if best.progress.get("iteration") == iteration:
            write_atomic(self.member(iteration), self.checkpoint("best").read_bytes())

    def kept_members(self, iterations: Sequence[int]) -> list[int]:
        """Those of the best models that are there, by their iterations."""
        return [number for number in sorted(iterations) if self.member(number).is_file()]

    def load_member(self, iteration: int, experiment: Experiment) -> Checkpoint:
        return Checkpoint.load(self.member(iteration), fingerprint=experiment.fingerprint())

    @property
    def exists(self) -> bool:
        return self.config.is_file()

    def check(self, *, resume: bool) -> None:
        """Make sure that a run can begin or go on here, without leaving a trace if not.

        Raises:
            CheckpointError: the folder holds something already, or no run to go on with.
        """
        if resume:
            if not self.exists:
                self.experiment()
            return
        if self.path.exists() and (not self.path.is_dir() or any(self._content())):
            hint = "continue it with --resume, or " if self.exists else ""
            raise CheckpointError(
                f"{self.path} is not empty; {hint}choose another folder with --out."
            )

    def create(self, experiment: Experiment, *, launch: str | None = None) -> None:
        """Begin a run.

        Args:
            experiment: what is run.
            launch: what the processes that begin it, and those that replace them, have in common.

        Raises:
            CheckpointError: the folder holds something already.
        """
        # Once more, as another process may have begun one in the meantime.
        self.check(resume=False)
        self.launch_file.unlink(missing_ok=True)
        if launch is not None:
            write_json(self.launch_file, {"launch": launch})
        self.write_config(experiment)

    def is_of(self, launch: str | None) -> bool:
        """Whether this is a run that a launch has begun."""
        return self.exists and (read_json(self.launch_file) or {}).get("launch") == launch

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from writing into the folder.

        Raises:
            BusyError: one of them is doing so.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("a") as file:
            # Who only looks whether it is busy has the lock for a moment, too.
            for _ in range(_TRIES):
                if try_lock(file):
                    yield
                    return
                time.sleep(_PAUSE)
            raise BusyError(
                f"{self.path} is in use by another process; wait until it has finished, or choose "
                "another folder."
            )

    @property
    def is_busy(self) -> bool:
        """Whether a process is writing into the folder."""
        try:
            with (self.path / ".lock").open() as file:
                return not try_lock(file)
        except OSError:
            # There is none, or nobody may write here.
            return False

    def _content(self) -> Iterator[Path]:
        # A crash can leave a hidden temporary file, which is no reason to refuse the folder.
        return (path for path in self.path.iterdir() if not path.name.startswith("."))

    def remove_leftovers(self) -> None:
        """Remove what was being written when an earlier process was killed."""
        for folder in (self.path, self.path / "checkpoints"):
            for path in folder.glob(".*"):
                if _LEFTOVER.fullmatch(path.name):
                    path.unlink()

    def write_config(self, experiment: Experiment) -> None:
        write_atomic(self.config, tomli_w.dumps(to_dict(experiment)).encode())

    def experiment(self) -> Experiment:
        """The experiment of this run.

        Raises:
            CheckpointError: the folder is not a run.
        """
        if not self.exists:
            if self.path.is_dir():
                missing = "has no config.toml"
            else:
                missing = "is a file" if self.path.exists() else "does not exist"
            raise CheckpointError(
                f"{self.path} is not a run: it {missing}; give a folder that "
                "`alfa train --out` made."
            )
        return load_experiment(self.config)

    def write_signature(self, signature: Signature) -> None:
        write_json(self.signature_file, asdict(signature))

    def signature(self, experiment: Experiment) -> Signature:
        """What a model must know of the tasks that it was trained on, which need not be there.

        Args:
            experiment: of this run.
        """
        if not self.signature_file.is_file():
            # Older runs have none.
            return build_tasks(experiment).signature()
        try:
            return TypeAdapter(Signature).validate_json(self.signature_file.read_bytes())
        except ValueError:
            raise CheckpointError(
                f"{self.signature_file} is damaged; remove it, and it is taken from the tasks of "
                "the run."
            ) from None

    def load_checkpoint(self, name: str, experiment: Experiment) -> Checkpoint:
        return Checkpoint.load(self.checkpoint(name), fingerprint=experiment.fingerprint())

    def load_for(self, which: str, experiment: Experiment) -> list[Checkpoint]:
        """The models that an evaluation takes.

        Args:
            which: ``"best"``, ``"last"``, or ``"ensemble"`` for those of the run's own test.
            experiment: of this run.
        """
        if which == "last" and (found := self.load_last(experiment)) is not None:
            return [found]
        if which != "ensemble":
            return [self.load_checkpoint(which, experiment)]
        last = self.load_last(experiment)
        best = Best() if last is None else Best.from_progress(last.progress)
        kept = self.kept_members(best.iterations[: experiment.test.ensemble])
        members = [self.load_member(number, experiment) for number in kept]
        return members or [self.load_checkpoint("best", experiment)]

    def save_last(self, checkpoint: Checkpoint) -> None:
        """Keep the newest state, and the one before it."""
        checkpoint.save(self.checkpoint("last"), previous=self.checkpoint("previous"))

    def load_last(self, experiment: Experiment) -> Checkpoint | None:
        """The newest state that is whole; None if none was kept yet.

        Raises:
            CheckpointError: there are some, but none of them can be used.
        """

        def load(path: Path) -> Checkpoint:
            found = Checkpoint.load(path, fingerprint=experiment.fingerprint())
            found.check_progress(_Kept)
            return found

        return load_newest([self.checkpoint("last"), self.checkpoint("previous")], load)

    def append_metrics(self, record: dict[str, Any]) -> None:
        with named_errors(self.metrics), self.metrics.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """The records so far; a line that a crash has cut off or damaged does not count."""
        try:
            lines = self.metrics.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        return [record for line in lines if (record := _record(line)) is not None]

    def rewind_metrics(self, iteration: int) -> None:
        """Forget the records after an iteration, which will be written again."""
        kept = [record for record in self.read_metrics() if record["iteration"] <= iteration]
        write_atomic(self.metrics, "".join(json.dumps(r) + "\n" for r in kept).encode())

    def set_result_aside(self) -> None:
        """Keep the result of a run that is trained further, under the name of its length."""
        if self.result.is_file():
            count = (read_json(self.result) or {}).get("num_iterations", "earlier")
            self.result.replace(self.path / f"result-{count}.json")

    def write_result(self, result: dict[str, Any]) -> None:
        write_json(self.result, result)

    def read_result(self) -> dict[str, Any] | None:
        """The result, if training is complete.

        Raises:
            CheckpointError: there is a file, but it is none of ours.
        """
        content = read_json(self.result)
        if content is None:
            return None
        try:
            checked = _Result.model_validate(content)
        except ValidationError:
            raise CheckpointError(
                f"{self.result} is damaged; remove it and go on with `alfa train --resume "
                f"{self.path}`, which writes it again."
            ) from None
        # Older results do not say everything.
        tests = {key: getattr(checked, key) for key in ("test", "ensemble")}
        told = {key: {**t.model_dump(), **content[key]} for key, t in tests.items() if t}
        others = {key: value for key, value in content.items() if key not in tests}
        return {**others, **told, "config": {**checked.config.model_dump(), **content["config"]}}


def _record(line: bytes) -> dict[str, Any] | None:
    """A line of the metrics; None if it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("iteration"), int):
        return None
    return record if all(map(_is_figure, record.values())) else None


def _is_figure(value: Any) -> bool:
    """Whether a value of a record is a number that can be calculated with, or none."""
    is_whole = isinstance(value, int) and abs(value) < 2**63
    return value is None or is_whole or isinstance(value, float)


class _Tested(BaseModel, strict=True):
    """What a result says of a test."""

    loss: float
    interval: float | None = None
    accuracy: float | None = None
    accuracy_interval: float | None = None
    num_tasks: int = 1
    num_models: int = 1


class _Config(BaseModel, strict=True):
    seed: int = 0


class _Result(BaseModel, strict=True):
    """What others rely upon in a result; the rest may be anything."""

    test: _Tested
    ensemble: _Tested | None = None
    best_iteration: int = 0
    val_loss: float | None = None
    num_iterations: NonNegativeInt
    num_meta_parameters: NonNegativeInt
    seconds: float
    config: _Config


class _Kept(BaseModel):
    """What a checkpoint says of how far the training is; older ones say less."""

    iteration: NonNegativeInt
    validated: int = -1
    skipped: NonNegativeInt = 0
    seconds: float
    window: list[float] = []
    stamps: list[str] = []
    best: list[Epoch] | None = None
    best_loss: float | None = None
    best_iteration: int | None = None
    memory: MemoryPlan | None = None
    memory_budget: PositiveFloat | None = None

    @model_validator(mode="after")
    def _knows_the_best(self) -> Self:
        if self.best is None and (self.best_loss is None or self.best_iteration is None):
            raise ValueError("best")
        return self
