"""Pretraining: a backbone trained as an ordinary classifier."""

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

from alfa._distributed import ALONE
from alfa._io import write_json
from alfa.build import build_model, build_tasks
from alfa.data import FewShot, ImageSet, Tasks, Varied, augmented
from alfa.errors import CheckpointError, ConfigError, DivergedError, Stopped
from alfa.evaluation import seeded, without_dropout
from alfa.models import body_parameters
from alfa.optim import Adam
from alfa.runs import Checkpoint, Run, RunFiles, load_newest, save_backbone
from alfa.training._consistency import check_data, check_files, versions
from alfa.types import Count, PositiveFloat

WEIGHTS, RESULT = "backbone.safetensors", "result.json"
STATE, PREVIOUS = "state.safetensors", "previous.safetensors"
# Seconds between two checkpoints. A killed process loses no more, even if an epoch takes hours.
_SECONDS_PER_CHECKPOINT = 120.0
# The purposes of the random numbers, which separate their streams.
_ORDER, _AUGMENT, _HELD_OUT = 1, 2, 3
# One in this many images of a class is held out to measure accuracy.
_HELD_OUT_PART = 10
# The sections of a configuration that determine the result of pretraining.
_DECIDING = ("tasks", "model")


@dataclass(frozen=True)
class Pretraining:
    """Options of pretraining, which minimizes the mean cross-entropy of each batch with Adam.

    Attributes:
        num_epochs: number of passes over all images.
        batch_size: number of images per step; batch norm uses their statistics.
        learning_rate: the initial rate; it falls to zero along half a cosine.
        augment: flip images left to right and shift them at random.
        max_batches: limits the batches per epoch, and the held-out batches, for trials; None uses
            all.
    """

    num_epochs: Count = 10
    batch_size: Count = 64
    learning_rate: PositiveFloat = 0.001
    augment: bool = False
    max_batches: Count | None = None

    def __post_init__(self) -> None:
        for name, least in (("num_epochs", 1), ("batch_size", 2), ("max_batches", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"`{name}` must be at least {least}, got {value}.")
        if not self.learning_rate > 0:
            raise ConfigError(f"`learning_rate` must be above 0, got {self.learning_rate}.")


class Epoch(NamedTuple):
    """The mean loss of an epoch, and the accuracy on the held-out images, if any."""

    loss: float
    accuracy: float | None


OnEpoch = Callable[[int, int, Epoch | None], None]


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
    on_progress: OnEpoch = lambda done, total, epoch: None,
) -> dict[str, Any]:
    """Train a model to classify all training classes of the tasks.

    If the folder contains stopped pretraining, it resumes and gives the same results.

    Args:
        model: the model, with an output for each training class.
        tasks: the tasks whose images are used.
        path: the folder of the weights and the training state.
        seed: the seed of the order of the images.
        config: plain values that describe the model, tasks, and seed; pretraining does not resume
            in a folder with a different description.
        options: the options of the training.
        device: the device to compute on.
        should_stop: called after every batch.
        on_progress: called with the number of completed batches, the total number, and, at the end
            of an epoch, its result, otherwise None.

    Returns:
        The content of ``result.json``.

    Raises:
        ConfigError: the tasks have no images, or the model has no last layer.
        CheckpointError: the folder contains a different run.
        DivergedError: the loss is not finite.
        Stopped: `should_stop` returned True; progress is saved.
    """
    images = _Images(_sources(tasks), options, seed)
    model.to(device)
    # A model without a backbone fails before training, not at its end.
    body_parameters(model)
    with RunFiles(path).lock():
        return _Pretrainer(
            model, tasks, images, path, config or {}, device, should_stop, on_progress
        ).run()


def pretrain_run(run: Run, **options: Any) -> dict[str, Any]:
    """Pretrain the model of a run's experiment in its folder; see `pretrain` for the options."""
    tasks = build_tasks(run.experiment)
    sources = _sources(tasks)
    num_classes = sum(len(source.splits["train"].first) for source in sources)
    model = build_model(run.experiment, sources[0].shape, num_classes)
    seed = run.experiment.seed
    return pretrain(model, tasks, run.path, seed=seed, config=run.config(), **options)


def _sources(tasks: Tasks) -> Sequence[ImageSet]:
    tasks.check("train")
    if isinstance(tasks, FewShot):
        return [tasks.images]
    if isinstance(tasks, Varied):
        return tasks.sources
    raise ConfigError("these tasks have no images to pretrain on; use image tasks.")


class _Images:
    """The training images of all sources in batches."""

    def __init__(self, sources: Sequence[ImageSet], options: Pretraining, seed: int) -> None:
        self.sources, self.options, self.seed = sources, options, seed
        # One row per image: the source, the index in the source, and the class over all sources.
        trained: list[np.ndarray] = []
        held_out: list[np.ndarray] = []
        self.num_classes = 0
        for number, source in enumerate(sources):
            classes = source.splits["train"]
            for first, count in zip(classes.first, classes.count, strict=True):
                rows = np.full((count, 3), (number, 0, self.num_classes), np.int64)
                rows[:, 1] = np.arange(first, first + count)
                end = count - count // _HELD_OUT_PART
                trained.append(rows[:end])
                held_out.append(rows[end:])
                self.num_classes += 1
        self.trained, self.held_out = np.concatenate(trained), np.concatenate(held_out)

    @property
    def num_batches(self) -> int:
        """Batches per epoch; a last batch of one image is dropped, because it has no statistics."""
        full, rest = divmod(len(self.trained), self.options.batch_size)
        count = full + (rest > 1)
        most = self.options.max_batches
        return count if most is None else min(count, most)

    def epoch(self, number: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Shuffle the images for an epoch, and yield their batches, starting with batch `first`."""
        order = np.random.default_rng([self.seed, _ORDER, number]).permutation(len(self.trained))
        size = self.options.batch_size
        for batch in range(first, self.num_batches):
            seeds = [self.seed, _AUGMENT, number, batch]
            rng = np.random.default_rng(seeds) if self.options.augment else None
            yield self._load(self.trained[order[batch * size : (batch + 1) * size]], rng)

    def held_out_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the held-out images in batches that mix classes as in training."""
        order = np.random.default_rng([self.seed, _HELD_OUT]).permutation(len(self.held_out))
        size = self.options.batch_size
        for first in range(0, len(order) - 1, size)[: self.options.max_batches]:
            yield self._load(self.held_out[order[first : first + size]], None)

    def _load(self, rows: np.ndarray, rng: np.random.Generator | None) -> tuple[Tensor, Tensor]:
        pixels = np.empty((len(rows), *self.sources[0].shape), np.uint8)
        for number, source in enumerate(self.sources):
            own = rows[:, 0] == number
            if own.any():
                pixels[own] = source.take(rows[own, 1])
        if rng is not None:
            pixels = augmented(pixels, rng)
        return self.sources[0].normalised(pixels), torch.from_numpy(rows[:, 2].copy())


class _State(BaseModel):
    """The progress of pretraining."""

    # The checksum of the images.
    data: str
    # The loss and accuracy of each epoch.
    epochs: list[tuple[float, float | None]] = []
    seconds: float = 0.0
    # Completed batches of the current epoch, and the sum of their losses.
    batch: NonNegativeInt = 0
    losses: float = 0.0
    # Modification stamps of the image files.
    stamps: list[str] = []


@dataclass
class _Pretrainer:
    model: nn.Module
    tasks: Tasks
    images: _Images
    path: Path
    config: Mapping[str, Any]
    device: torch.device | str
    should_stop: Callable[[], bool]
    on_progress: OnEpoch

    def __post_init__(self) -> None:
        self.options, self.seed = self.images.options, self.images.seed
        self.optimizer = Adam(self.model.parameters(), fused=True)
        self.state = _State(data=self.tasks.signature().data)
        deciding = {key: value for key, value in self.config.items() if key in _DECIDING}
        if "model" in deciding:
            # Pretraining does not use the weights that a meta-learner starts from.
            deciding["model"] = {k: v for k, v in deciding["model"].items() if k != "weights"}
        text = json.dumps([deciding, self.seed, asdict(self.options)], sort_keys=True)
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]

    def run(self) -> dict[str, Any]:
        self._resume()
        num_batches = self.images.num_batches
        while len(self.state.epochs) < self.options.num_epochs:
            epoch = self._train_epoch(len(self.state.epochs))
            self.state.epochs.append(epoch)
            self.state.batch, self.state.losses = 0, 0.0
            self._save()
            done = len(self.state.epochs) * num_batches
            self.on_progress(done, self.options.num_epochs * num_batches, epoch)
        save_backbone(self.model, self.path / WEIGHTS)
        epochs = [Epoch(*epoch)._asdict() for epoch in self.state.epochs]
        result = {
            "weights": str(self.path / WEIGHTS),
            **epochs[-1],
            "epochs": epochs,
            "num_classes": self.images.num_classes,
            "num_images": len(self.images.trained),
            "seconds": round(self.state.seconds, 2),
            "options": asdict(self.options),
            "versions": versions(),
            "config": self.config,
        }
        write_json(self.path / RESULT, result)
        return result

    def _resume(self) -> None:
        """Restore the newest state in the folder, if there is one."""
        paths = [self.path / STATE, self.path / PREVIOUS]
        checkpoint = load_newest(paths, _State, fingerprint=self.fingerprint)
        if checkpoint is None:
            if (self.path / WEIGHTS).is_file():
                raise CheckpointError(
                    f"{self.path} has weights, but not their training state; use another folder."
                )
            if RunFiles(self.path).exists or (self.path / RESULT).is_file():
                raise CheckpointError(
                    f"{self.path} contains a run other than pretraining; use another folder."
                )
        else:
            check_data(self.path, checkpoint.progress["data"], self.tasks)
            checkpoint.restore(self.model, self.optimizer)
            self.state = _State(**{**checkpoint.progress, "data": self.state.data})
        known, has_begun = self.state.stamps, checkpoint is not None
        self.state.stamps = check_files(ALONE, self.tasks, known=known, has_begun=has_begun)

    def _save(self) -> None:
        checkpoint = Checkpoint.of(
            self.model,
            self.optimizer,
            fingerprint=self.fingerprint,
            progress=self.state.model_dump(mode="json"),
        )
        checkpoint.save(self.path / STATE, previous=self.path / PREVIOUS)

    def _train_epoch(self, number: int) -> Epoch:
        state, num_batches = self.state, self.images.num_batches
        total = self.options.num_epochs * num_batches
        saved = began = time.perf_counter()
        for x, y in self.images.epoch(number, state.batch):
            done = number * num_batches + state.batch
            for group in self.optimizer.param_groups:
                group["lr"] = self.options.learning_rate * (1 + np.cos(np.pi * done / total)) / 2
            self.optimizer.zero_grad()
            with seeded(self.model, self.seed, number, state.batch):
                loss = F.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
                loss.backward()
            self.optimizer.step()
            state.losses += float(loss.detach())
            if not np.isfinite(state.losses):
                raise DivergedError(
                    f"the loss of batch {state.batch + 1} in epoch {number + 1} is not finite; "
                    "a smaller learning rate usually helps."
                )
            state.batch += 1
            now = time.perf_counter()
            state.seconds, began = state.seconds + now - began, now
            if now - saved > _SECONDS_PER_CHECKPOINT:
                self._save()
                saved = now
            self.on_progress(done + 1, total, None)
            if self.should_stop():
                self._save()
                raise Stopped
        return Epoch(state.losses / num_batches, self._accuracy())

    @torch.no_grad()
    def _accuracy(self) -> float | None:
        """Return the accuracy on the held-out images; None if there are none."""
        right, total = 0, 0
        for x, y in self.images.held_out_batches():
            with without_dropout(self.model), seeded(self.model, self.seed):
                found = self.model(x.to(self.device)).argmax(1).cpu()
            right += int((found == y).sum())
            total += len(y)
        return right / total if total else None
