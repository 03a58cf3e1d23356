"""Pretraining: a backbone trained as an ordinary classifier."""

import copy
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from alfa.optim import Pretraining
from alfa.runs import Checkpoint, Run, RunFiles, load_newest, save_backbone
from alfa.training._consistency import check_data, check_files, versions

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
    new_model: Callable[[int], nn.Module] | None = None,
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
        new_model: returns an untrained model for a generation of distillation, numbered from 1; by
            default every generation starts from the weights of `model`.
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
            model, tasks, images, path, new_model, config or {}, device, should_stop, on_progress
        ).run()


def pretrain_run(
    run: Run, *, path: Path | None = None, options: Pretraining | None = None, **others: Any
) -> dict[str, Any]:
    """Pretrain the model of a run's experiment; see `pretrain` for the other options.

    Args:
        run: the run.
        path: the folder of the weights and the training state; by default the run's.
        options: the options of the training; by default the experiment's.
        others: other options of `pretrain`.
    """
    options = options or run.experiment.pretraining or Pretraining()
    tasks = build_tasks(run.experiment)
    check_pretraining(run, tasks, options)
    sources = _sources(tasks)
    num_classes = sum(len(source.splits["train"].first) for source in sources)
    experiment = run.experiment
    part = experiment.model
    # Otherwise, the backbone could not be trained.
    trained = type(part)(**{k: v for k, v in part.model_dump().items() if k != "frozen"})
    experiment = experiment.model_copy(update={"model": trained})
    if options.classifier == "linear":
        experiment = experiment.model_copy(update={"head": None})

    def new_model(generation: int) -> nn.Module:
        other = experiment.model_copy(update={"seed": experiment.seed + generation})
        return build_model(other, sources[0].shape, num_classes)

    others = {"new_model": new_model, "seed": experiment.seed, "config": run.config(), **others}
    return pretrain(new_model(0), tasks, path or run.path, options=options, **others)


def check_pretraining(run: Run, tasks: Tasks, options: Pretraining) -> None:
    """Raise ConfigError unless the model of a run can be pretrained on the tasks."""
    _sources(tasks)
    if options.classifier == "head" and run.experiment.head is None:
        raise ConfigError(
            "pretraining.classifier is 'head', but the experiment has no [head]; add one, or use "
            "'linear'."
        )


def _sources(tasks: Tasks) -> Sequence[ImageSet]:
    tasks.check("train")
    if not isinstance(tasks, FewShot | Varied):
        raise ConfigError("these tasks have no images to pretrain on; use image tasks.")
    sources = [source for source in tasks.sources if isinstance(source, ImageSet)]
    if len(sources) < len(tasks.sources):
        raise ConfigError(
            f"tasks.backbone is {tasks.signature().backbone!r}, which is pretrained already, so "
            "there is no backbone to pretrain; omit it, or use a method without pretraining, such "
            "as 'logistic' or 'alfa+ridge'."
        )
    return sources


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
    # The loss and accuracy of each epoch, over all generations.
    epochs: list[tuple[float, float | None]] = []
    # The generation in training; later ones imitate the model of the one before.
    generation: NonNegativeInt = 0
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
    new_model: Callable[[int], nn.Module] | None
    config: Mapping[str, Any]
    device: torch.device | str
    should_stop: Callable[[], bool]
    on_progress: OnEpoch

    def __post_init__(self) -> None:
        self.options, self.seed = self.images.options, self.images.seed
        self.optimizer = self.options.make_optimizer(self.model)
        self.initial = {key: tensor.clone() for key, tensor in self.model.state_dict().items()}
        self.teacher: nn.Module | None = None
        self.state = _State(data=self.tasks.signature().data)
        deciding = {key: value for key, value in self.config.items() if key in _DECIDING}
        if "model" in deciding:
            # Pretraining does not use the weights that a meta-learner starts from.
            unused = ("weights", "frozen")
            deciding["model"] = {k: v for k, v in deciding["model"].items() if k not in unused}
        if self.options.classifier == "head":
            deciding["head"] = self.config.get("head")
        text = json.dumps([deciding, self.seed, self.options.as_dict()], sort_keys=True)
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]

    def run(self) -> dict[str, Any]:
        RunFiles(self.path).remove_leftovers()
        self._resume()
        options, num_batches = self.options, self.images.num_batches
        num_epochs = (options.num_distillations + 1) * options.num_epochs
        while (number := len(self.state.epochs)) < num_epochs:
            if number // options.num_epochs > self.state.generation:
                self._begin_generation()
            epoch = self._train_epoch(number, num_epochs * num_batches)
            self.state.epochs.append(epoch)
            self.state.batch, self.state.losses = 0, 0.0
            self._save()
            self.on_progress((number + 1) * num_batches, num_epochs * num_batches, epoch)
        save_backbone(self.model, self.path / WEIGHTS)
        epochs = [Epoch(*epoch)._asdict() for epoch in self.state.epochs]
        result = {
            "weights": str(self.path / WEIGHTS),
            **epochs[-1],
            "epochs": epochs,
            "num_classes": self.images.num_classes,
            "num_images": len(self.images.trained),
            "seconds": round(self.state.seconds, 2),
            "options": self.options.as_dict(),
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
            if checkpoint.progress["generation"] > 0:
                self.teacher = copy.deepcopy(self.model).requires_grad_(False)
            checkpoint.restore(self.model, self.optimizer, self.teacher)
            self.state = _State(**{**checkpoint.progress, "data": self.state.data})
        known, has_begun = self.state.stamps, checkpoint is not None
        self.state.stamps = check_files(ALONE, self.tasks, known=known, has_begun=has_begun)

    def _save(self) -> None:
        checkpoint = Checkpoint.of(
            self.model,
            self.optimizer,
            fingerprint=self.fingerprint,
            progress=self.state.model_dump(mode="json"),
            objective=self.teacher,
        )
        checkpoint.save(self.path / STATE, previous=self.path / PREVIOUS)

    def _begin_generation(self) -> None:
        """Make the trained model the teacher of an untrained one."""
        self.state.generation += 1
        self.teacher = copy.deepcopy(self.model).requires_grad_(False)
        weights = self.initial
        if self.new_model is not None:
            weights = self.new_model(self.state.generation).state_dict()
        self.model.load_state_dict(weights)
        self.optimizer = self.options.make_optimizer(self.model)

    def _train_epoch(self, number: int, total: int) -> Epoch:
        state, num_batches = self.state, self.images.num_batches
        saved = began = time.perf_counter()
        for x, y in self.images.epoch(number, state.batch):
            epoch = number % self.options.num_epochs
            for group in self.optimizer.param_groups:
                group["lr"] = self.options.rate(epoch, state.batch / num_batches)
            self.optimizer.zero_grad()
            with seeded(self.model, self.seed, number, state.batch):
                loss = self._loss(x.to(self.device), y.to(self.device))
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
            self.on_progress(number * num_batches + state.batch, total, None)
            if self.should_stop():
                self._save()
                raise Stopped
        return Epoch(state.losses / num_batches, self._accuracy())

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        outputs = self.model(x)
        loss = F.cross_entropy(outputs, y)
        if self.teacher is None:
            return loss
        w, temperature = self.options.distillation_weight, self.options.temperature
        with torch.no_grad(), without_dropout(self.teacher):
            target = (self.teacher(x) / temperature).softmax(1)
        log_p = (outputs / temperature).log_softmax(1)
        # (1 - w) cross-entropy + w T^2 KL(teacher, student)
        divergence = F.kl_div(log_p, target, reduction="batchmean")
        return (1 - w) * loss + w * temperature**2 * divergence

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
