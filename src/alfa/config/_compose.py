"""Compose experiments from a dataset, a method, and a backbone."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from alfa.backbones import BACKBONES, is_backbone
from alfa.config._experiment import Experiment, without_none
from alfa.config._read import import_plugins, parse_experiment, read_toml
from alfa.data import GENERATED_DATASETS, SOURCES, TASKS, prepared
from alfa.errors import ConfigError, did_you_mean
from alfa.methods import get_method, merge
from alfa.models import MODELS

_EXPERIMENTS = resources.files("alfa") / "experiments"
# Base experiments for any prepared dataset, any generated one, a folder of images, and any of these
# with a pretrained backbone.
_PREPARED, _GENERATED, _FOLDER, _FEATURES = "images", "strokes", "folder", "features"
# The model of tasks whose inputs are features of a pretrained backbone.
_FEATURE_MODEL = {"name": "features"}


@dataclass(frozen=True)
class Choices:
    """The choices of a user; None keeps the value of the base experiment.

    The method sets the init and the rule. The backbone is a model with its default options, or a
    pretrained one, whose features replace the images.
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
        # Names such as timm:resnet50 contain characters that some file systems forbid.
        backbone = self.backbone and re.sub(r"[^\w.+-]+", "-", self.backbone)
        return "-".join(filter(None, [self.method, backbone, *words]))

    @property
    def is_pretrained(self) -> bool:
        """Whether the backbone is a pretrained one."""
        return self.backbone is not None and is_backbone(self.backbone)

    def apply(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return an experiment with these choices, before validation."""
        changed = merge(content, {"tasks": without_none({"way": self.way, "shot": self.shot})})
        if self.backbone is not None:
            changed = _with_backbone(changed, self.backbone)
        if self.method is not None:
            changed = get_method(self.method).apply(changed)
        return changed


def datasets() -> list[str]:
    """Return the datasets that `compose` accepts: generated, known, and prepared ones."""
    names = [file.name for file in _EXPERIMENTS.iterdir()]
    bases = {name.removesuffix(".toml") for name in names if name.endswith(".toml")}
    trainable = {name for name in SOURCES if "train" in SOURCES.get(name).published}
    return sorted(
        {*bases - {_PREPARED, _FOLDER, _FEATURES}, *GENERATED_DATASETS, *trainable, *prepared()}
    )


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
        backbone: the name of a model or of a pretrained backbone, such as
            ``"efficientnet-lite0"``; by default the dataset's model.
        way: the number of classes in a task.
        shot: the number of support images of each class.
        overrides: as for `load_experiment`.
    """
    choices = Choices(method, backbone, way, shot)
    path = Path(source)
    if path.suffix == ".toml":
        content = read_toml(path)
        # A plugin may register the chosen backbone. Parsing reports plugins that fail.
        if not import_plugins(content.get("plugins", ()), path.parent):
            content = choices.apply(content)
    else:
        base = _dataset_base(str(source))
        if choices.is_pretrained:
            base = {**_read_base(_FEATURES), "tasks": base["tasks"]}
        content = _apply_to_base(choices, base)
    return parse_experiment(content, source=str(source), overrides=overrides)


def compose_for_folder(
    tasks: Mapping[str, Any], *, choices: Choices, overrides: Iterable[str]
) -> Experiment:
    """Compose an experiment for a prepared folder of images; `tasks` names it and the sizes."""
    base = _read_base(_FEATURES if choices.is_pretrained else _FOLDER)
    content = _apply_to_base(choices, merge(base, {"tasks": tasks}))
    return parse_experiment(content, source=str(tasks["dataset"]), overrides=overrides)


def _apply_to_base(choices: Choices, base: dict[str, Any]) -> dict[str, Any]:
    """Apply the choices, the default method of a base experiment, and its one-shot settings."""
    one_shot, method = base.pop("one_shot", {}), base.pop("method")
    if (choices.shot or base["tasks"].get("shot")) == 1:
        base = merge(base, one_shot)
    return replace(choices, method=choices.method or method).apply(base)


def _with_backbone(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an experiment with another model, or with features of a pretrained backbone."""
    tasks = content.get("tasks")
    if not isinstance(tasks, Mapping):
        # The validation reports it.
        return {**content, "model": {"name": name}}
    if not is_backbone(name):
        if name not in MODELS:
            known = [*MODELS, *BACKBONES]
            raise ConfigError(
                f"there is no backbone {name!r}; models: {', '.join(MODELS)}; pretrained "
                f"backbones: {', '.join(BACKBONES)}.{did_you_mean(name, known)}"
            )
        others = {key: value for key, value in tasks.items() if key != "backbone"}
        return {**content, "tasks": others, "model": {"name": name}}
    kind = tasks.get("name")
    if kind in TASKS and "backbone" not in TASKS.options(str(kind)):
        raise ConfigError(
            f"the pretrained backbone {name!r} takes images, but tasks.name is {kind!r}; use tasks "
            f"of images, or one of the models {', '.join(MODELS)}."
        )
    return {**content, "tasks": {**tasks, "backbone": name}, "model": _FEATURE_MODEL}


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
