"""Compose experiments from a dataset, a method, and a backbone."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from alfa.config._experiment import Experiment, without_none
from alfa.config._read import parse_experiment, read_toml
from alfa.data import GENERATED_DATASETS, SOURCES, prepared
from alfa.errors import ConfigError, did_you_mean
from alfa.methods import get_method, merge

_EXPERIMENTS = resources.files("alfa") / "experiments"
# Base experiments for any prepared dataset, any generated one, and a folder of images.
_PREPARED, _GENERATED, _FOLDER = "images", "strokes", "folder"


@dataclass(frozen=True)
class Choices:
    """The choices of a user; None keeps the value of the base experiment.

    The method sets the init and the rule; the backbone is a model with its default options.
    """

    method: str | None = None
    backbone: str | None = None
    way: int | None = None
    shot: int | None = None

    @property
    def label(self) -> str:
        """The choices as part of the name of a run folder; empty if there are none."""
        sizes = {"way": self.way, "shot": self.shot}
        words = [f"{value}{key}" for key, value in sizes.items() if value is not None]
        return "-".join(filter(None, [self.method, self.backbone, *words]))

    def apply(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return an experiment with these choices, before validation."""
        changed = merge(content, {"tasks": without_none({"way": self.way, "shot": self.shot})})
        if self.backbone is not None:
            changed["model"] = {"name": self.backbone}
        if self.method is not None:
            changed = get_method(self.method).apply(changed)
        return changed


def datasets() -> list[str]:
    """Return the datasets that `compose` accepts: generated, known, and prepared ones."""
    names = [file.name for file in _EXPERIMENTS.iterdir()]
    bases = {name.removesuffix(".toml") for name in names if name.endswith(".toml")}
    trainable = {name for name in SOURCES if "train" in SOURCES.get(name).published}
    return sorted({*bases - {_PREPARED, _FOLDER}, *GENERATED_DATASETS, *trainable, *prepared()})


def compose(
    source: str | Path,
    *,
    method: str | None = None,
    backbone: str | None = None,
    way: int | None = None,
    shot: int | None = None,
    overrides: Iterable[str] = (),
) -> Experiment:
    """Compose an experiment from a dataset or a TOML file, a method, and a backbone.

    Args:
        source: a dataset, such as ``"cifar-fs"``, or the path of a ``.toml`` file.
        method: a name such as ``"maml"``; by default the dataset's, usually ``"alfa+maml"``.
        backbone: the name of a model; by default the dataset's.
        way: the number of classes in a task.
        shot: the number of support images of each class.
        overrides: as for `load_experiment`.
    """
    choices = Choices(method, backbone, way, shot)
    path = Path(source)
    if path.suffix == ".toml":
        content = choices.apply(read_toml(path))
    else:
        content = _apply_to_base(choices, _dataset_base(str(source)))
    return parse_experiment(content, source=str(source), overrides=overrides)


def compose_for_folder(
    tasks: Mapping[str, Any], *, choices: Choices, overrides: Iterable[str]
) -> Experiment:
    """Compose an experiment for a prepared folder of images; `tasks` names it and the sizes."""
    content = _apply_to_base(choices, merge(_read_base(_FOLDER), {"tasks": tasks}))
    return parse_experiment(content, source=str(tasks["dataset"]), overrides=overrides)


def _apply_to_base(choices: Choices, base: dict[str, Any]) -> dict[str, Any]:
    """Apply the choices, the default method of a base experiment, and its one-shot settings."""
    one_shot, method = base.pop("one_shot", {}), base.pop("method")
    if (choices.shot or base["tasks"].get("shot")) == 1:
        base = merge(base, one_shot)
    return replace(choices, method=choices.method or method).apply(base)


def _dataset_base(dataset: str) -> dict[str, Any]:
    known = datasets()
    if dataset not in known:
        raise ConfigError(
            f"there is no dataset {dataset!r}; known: {', '.join(known)}."
            f"{did_you_mean(dataset, known)}"
        )
    if (_EXPERIMENTS / f"{dataset}.toml").is_file():
        return _read_base(dataset)
    base = _read_base(_GENERATED if dataset in GENERATED_DATASETS else _PREPARED)
    size = SOURCES.get(dataset).size if dataset in SOURCES else None
    return merge(base, {"tasks": without_none({"dataset": dataset, "size": size})})


def _read_base(name: str) -> dict[str, Any]:
    return tomllib.loads((_EXPERIMENTS / f"{name}.toml").read_text(encoding="utf-8"))
