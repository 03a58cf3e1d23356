"""FC100: the classes of CIFAR-100, split by their superclasses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from alfa.data._base import Split
from alfa.data.sources._base import (
    CIFAR_MEAN,
    CIFAR_STD,
    Listing,
    Source,
    Workspace,
    register_source,
)
from alfa.data.sources._cifar100 import LAYOUTS, SIDE, TERMS, find_cifar, of_600


@register_source("fc100")
class FC100(Source):
    """FC100; its test classes are partly training classes of CIFAR-FS."""

    title = "FC100"
    size = SIDE
    mean, std = CIFAR_MEAN, CIFAR_STD
    published: Mapping[Split, tuple[int, int]] = of_600(60, 20, 20)
    layouts = (
        *LAYOUTS,
        "any of these in a zip or tar archive, such as cifar-100-python.tar.gz",
    )
    terms = (
        f"{TERMS}for the split, Oreshkin et al., TADAM: Task Dependent Adaptive Metric for "
        "Improved Few-Shot Learning, 2018."
    )

    def find(self, path: Path, *, work: Workspace) -> Listing:
        return find_cifar(self, "fc100", path, work=work, archives=("*fc*100*",))
