"""A backbone trained as an ordinary classifier, for a meta-learner to start from."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, NonNegativeInt
from torch import Tensor, nn
from torch.nn import functional as F

import alfa
from alfa._distributed import ALONE
from alfa._io import write_json
from alfa.data import FewShot, ImageSet, Tasks, Varied, augmented
from alfa.errors import CheckpointError, ConfigError, DivergedError, Stopped
from alfa.evaluation import seeded, without_dropout
from alfa.models import Model
from alfa.optim import Adam
from alfa.runs import Checkpoint, Run, RunFiles, load_newest, save_backbone
from alfa.training._consistency import check_files
from alfa.types import Count, PositiveFloat

WEIGHTS, RESULT = "backbone.safetensors", "result.json"
STATE, PREVIOUS = "state.safetensors", "previous.safetensors"
# An epoch may take hours; one that is killed loses no more seconds than this.
_SECONDS_PER_CHECKPOINT = 120.0
# What random numbers are for.
_ORDER, _HANDS, _HELD = 1, 2, 3
# The part of a class that is not trained on, to see how well its images are told from others.
_HELD_OUT = 10
# The sections of a configuration that decide a pretraining.
_DECIDING = ("tasks", "model")


@dataclass(frozen=True)
class Pretraining:
    """How a classifier is trained: Adam on the mean cross-entropy of a batch.

    Attributes:
        num_epochs: how often every image is seen.
        batch_size: images of a step, which batch norm takes its statistics of.
        learning_rate: at the start; it falls to zero along half a cosine.
        augment: images are flipped left to right and moved at random.
        max_batches: of an epoch, and of the images held out, to try things out; None for all.
    """

    num_epochs: Count = 10
    batch_size: Count = 64
    learning_rate: PositiveFloat = 0.001
    augment: bool = False
    max_batches: Count | None = None

    def __post_init__(self) -> None:
        few = self.max_batches is not None and self.max_batches < 1
        if self.num_epochs < 1 or self.batch_size < 2 or few:
            raise ConfigError(
                f"{self.num_epochs} epochs of batches of {self.batch_size} were asked for, but it "
                "takes 1 epoch, batches of 2 and one of them at least."
            )
        if not self.learning_rate > 0:
            raise ConfigError(f"`learning_rate` is {self.learning_rate}, but must be above 0.")


class Epoch(NamedTuple):
    """What came of an epoch: the mean loss, and the accuracy on the images held out, if any."""

    loss: float
    accuracy: float | None


def pretrain(
    model: nn.Module,
    tasks: Tasks,
    path: Path,
    *,
    seed: int = 0,
    config: Mapping[str, Any] | None = None,
    options: Pretraining = Pretraining(),  # noqa: B008 - frozen
    device: torch.device | str = "cpu",
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[int, int, Epoch | None], None] = lambda done, total, epoch: None,
) -> dict[str, Any]:
    """Train a model to tell all training classes of the tasks apart.

    A pretraining that was stopped resumes where it was, to the same numbers.

    Args:
        model: the model, with an output for each training class.
        tasks: the tasks whose images are used.
        path: a folder, for the weights and the state of the training.
        seed: decides the order of the images.
        config: plain values that describe the model, tasks, and seed; a folder with another
            description is refused.
        options: how it is trained.
        device: where to compute.
        should_stop: called after every batch.
        on_progress: called with the batches done, all of them, and the result of an epoch at its
            end.

    Returns:
        The content of ``result.json``.

    Raises:
        ConfigError: the tasks have no images, or the model has no last layer.
        CheckpointError: the folder holds another pretraining.
        DivergedError: the loss is not finite.
        Stopped: `should_stop` returned True; progress is kept.
    """
    images = _Images(_sources(tasks), options, seed)
    if not isinstance(model, Model) or model.head_name is None:
        raise ConfigError(f"the model {type(model).__name__} has no last layer.")
    with RunFiles(path).lock():
        trainer = _Pretrainer(
            model, tasks, images, path, seed, config or {}, options, device, should_stop
        )
        return trainer.run(on_progress)


def pretrain_run(run: Run, **options: Any) -> dict[str, Any]:
    """Pretrain the model of a run's experiment in its folder; see `pretrain` for the options."""
    tasks = run.build_tasks()
    sources = _sources(tasks)
    num_classes = sum(len(source.splits["train"].first) for source in sources)
    model = run.build_classifier(sources[0].shape, num_classes)
    seed = run.experiment.seed
    return pretrain(model, tasks, run.path, seed=seed, config=run.config(), **options)


def _sources(tasks: Tasks) -> Sequence[ImageSet]:
    tasks.check("train")
    if isinstance(tasks, FewShot):
        return [tasks.images]
    if isinstance(tasks, Varied):
        return tasks.sources
    raise ConfigError("these tasks have no images, so that there is nothing to pretrain on.")


class _Images:
    """The training images of all sources, and in which order they are seen."""

    def __init__(self, sources: Sequence[ImageSet], options: Pretraining, seed: int) -> None:
        self.sources, self.options, self.seed = sources, options, seed
        # Of every image: its source, its number there, and its class among those of all sources.
        seen: list[np.ndarray] = []
        held_out: list[np.ndarray] = []
        self.num_classes = 0
        for number, source in enumerate(sources):
            classes = source.splits["train"]
            for first, count in zip(classes.first, classes.count, strict=True):
                rows = np.empty((count, 3), np.int64)
                rows[:, 0], rows[:, 1] = number, np.arange(first, first + count)
                rows[:, 2] = self.num_classes
                end = count - count // _HELD_OUT
                seen.append(rows[:end])
                held_out.append(rows[end:])
                self.num_classes += 1
        self.seen, self.held_out = np.concatenate(seen), np.concatenate(held_out)

    @property
    def num_batches(self) -> int:
        """Of an epoch; a last batch of one image, which has no statistics, is left out."""
        full, rest = divmod(len(self.seen), self.options.batch_size)
        count = full + (rest > 1)
        most = self.options.max_batches
        return count if most is None else min(count, most)

    def epoch(self, number: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Every image once, in an order that the seed and the number of the epoch decide.

        Args:
            number: of the epoch.
            first: the batch to begin with.
        """
        order = np.random.default_rng([self.seed, _ORDER, number]).permutation(len(self.seen))
        size = self.options.batch_size
        for batch in range(first, self.num_batches):
            hands = None
            if self.options.augment:
                hands = np.random.default_rng([self.seed, _HANDS, number, batch])
            yield self._taken(self.seen[order[batch * size : (batch + 1) * size]], hands)

    def held(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The images that are held out, mixed as in training."""
        order = np.random.default_rng([self.seed, _HELD]).permutation(len(self.held_out))
        size = self.options.batch_size
        for first in range(0, len(order) - 1, size)[: self.options.max_batches]:
            yield self._taken(self.held_out[order[first : first + size]], None)

    def _taken(self, rows: np.ndarray, rng: np.random.Generator | None) -> tuple[Tensor, Tensor]:
        pixels = np.empty((len(rows), *self.sources[0].shape), np.uint8)
        for number, source in enumerate(self.sources):
            own = rows[:, 0] == number
            if own.any():
                pixels[own] = source.take(rows[own, 1])
        if rng is not None:
            pixels = augmented(pixels, rng)
        return self.sources[0].normalised(pixels), torch.from_numpy(rows[:, 2].copy())


class _Progress(BaseModel):
    """The pretrainer's part of a checkpoint, beside the tensors."""

    epochs: list[tuple[float, float | None]]
    seconds: float
    batch: NonNegativeInt
    losses: float
    stamps: list[str]
    data: str


class _Pretrainer:
    def __init__(
        self,
        model: Model,
        tasks: Tasks,
        images: _Images,
        path: Path,
        seed: int,
        config: Mapping[str, Any],
        options: Pretraining,
        device: torch.device | str,
        should_stop: Callable[[], bool],
    ) -> None:
        self.tasks, self.images, self.path = tasks, images, path
        self.seed, self.config = seed, config
        self.options, self.device, self.should_stop = options, device, should_stop
        self.model = model.to(device)
        self.optimizer = Adam(self.model.parameters(), fused=True)
        self.epochs: list[Epoch] = []
        self.seconds = 0.0
        # Of the epoch at hand: batches that are done, and the sum of their losses.
        self.batch, self.losses = 0, 0.0
        # Of the files of the images.
        self.stamps: list[str] = []

    def _load(self, path: Path) -> Checkpoint:
        found = Checkpoint.load(path, fingerprint=self._fingerprint())
        found.check_progress(_Progress)
        before, now = found.progress["data"], self.tasks.signature().data
        if before and now and before != now:
            raise CheckpointError(
                f"the images of {self.path} are not what it has been trained on: they were "
                "prepared anew, from others or in another way; go on with those it had, or train "
                "again in another folder."
            )
        return found

    def _go_on(self, checkpoint: Checkpoint | None) -> None:
        """Go on from a state, or begin."""
        progress: dict[str, Any] = {} if checkpoint is None else checkpoint.progress
        if checkpoint is not None:
            checkpoint.restore(self.model, self.optimizer)
            self.epochs = [Epoch(*epoch) for epoch in progress["epochs"]]
            self.seconds = progress["seconds"]
            self.batch, self.losses = progress["batch"], progress["losses"]
        known, has_begun = progress.get("stamps", []), checkpoint is not None
        self.stamps = check_files(ALONE, self.tasks, known=known, has_begun=has_begun)

    def run(self, on_progress: Callable[[int, int, Epoch | None], None]) -> dict[str, Any]:
        state = self.path / STATE
        checkpoint = load_newest([state, self.path / PREVIOUS], self._load)
        if checkpoint is None and (self.path / WEIGHTS).is_file():
            raise CheckpointError(
                f"{self.path} has weights, but not the state of their training; use another folder."
            )
        if checkpoint is None and (RunFiles(self.path).exists or (self.path / RESULT).is_file()):
            raise CheckpointError(
                f"{self.path} holds a run that is no pretraining; use another folder."
            )
        self._go_on(checkpoint)
        while len(self.epochs) < self.options.num_epochs:
            epoch = self._epoch(len(self.epochs), state, on_progress)
            self.epochs.append(epoch)
            self.batch, self.losses = 0, 0.0
            self._save(state)
            done = len(self.epochs) * self.images.num_batches
            on_progress(done, self.options.num_epochs * self.images.num_batches, epoch)
        save_backbone(self.model, self.path / WEIGHTS)
        result = {
            "weights": str(self.path / WEIGHTS),
            "loss": self.epochs[-1].loss,
            "accuracy": self.epochs[-1].accuracy,
            "epochs": [epoch._asdict() for epoch in self.epochs],
            "num_classes": self.images.num_classes,
            "num_images": len(self.images.seen),
            "seconds": round(self.seconds, 2),
            "options": asdict(self.options),
            "versions": {"alfa": alfa.__version__, "torch": torch.__version__},
            "config": self.config,
        }
        write_json(self.path / RESULT, result)
        return result

    def _epoch(
        self, number: int, state: Path, on_progress: Callable[[int, int, Epoch | None], None]
    ) -> Epoch:
        num_batches = self.images.num_batches
        total = self.options.num_epochs * num_batches
        saved = began = time.perf_counter()
        for x, y in self.images.epoch(number, self.batch):
            done = number * num_batches + self.batch
            for group in self.optimizer.param_groups:
                group["lr"] = self.options.learning_rate * (1 + np.cos(np.pi * done / total)) / 2
            self.optimizer.zero_grad()
            with seeded(self.model, self.seed, number, self.batch):
                loss = F.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
                loss.backward()
            self.optimizer.step()
            self.losses += float(loss.detach())
            if not np.isfinite(self.losses):
                raise DivergedError(
                    f"the loss of batch {self.batch} in epoch {number + 1} is not finite; a "
                    "smaller learning rate usually helps."
                )
            self.batch += 1
            now = time.perf_counter()
            self.seconds, began = self.seconds + now - began, now
            if now - saved > _SECONDS_PER_CHECKPOINT:
                self._save(state)
                saved = now
            on_progress(done + 1, total, None)
            if self.should_stop():
                self._save(state)
                raise Stopped
        return Epoch(self.losses / num_batches, self._accuracy())

    @torch.no_grad()
    def _accuracy(self) -> float | None:
        right, total = 0, 0
        for x, y in self.images.held():
            with without_dropout(self.model), seeded(self.model, self.seed):
                found = self.model(x.to(self.device)).argmax(1).cpu()
            right += int((found == y).sum())
            total += len(y)
        return right / total if total else None

    def _save(self, state: Path) -> None:
        progress = {
            "epochs": self.epochs,
            "seconds": self.seconds,
            "batch": self.batch,
            "losses": self.losses,
            "stamps": self.stamps,
            "data": self.tasks.signature().data,
        }
        Checkpoint.of(
            self.model, self.optimizer, fingerprint=self._fingerprint(), progress=progress
        ).save(state, previous=self.path / PREVIOUS)

    def _fingerprint(self) -> str:
        deciding = {key: value for key, value in self.config.items() if key in _DECIDING}
        if "model" in deciding:
            # Weights that a meta-learner will begin with are not read here.
            deciding["model"] = {k: v for k, v in deciding["model"].items() if k != "weights"}
        text = json.dumps([deciding, self.seed, asdict(self.options)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
