"""Omniglot: 1,623 characters of 50 alphabets, each drawn by 20 people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from alfa.data._base import Split
from alfa.data.sources._base import Listing, Source, Workspace, register_source
from alfa.data.sources._published import class_folders, class_list, find_published
from alfa.errors import check_choice

_NUM_DRAWINGS = 20
_LISTS = {"vinyals": "omniglot", "lake": "omniglot-lake"}


@register_source("omniglot")
class Omniglot(Source):
    """Omniglot; a class is a character as it was drawn.

    The published list of the split `vinyals` has every character four times, turned by 0, 90, 180
    and 270 degrees, always in the same split. Here it counts once: turned drawings are made from
    the others, and are not data.

    The mean and the standard deviation that inputs are normalised by are both 0.5, which brings
    white to 1 and ink to -1; they are not those of the drawings.

    Args:
        scheme: ``"vinyals"``, 1028, 172 and 423 characters, or ``"lake"``, 964 of the 30
            background alphabets for training and 659 of the 20 evaluation alphabets for test,
            which has no validation split.
    """

    title = "Omniglot"
    size = 28
    num_channels = 1
    mean, std = (0.5,), (0.5,)
    published: Mapping[Split, tuple[int, int]] = {
        "train": (1028, 20_560),
        "val": (172, 3_440),
        "test": (423, 8_460),
    }
    layouts = (
        "images_background.zip and images_evaluation.zip",
        "their folders images_background/<alphabet>/<character>/*.png and images_evaluation/...",
        "folders <alphabet>/<character>/*.png, also under {train,val,test}",
    )
    terms = (
        "MIT licence. Cite Lake et al., Human-Level Concept Learning through Probabilistic Program "
        "Induction, 2015, and, for the split vinyals, Vinyals et al., Matching Networks for One "
        "Shot Learning, 2016."
    )

    def __init__(self, *, scheme: Literal["vinyals", "lake"] = "vinyals") -> None:
        check_choice("scheme", scheme, _LISTS)
        self._classes = class_list(_LISTS[scheme])
        self.published = {
            split: (len(names), _NUM_DRAWINGS * len(names))
            for split, names in self._classes.splits.items()
            if names
        }

    def find(self, path: Path, *, work: Workspace) -> Listing:
        parts = ("images_background", "images_evaluation")
        return find_published(
            self,
            self._classes,
            path,
            work=work,
            readers=(class_folders(self._classes, depth=2, parts=parts),),
            archives=(*(f"*{part}*" for part in parts), "*omniglot*"),
        )
