"""CUB-200-2011: 200 kinds of birds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from alfa.data._base import Split
from alfa.data.sources._base import Listing, Source, Workspace, register_source
from alfa.data.sources._published import class_folders, class_list, find_published


@register_source("cub")
class CUB(Source):
    """CUB-200-2011, in the split of Chen et al."""

    title = "CUB-200-2011"
    size = 84
    published: Mapping[Split, tuple[int, int]] = {
        "train": (100, 5_885),
        "val": (50, 2_950),
        "test": (50, 2_953),
    }
    layouts = (
        "CUB_200_2011/images/<class>/*.jpg, where a class is called 002.Laysan_Albatross",
        "folders {train,val,test}/<class>/*.jpg or {base,val,novel}/<class>/*.jpg",
        "either in a zip or tar archive, such as CUB_200_2011.tgz",
    )
    terms = (
        "For non-commercial research and education only. Cite Wah et al., The Caltech-UCSD "
        "Birds-200-2011 Dataset, 2011, and, for the split, Chen et al., A Closer Look at Few-Shot "
        "Classification, 2019."
    )

    def find(self, path: Path, *, work: Workspace) -> Listing:
        classes = class_list("cub")
        return find_published(
            self,
            classes,
            path,
            work=work,
            readers=(class_folders(classes),),
            archives=("*cub*",),
        )
