"""The files of a run folder.

config.toml                 the experiment with all options
signature.json              properties of the training tasks that the model depends on
metrics.jsonl               one JSON object per validation
checkpoints/                last.safetensors and previous.safetensors, the two newest states;
                            best.safetensors; epoch-*.safetensors, the models of the ensemble;
                            start.safetensors, the untrained learner, if it was validated
pretraining/                the state and the weights of the pretrained backbone, if any
result.json                 the test, when training is complete
plugins.json, plugins/      the hashes and the sources of the run's plugins, if it has any
"""

import json
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, NonNegativeInt, ValidationError

from alfa._io import is_locked, locked, named_errors, read_json, write_atomic, write_json
from alfa.errors import BusyError, CheckpointError
from alfa.runs._zoo import model_names

# A temporary file of a killed process.
_LEFTOVER = re.compile(r"\..+\.(toml|json|jsonl|safetensors|py)\.\w{8}")
# Seconds to wait for a lock, because `is_busy` of another process holds it briefly.
_PATIENCE = 0.5


class RunFiles:
    """The layout and the files of one run folder, which need not exist yet."""

    def __init__(self, path: Path | str) -> None:
        self.path = path = Path(path)
        self.config = path / "config.toml"
        self.signature = path / "signature.json"
        self.metrics = path / "metrics.jsonl"
        self.result = path / "result.json"
        self.plugin_hashes = path / "plugins.json"
        self.plugins = path / "plugins"
        self.pretraining = path / "pretraining"
        self.backbone = self.pretraining / "backbone.safetensors"
        # A hidden file, so that a folder with nothing else counts as empty.
        self.launch = path / ".launch.json"

    def checkpoint(self, name: str) -> Path:
        return self.path / "checkpoints" / f"{name}.safetensors"

    def member(self, iteration: int) -> Path:
        """Return the path of an ensemble member."""
        return self.checkpoint(f"epoch-{iteration:06d}")

    def members(self, iterations: Sequence[int]) -> list[int]:
        """Return the iterations whose ensemble members exist, sorted."""
        return [number for number in sorted(iterations) if self.member(number).is_file()]

    def remove_other_members(self, iterations: Sequence[int]) -> None:
        """Remove the ensemble members of all iterations except for the given ones."""
        wanted = {self.member(iteration) for iteration in iterations}
        for path in (self.path / "checkpoints").glob("epoch-*.safetensors"):
            if path not in wanted:
                path.unlink()

    def remove_leftovers(self) -> None:
        """Remove the temporary files of a killed process."""
        for folder in (self.path, self.path / "checkpoints", self.plugins):
            for path in folder.glob(".*"):
                if _LEFTOVER.fullmatch(path.name):
                    path.unlink()

    @property
    def exists(self) -> bool:
        return self.config.is_file()

    def check_empty(self) -> None:
        """Raise a CheckpointError unless a new run can use the folder."""
        # A crash can leave hidden temporary files, which do not matter.
        if not self.path.is_dir():
            is_free = not self.path.exists()
        else:
            is_free = all(path.name.startswith(".") for path in self.path.iterdir())
        if not is_free:
            hint = "continue it with --resume, or " if self.exists else ""
            raise CheckpointError(
                f"{self.path} is not empty; {hint}choose another folder with --out."
            )

    def check_exists(self) -> None:
        """Raise a CheckpointError unless the folder is a run."""
        if self.exists:
            return
        problem = "is a file" if self.path.exists() else "does not exist"
        if self.path.is_dir():
            problem = "has no config.toml"
        raise CheckpointError(
            f"{self.path} is not a run: it {problem}; give a folder that `alfa train --out` made, "
            f"or a pretrained model: {', '.join(model_names())}."
        )

    def belongs_to(self, launch: str | None) -> bool:
        """Return True if the processes of this launch began the run."""
        return self.exists and (read_json(self.launch) or {}).get("launch") == launch

    def write_launch(self, launch: str | None) -> None:
        self.launch.unlink(missing_ok=True)
        if launch is not None:
            write_json(self.launch, {"launch": launch})

    def lock(self) -> AbstractContextManager[None]:
        """Lock the folder against writes, or raise a BusyError if another process did so."""
        busy = BusyError(
            f"{self.path} is in use by another process; wait until it has finished, or choose "
            "another folder."
        )
        return locked(self.path / ".lock", busy=busy, timeout=_PATIENCE, remove=False)

    @property
    def is_busy(self) -> bool:
        """Whether a process is writing into the folder."""
        return is_locked(self.path / ".lock")

    def append_metrics(self, record: dict[str, Any]) -> None:
        with named_errors(self.metrics), self.metrics.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Read all records; truncated and damaged lines are skipped."""
        try:
            lines = self.metrics.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        return [record for line in lines if (record := _parse_record(line)) is not None]

    def write_metrics(self, records: Sequence[dict[str, Any]]) -> None:
        write_atomic(self.metrics, "".join(json.dumps(r) + "\n" for r in records).encode())

    def rewind_metrics(self, iteration: int) -> None:
        """Remove the records after an iteration."""
        self.write_metrics([r for r in self.read_metrics() if r["iteration"] <= iteration])

    def set_result_aside(self) -> None:
        """Rename the result of a run that is trained further, by its number of iterations."""
        if self.result.is_file():
            count = (read_json(self.result) or {}).get("num_iterations", "earlier")
            self.result.replace(self.path / f"result-{count}.json")

    def write_result(self, result: dict[str, Any]) -> None:
        write_json(self.result, result)

    def read_result(self) -> dict[str, Any] | None:
        """Read the result; return None if training is not complete."""
        content = read_json(self.result)
        if content is None:
            return None
        try:
            _Result.model_validate(content)
        except ValidationError:
            raise CheckpointError(
                f"{self.result} is damaged; remove it and run `alfa train --resume {self.path}`, "
                "which writes it again."
            ) from None
        return content


def _parse_record(line: bytes) -> dict[str, Any] | None:
    """Parse a record of the metrics; return None if the line is damaged."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("iteration"), int):
        return None
    return record if all(map(_is_number, record.values())) else None


def _is_number(value: Any) -> bool:
    is_integer = isinstance(value, int) and abs(value) < 2**63
    return value is None or is_integer or isinstance(value, float)


class _Test(BaseModel, strict=True):
    loss: float
    interval: float | None
    accuracy: float | None
    accuracy_interval: float | None
    metric: float | None = None
    metric_interval: float | None = None
    metric_name: str | None = None
    num_tasks: int
    num_models: int


class _Config(BaseModel, strict=True):
    seed: int


class _Result(BaseModel, strict=True):
    """The part of ``result.json`` that readers rely on."""

    test: _Test
    ensemble: _Test | None = None
    best_iteration: int
    val_loss: float | None
    num_iterations: NonNegativeInt
    num_meta_parameters: NonNegativeInt
    seconds: float
    config: _Config
