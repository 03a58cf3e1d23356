"""CIFAR-FS: the classes of CIFAR-100, split at random."""

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


@register_source("cifar-fs")
class CIFARFS(Source):
    """CIFAR-FS."""

    title = "CIFAR-FS"
    size = SIDE
    mean, std = CIFAR_MEAN, CIFAR_STD
    published: Mapping[Split, tuple[int, int]] = of_600(64, 16, 20)
    layouts = (
        *LAYOUTS,
        "any of these in a zip or tar archive, such as cifar-100-python.tar.gz or cifar100.zip",
    )
    terms = (
        f"{TERMS}for the split, Bertinetto et al., Meta-Learning with Differentiable Closed-Form "
        "Solvers, 2019."
    )

    def find(self, path: Path, *, work: Workspace) -> Listing:
        return find_cifar(self, "cifar-fs", path, work=work, archives=("*cifar*fs*",))
