"""A run: an experiment and the folder of its training."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import tomli_w
import torch
from pydantic import TypeAdapter

from alfa._io import write_atomic, write_json
from alfa.build import build_learner, build_tasks, describe_experiment, trainer_options
from alfa.config import Experiment, differing, load_experiment, parse_experiment, to_dict
from alfa.data import TASKS, Signature, Tasks
from alfa.errors import CheckpointError, ConfigError
from alfa.learner import Learner
from alfa.ops import get_loss
from alfa.optim import Pretraining
from alfa.runs._backbone import load_backbone
from alfa.runs._best import TrainingProgress
from alfa.runs._checkpoint import Checkpoint, load_newest
from alfa.runs._files import RunFiles
from alfa.runs._plugins import Hashes, read_hashes, store_plugins, warn_of_changes
from alfa.runs._zoo import MODELS, find_run

CHECKPOINTS = ("best", "last", "ensemble")


class Run:
    """A run folder, whose files are read at most once.

    `Run.open` opens a folder on disk, `Run.new` describes a folder that training will create, and
    `Run.save` saves a learner from a custom training loop.

    Attributes:
        path: the folder.
        files: the files of the folder.

    Examples:
        >>> import tempfile
        >>> from alfa import MLP, SGD, LearnedInit, Learner, Run, Sinusoids, mse
        >>> model = MLP((1,), 1)
        >>> init = LearnedInit(model)
        >>> learner = Learner(model, init=init, rule=SGD(init.layers), loss=mse)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Run.save(f"{folder}/run", learner, Sinusoids()).path.name
        ...     Run.open(f"{folder}/run").experiment.model.name
        'run'
        'mlp'
    """

    def __init__(self, path: Path | str, experiment: Experiment | None = None) -> None:
        self.files = RunFiles(path)
        self.path = self.files.path
        self._kept: dict[str, list[Checkpoint]] = {}
        if experiment is not None:
            self.__dict__["experiment"] = experiment

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a run folder or a pretrained model; warn if the source of a plugin has changed.

        Args:
            path: the folder, or a name from `alfa models`; a run folder has precedence.

        Raises:
            CheckpointError: the folder is not a run.
        """
        run = cls(find_run(path))
        run.files.check_exists()
        warn_of_changes(run.plugin_hashes, run.path)
        return run

    @classmethod
    def new(cls, path: Path | str, experiment: Experiment) -> Self:
        """Return a run that training will create, or resume with `experiment`."""
        return cls(path, experiment)

    @classmethod
    def save(
        cls,
        path: Path | str,
        learner: Learner,
        tasks: Tasks,
        *,
        metrics: Sequence[Mapping[str, Any]] = (),
        **options: Any,
    ) -> Self:
        """Save a learner from a custom training loop as a run folder that every command accepts.

        Saving again into the same folder replaces the weights.

        Args:
            path: the folder, which must be new or hold a run with the same configuration.
            learner: the trained learner; its model, init, and rule must be registered.
            tasks: the tasks it was trained on.
            metrics: records such as ``{"iteration": 100, "val_loss": 0.5}`` for learning curves.
            options: arguments of `alfa.Trainer` to record, such as `seed` and `num_iterations`.

        Raises:
            ConfigError: a part of the learner is not registered.
            CheckpointError: the folder holds other files or another run.
        """
        experiment = describe_experiment(learner, tasks, **options)
        run = cls(path, experiment)
        if not run.files.exists:
            run.files.check_empty()
        elif cls.open(path).fingerprint != run.fingerprint:
            raise CheckpointError(
                f"{run.path} holds a run with another configuration; choose another folder."
            )
        with run.files.lock():
            run.create(tasks.signature())
            run.files.write_metrics([dict(record) for record in metrics])
            iteration = experiment.outer.num_iterations
            Checkpoint.of(
                learner,
                None,
                fingerprint=run.fingerprint,
                progress=TrainingProgress(iteration=iteration).model_dump(mode="json"),
            ).save(run.files.checkpoint("best"))
        return run

    def create(self, signature: Signature) -> None:
        """Write the configuration, the signature of the tasks, and the sources of new plugins."""
        write_atomic(self.files.config, tomli_w.dumps(self.config()).encode())
        write_json(self.files.signature, asdict(signature))
        self.__dict__["signature"] = signature
        # A resumed run keeps the sources of its beginning.
        if set(self.experiment.plugins) - set(self.plugin_hashes):
            listing, folder = self.files.plugin_hashes, self.files.plugins
            store_plugins(self.experiment.plugins, listing=listing, folder=folder)
            del self.__dict__["plugin_hashes"]

    @property
    def is_pretrained(self) -> bool:
        """Whether this is a pretrained model of the package, whose folder is not writable."""
        return self.path.parent == MODELS

    @functools.cached_property
    def experiment(self) -> Experiment:
        return load_experiment(self.files.config)

    @functools.cached_property
    def fingerprint(self) -> str:
        return self.experiment.fingerprint()

    @functools.cached_property
    def signature(self) -> Signature:
        """The properties of the training tasks that the model depends on."""
        try:
            return TypeAdapter(Signature).validate_json(self.files.signature.read_bytes())
        except (FileNotFoundError, ValueError):
            raise CheckpointError(
                f"{self.files.signature} is missing or damaged; restore it from a copy of the run."
            ) from None

    @functools.cached_property
    def plugin_hashes(self) -> Hashes:
        """The SHA-256 digests of the plugins' source files by module and path in `plugins/`.

        The files are in ``files.plugins``; alfa never executes them.
        """
        return read_hashes(self.files.plugin_hashes)

    @functools.cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The records of all validations."""
        return self.files.read_metrics()

    @functools.cached_property
    def result(self) -> dict[str, Any] | None:
        """The content of ``result.json``; None while training is not complete."""
        return self.files.read_result()

    @property
    def num_test_steps(self) -> int:
        """Inner steps in validation and test."""
        inner = self.experiment.inner
        return inner.num_steps if inner.num_test_steps is None else inner.num_test_steps

    @property
    def rule_name(self) -> str:
        return self.experiment.rule.name

    @property
    def pretraining(self) -> Pretraining | None:
        """How training pretrains the backbone; None if it does not, or the model has weights."""
        has_weights = "weights" in self.experiment.model.options
        return None if has_weights else self.experiment.pretraining

    def config(self) -> dict[str, Any]:
        """Return the experiment as plain values."""
        return to_dict(self.experiment)

    def with_overrides(self, overrides: Sequence[str]) -> Experiment:
        """Return the experiment with changes such as ``"tasks.shot=1"``."""
        source = str(self.files.config)
        return parse_experiment(self.config(), source=source, overrides=overrides)

    def differences(self, other: Run) -> list[str]:
        """Return the differences between two experiments, such as ``"seed is 0 and 1"``."""
        return differing(self.experiment, other.experiment)

    def learner(self, which: str = "best", *, device: torch.device | str = "cpu") -> Learner:
        """Return the learner with the weights of a checkpoint, ``"best"`` or ``"last"``."""
        return self.learners(which, device=device)[0]

    def learners(
        self,
        which: str = "best",
        *,
        init: Mapping[str, Any] | None = None,
        device: torch.device | str = "cpu",
    ) -> list[Learner]:
        """Return the learners of a checkpoint, of which only ``"ensemble"`` has several.

        Args:
            which: ``"best"``, ``"last"``, or ``"ensemble"``.
            init: an init that replaces the experiment's, such as ``{"name": "prototype-head"}``.
            device: the device of the learners.

        Raises:
            CheckpointError: the checkpoint is missing or damaged.
        """
        learners = []
        for checkpoint in self.load_models(which):
            learner = build_learner(self.experiment, self.signature, init=init)
            checkpoint.restore(learner)
            learners.append(learner.to(device))
        return learners

    def tasks(self, overrides: Sequence[str] = ()) -> Tasks:
        """Return the run's tasks with overrides such as ``"tasks.dataset=cub"``.

        The dataset of the training is needed only if it is not overridden. Tasks that the models
        cannot take raise a ConfigError.
        """
        experiment = self.with_overrides(overrides) if overrides else self.experiment
        return match_tasks(build_tasks(experiment), self.signature, variable_way=self._variable_way)

    def dataset_overrides(self, dataset: str, *, size: int | None = None) -> list[str]:
        """Return the overrides for the same tasks from a dataset with a prepared image size."""
        return TASKS.get(self.experiment.tasks.name).dataset_overrides(dataset, size)

    @functools.cached_property
    def _variable_way(self) -> bool:
        """Whether the models take tasks with any number of classes."""
        learner = build_learner(self.experiment, self.signature)
        return learner.init.variable_way and not learner.rule.has_fixed_layers

    def build(self, device: torch.device | str) -> tuple[Learner, Tasks, dict[str, Any]]:
        """Build the learner and tasks of a new training, and the options of `alfa.Trainer`."""
        options = self.experiment.model.options
        if options.get("frozen") and "weights" not in options and self.pretraining is None:
            raise ConfigError(
                "model.frozen is true, but the model has no weights, so its features would stay "
                "random; set model.weights, add a [pretraining], or omit model.frozen."
            )
        tasks = build_tasks(self.experiment)
        learner = build_learner(self.experiment, tasks).to(device)
        return learner, tasks, trainer_options(self.experiment, learner, tasks)

    def load_initial_weights(self, learner: Learner) -> None:
        """Load the backbone weights that the experiment names or training pretrained, if any."""
        weights = self.experiment.model.options.get("weights")
        if self.pretraining is not None and self.files.backbone.is_file():
            weights = self.files.backbone
        if weights is not None:
            load_backbone(learner.model, Path(weights))

    def load_checkpoint(self, name: str) -> Checkpoint:
        return Checkpoint.load(self.files.checkpoint(name), fingerprint=self.fingerprint)

    def load_member(self, iteration: int) -> Checkpoint:
        return Checkpoint.load(self.files.member(iteration), fingerprint=self.fingerprint)

    def load_last(self) -> Checkpoint | None:
        """Load the newest intact training state; return None if none was saved yet."""
        paths = [self.files.checkpoint("last"), self.files.checkpoint("previous")]
        return load_newest(paths, TrainingProgress, fingerprint=self.fingerprint)

    def save_last(self, checkpoint: Checkpoint) -> None:
        """Save the newest training state, and keep the state before it."""
        checkpoint.save(self.files.checkpoint("last"), previous=self.files.checkpoint("previous"))

    def keep_models(self, which: str = "best") -> Self:
        """Keep checkpoints in memory, so that `learners` reads no files; return the run.

        Later changes of the files have no effect. For a process that builds learners repeatedly.
        """
        self._kept[which] = self.load_models(which)
        return self

    def load_models(self, which: str) -> list[Checkpoint]:
        """Load the checkpoints that `learners` restores."""
        if which in self._kept:
            return self._kept[which]
        if which == "last" and (found := self.load_last()) is not None:
            return [found]
        if which != "ensemble":
            return [self.load_checkpoint(which)]
        last = self.load_last()
        epochs = [] if last is None else last.progress["best"][: self.experiment.test.ensemble]
        members = self.files.members([epoch["iteration"] for epoch in epochs])
        return [self.load_member(n) for n in members] or [self.load_checkpoint("best")]


def match_tasks(tasks: Tasks, own: Signature, *, variable_way: bool = False) -> Tasks:
    """Convert tasks to the inputs of a model that was trained on tasks with the signature `own`.

    The last layer of a `variable_way` model has an output for each class of a task. Tasks that the
    model cannot take raise a ConfigError.
    """
    if own.mean or own.backbone:
        # A model keeps the normalization of its training set, or its backbone.
        tasks = tasks.like(own)
    fits = tasks.num_outputs == own.num_outputs or (
        # The outputs of the linear layer are classes, and some of them may stay unused.
        get_loss(tasks.loss).has_classes and (variable_way or tasks.num_outputs < own.num_outputs)
    )
    if tuple(tasks.input_shape) != tuple(own.input_shape) or not fits:
        raise ConfigError(
            f"the run was trained on inputs of shape {tuple(own.input_shape)} with "
            f"{own.num_outputs} outputs, but these tasks have {tuple(tasks.input_shape)} with "
            f"{tasks.num_outputs}."
        )
    return tasks
