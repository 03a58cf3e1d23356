"""Meta-learning on features of EfficientNet-Lite0: heads, inner steps, and training classes.

    python benchmarks/photo_meta.py prepare CUB CIFAR   prepares datasets
    python benchmarks/photo_meta.py run                 trains and tests; can be resumed
    python benchmarks/photo_meta.py report              writes docs/features.md

CUB is a folder with the class folders of the validation and the test split of CUB in ``val`` and
``novel``, and CIFAR is the folder ``cifar-100-python``. Needs the extra `photos`. The first 35
validation classes of CUB are for training, and the other 15 for validation; every choice of a
default used only these. The 50 test classes are used once, in the last table.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import choose, figure, table, write_part

from alfa._io import write_atomic
from alfa.build import build_learner, build_tasks, trainer_options
from alfa.config import Experiment, compose
from alfa.data import SOURCES, Classes, FeatureSet, FewShot, ImageSet, data_folder, open_images
from alfa.data import prepare as prepare_store
from alfa.evaluation import Evaluation, difference, evaluate
from alfa.runs import Run
from alfa.training import Progress, Trainer
from alfa.types import Episode

RUNS = Path("runs/photo-meta")
RESULTS = Path("docs/results/photo-meta.json")
PAGE = Path("docs/features.md")
BACKBONE, DATASET, OTHERS = "efficientnet-lite0", "cub-meta", "cifar-fs"
NUM_TRAIN = 35
# Images of each class of CIFAR-FS.
NUM_OTHERS = 100
NUM_TASKS, SEED = 600, 1
SHOTS = (5, 1)
REFERENCE = "default head"

_UNTRAINED = "model.frozen=true", "model.learned_map=false"
_DEFAULT = "model.power=1.0", "head.inverse_regularization=1.0"
# For each variant: its method, and changes to the defaults.
HEADS: dict[str, tuple[str, tuple[str, ...]]] = {
    REFERENCE: ("logistic", (*_UNTRAINED, *_DEFAULT)),
    "logistic, untrained": ("logistic", _UNTRAINED),
    "ridge, untrained": ("ridge", _UNTRAINED),
    "prototype, untrained": ("prototype", _UNTRAINED),
    **{
        name: (name, ())
        for head in ("logistic", "ridge", "prototype")
        for name in (head, f"alfa+{head}")
    },
    "alfa+maml": ("alfa+maml", ()),
}
_MAP = 'init.adapt=["head", "map.weight"]', "inner.num_steps=2"
_TWENTY = "tasks.train_way=20", "tasks.train_num_query=5", "outer.num_tasks=1"
CHANGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "ALFA also adapts the map": ("alfa+ridge", _MAP),
    "features instead of their square roots": ("ridge", ("model.power=1.0",)),
    "no learned map": ("ridge", ("model.learned_map=false",)),
    "no weight decay": ("ridge", ("optimizer.weight_decay=0.0",)),
    "weight decay 0.3": ("ridge", ("optimizer.weight_decay=0.3",)),
    "learning rate 0.0003": ("ridge", ("optimizer.learning_rate=0.0003",)),
    "learning rate 0.001": ("ridge", ("optimizer.learning_rate=0.001",)),
    "20-way training tasks": ("ridge", _TWENTY),
    "1-shot training tasks": ("ridge", ("tasks.train_shot=1",)),
    "regularization 0.001": ("ridge", ("init.regularization=0.001",)),
    "regularization 0.1": ("ridge", ("init.regularization=0.1",)),
}
# Variants of `ridge` by the training classes: the number of CUB's, and the share of tasks of CIFAR.
CLASSES: dict[str, tuple[int, float]] = {
    "5 classes of CUB": (5, 0.0),
    "10 classes of CUB": (10, 0.0),
    "20 classes of CUB": (20, 0.0),
    "35 classes of CUB": (35, 0.0),
    "35 classes of CUB, 64 of CIFAR-100": (35, 0.5),
    "64 classes of CIFAR-100": (0, 1.0),
}
# Tested on the test classes; the last one trains on all 50 classes, for the default iterations.
TESTED = (REFERENCE, "ridge, untrained", "logistic", "ridge", "prototype", "alfa+ridge")
ALL_CLASSES = "ridge, 50 training classes"


class WithOthers(FewShot):
    """Few-shot tasks of which a share of the training tasks come from another dataset."""

    def __init__(self, images: Any, others: Any, share: float, **sizes: int) -> None:
        super().__init__(images, **sizes)
        self.others, self.share = FewShot(others, **sizes), share

    def episode(
        self, first: int, *, num_tasks: int, split: Any = "train", seed: int = 0
    ) -> Episode:
        own = super().episode
        if split != "train" or not self.share:
            return own(first, num_tasks=num_tasks, split=split, seed=seed)
        every = round(1 / self.share)
        tasks = [
            (self.others.episode if index % every == 0 else own)(
                index, num_tasks=1, split=split, seed=seed
            )
            for index in range(first, first + num_tasks)
        ]
        parts = ("support_x", "support_y", "query_x", "query_y")
        return Episode(*(torch.cat([getattr(task, part) for task in tasks]) for part in parts))


def prepare(cub: str, cifar: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        names = {split: sorted(os.listdir(Path(cub, split))) for split in ("val", "novel")}
        listed = {"train": names["val"][:NUM_TRAIN], "val": names["val"][NUM_TRAIN:]}
        listed["test"] = names["novel"]
        for split, classes in listed.items():
            Path(folder, split).mkdir()
            for name in classes:
                source = Path(cub, "novel" if split == "test" else "val", name).resolve()
                Path(folder, split, name).symlink_to(source)
        source = SOURCES.get("folder")(split="folders")
        prepare_store(source, Path(folder), root=data_folder(), name=DATASET, size=84)
    prepare_store(SOURCES.get(OTHERS)(), Path(cifar), root=data_folder())


def known() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def limited(images: ImageSet, *, num_classes: int | None = None, num_images: int = 600) -> ImageSet:
    """Return images with fewer training classes, or fewer images in each."""
    c = images.splits["train"]
    count = c.count[:num_classes].clip(max=num_images)
    train = Classes(c.names[:num_classes], c.first[:num_classes], count)
    return replace(images, splits={**images.splits, "train": train})


def of_classes(num_classes: int, share: float) -> FewShot:
    """Return tasks whose training classes are the first ones of CUB, and those of CIFAR-FS."""
    own = limited(open_images(DATASET), num_classes=num_classes or NUM_TRAIN)
    others = limited(open_images(OTHERS), num_images=NUM_OTHERS)
    own, others = (FeatureSet.saved(images, BACKBONE) for images in (own, others))
    return WithOthers(own, others, share, way=5, shot=5, num_query=15)


def all_classes() -> FewShot:
    """Return tasks with all 50 classes for training."""
    images = open_images(DATASET)
    first, second = (images.splits[split] for split in ("train", "val"))
    train = Classes(
        [*first.names, *second.names],
        np.concatenate([first.first, second.first]),
        np.concatenate([first.count, second.count]),
    )
    images = replace(images, splits={**images.splits, "train": train})
    return FewShot(FeatureSet.saved(images, BACKBONE), way=5, shot=5, num_query=15)


def run() -> None:
    jobs: dict[str, tuple[Experiment, FewShot | None]] = {
        name: (compose(DATASET, backbone=BACKBONE, method=method, overrides=overrides), None)
        for name, (method, overrides) in {**HEADS, **CHANGES}.items()
    }
    ridge = compose(DATASET, backbone=BACKBONE, method="ridge")
    for name, (num_classes, share) in CLASSES.items():
        jobs[name] = ridge, of_classes(num_classes, share)
    jobs[ALL_CLASSES] = ridge, all_classes()
    for name, (experiment, tasks) in jobs.items():
        if name not in known():
            found = measured(name, experiment, tasks)
            content = json.dumps({**known(), name: found}, sort_keys=True)
            write_atomic(RESULTS, f"{content}\n".encode())
            print(name, {key: figure(each) for key, each in found["tests"].items()}, flush=True)


def measured(name: str, experiment: Experiment, tasks: FewShot | None) -> dict[str, Any]:
    """Train a variant, and evaluate it on classes that it was not trained on."""
    tasks = build_tasks(experiment) if tasks is None else tasks
    learner = build_learner(experiment, tasks)
    trainer = Trainer(learner, tasks, **trainer_options(experiment, learner, tasks))
    path = RUNS / name.replace(" ", "-")
    began = time.perf_counter()
    trained = trainer.fit(Run.new(path, experiment), resume="auto", on_progress=show)
    seconds = time.perf_counter() - began
    # With all classes in training, there are none for a selection.
    learner = Run.open(path).learner("last" if name == ALL_CLASSES else "best")
    splits = ["test"] if name == ALL_CLASSES else ["val", *(["test"] if name in TESTED else [])]
    tests = {}
    for split in splits:
        for shot in SHOTS:
            overrides = [f"tasks.shot={shot}"]
            own = build_tasks(compose(DATASET, backbone=BACKBONE, overrides=overrides))
            found = evaluate(learner, own, num_tasks=NUM_TASKS, split=split, seed=SEED)
            tests[f"{split}, {shot}-shot"] = asdict(found)
    kept = {key: trained[key] for key in ("best_iteration", "num_iterations", "seconds")}
    return {**kept, "total_seconds": round(seconds, 1), "tests": tests}


def show(progress: Progress) -> None:
    if progress.record is not None:
        print(progress.record, flush=True)


def report() -> None:
    if not known():
        sys.exit("There are no results; run `python benchmarks/photo_meta.py run` first.")
    lines: list[str] = []
    for title, names in (
        ("Heads and inner steps", HEADS),
        ("Changes to `ridge`", ["ridge", *CHANGES]),
        ("Training classes", CLASSES),
    ):
        # The default head alone is no comparison.
        if any(name in known() for name in names if name not in (REFERENCE, "ridge")):
            lines += [f"### {title}", "", *rows_of(names, "val")]
    lines += ["### Test classes", "", *rows_of([*TESTED, ALL_CLASSES], "test")]
    write_part(PAGE, "photo_meta.py", lines)


def rows_of(names: Sequence[str], split: str) -> list[str]:
    results = known()
    rows = []
    for name in names:
        if name not in results:
            continue
        row = [f"`{name}`" if name in HEADS and " " not in name else name]
        for shot in SHOTS:
            key = f"{split}, {shot}-shot"
            own, reference = (results[each]["tests"][key] for each in (name, REFERENCE))
            over = difference(Evaluation(**own), Evaluation(**reference))
            gain = f"{100 * over.mean:+.2f} +- {100 * (over.interval or 0):.2f}"
            row += [f"{100 * own['accuracy']:.2f}", "" if name == REFERENCE else gain]
        rows.append([*row, str(results[name]["best_iteration"])])
    head = ["variant", "5-shot", "over the default head", "1-shot", "over the default head"]
    return table([*head, "best iteration"], rows)


if __name__ == "__main__":
    choose(__doc__, prepare, run, report)
