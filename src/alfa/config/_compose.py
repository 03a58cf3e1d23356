"""Experiments composed of a dataset, a method, and a backbone."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from alfa.config._experiment import Experiment
from alfa.config._read import parse_experiment, read_toml
from alfa.data import GENERATED_DATASETS, SOURCES, prepared
from alfa.errors import ConfigError, did_you_mean
from alfa.methods import get_method

# Base experiments for any prepared dataset, for any generated one, and for a folder of images.
_PREPARED, _GENERATED, _FOLDER = "images", "strokes", "folder"


@dataclass(frozen=True)
class Choices:
    """The choices of a user; None keeps the value of the base experiment.

    Attributes:
        method: the name of a method, such as ``"alfa+maml"``; sets the init and the rule.
        backbone: the name of a model, with its default options.
        way: classes of a task.
        shot: support images of each class.
    """

    method: str | None = None
    backbone: str | None = None
    way: int | None = None
    shot: int | None = None

    @property
    def label(self) -> str:
        """The choices that were made, for the name of a run folder; empty if there are none."""
        sizes = {"way": self.way, "shot": self.shot}
        words = [f"{value}{key}" for key, value in sizes.items() if value is not None]
        return "-".join(filter(None, [self.method, self.backbone, *words]))

    def apply(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """An experiment with these choices, before it is validated."""
        changed = _merged(content, {"tasks": _given(way=self.way, shot=self.shot)})
        if self.backbone is not None:
            changed["model"] = {"name": self.backbone}
        if self.method is not None:
            method = get_method(self.method)
            changed |= {"init": dict(method.init), "rule": dict(method.rule)}
            changed = _merged(changed, method.settings)
        return changed


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _merged(content: Mapping[str, Any], sections: Mapping[str, Any]) -> dict[str, Any]:
    """The content with values of its sections replaced; what is no section is left as it is."""
    merged = dict(content)
    for key, values in sections.items():
        section = merged.get(key, {})
        if values and isinstance(section, Mapping):
            merged[key] = {**section, **values}
    return merged


def datasets() -> list[str]:
    """The names that `compose` accepts: generated, known, and prepared datasets."""
    folder = resources.files("alfa") / "experiments"
    bases = {Path(file.name).stem for file in folder.iterdir() if file.name.endswith(".toml")}
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
        method: a name such as ``"maml"``; by default that of the dataset, usually ``"alfa+maml"``.
        backbone: the name of a model; by default that of the dataset.
        way: classes of a task.
        shot: support images of each class.
        overrides: such as ``"outer.num_iterations=100"``; values are TOML, or else text.

    Raises:
        ConfigError: there is no such dataset or method, or the experiment is invalid; lists
            everything that is wrong.
    """
    choices = Choices(method, backbone, way, shot)
    path = Path(source)
    if path.suffix == ".toml":
        content = choices.apply(read_toml(path))
    else:
        content = _chosen(_of_dataset(str(source)), choices)
    return parse_experiment(content, source=str(source), overrides=overrides)


def compose_for_folder(
    tasks: Mapping[str, Any], *, choices: Choices, overrides: Iterable[str]
) -> Experiment:
    """Compose an experiment for a prepared folder of images.

    Args:
        tasks: the dataset and the sizes of its tasks.
        choices: the choices of the user.
        overrides: as for `compose`.

    Raises:
        ConfigError: the experiment is invalid.
    """
    content = _chosen(_merged(_base(_FOLDER), {"tasks": tasks}), choices)
    return parse_experiment(content, source=str(tasks["dataset"]), overrides=overrides)


def _chosen(base: dict[str, Any], choices: Choices) -> dict[str, Any]:
    """A base experiment with the choices, its default method, and its settings for one shot."""
    one_shot, method = base.pop("one_shot", {}), base.pop("method")
    if (choices.shot or base["tasks"].get("shot")) == 1:
        base = _merged(base, one_shot)
    return replace(choices, method=choices.method or method).apply(base)


def _of_dataset(dataset: str) -> dict[str, Any]:
    known = datasets()
    if dataset not in known:
        raise ConfigError(
            f"there is no dataset {dataset!r}; known: {', '.join(known)}."
            f"{did_you_mean(dataset, known)}"
        )
    folder = resources.files("alfa") / "experiments"
    if (folder / f"{dataset}.toml").is_file():
        return _base(dataset)
    base = _base(_GENERATED if dataset in GENERATED_DATASETS else _PREPARED)
    size = SOURCES.get(dataset).size if dataset in SOURCES else None
    return _merged(base, {"tasks": _given(dataset=dataset, size=size)})


def _base(name: str) -> dict[str, Any]:
    folder = resources.files("alfa") / "experiments"
    return tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
