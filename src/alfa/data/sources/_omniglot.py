"""Omniglot: 1,623 characters of 50 alphabets, each drawn by 20 people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from alfa.data.sources._base import RemoteFile, Workspace, published_counts, register_source
from alfa.data.sources._class_folders import Reader
from alfa.data.sources._published import PublishedSource, class_folders
from alfa.errors import check_choice

PARTS = ("images_background", "images_evaluation")
_NUM_DRAWINGS = 20
_LISTS = {"vinyals": "omniglot", "lake": "omniglot-lake"}


def _archive(name: str, num_bytes: int, sha256: str) -> RemoteFile:
    # Addresses and MD5: torchvision.datasets.omniglot. Sizes and SHA-256: tensorflow_datasets,
    # url_checksums/omniglot, where the same files have their former address below github.com.
    return RemoteFile(
        url=f"https://raw.githubusercontent.com/brendenlake/omniglot/master/python/{name}",
        name=name,
        num_bytes=num_bytes,
        checksum=f"sha256:{sha256}",
        page="https://github.com/brendenlake/omniglot",
    )


@register_source("omniglot")
class Omniglot(PublishedSource):
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
    dark_ink = True
    published = published_counts(1028, 172, 423, per_class=_NUM_DRAWINGS)
    archives = (*(f"*{part}*" for part in PARTS), "*omniglot*")
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
    downloads = (
        _archive(
            "images_background.zip",
            9_464_212,
            "ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640",
        ),
        _archive(
            "images_evaluation.zip",
            6_462_886,
            "1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee",
        ),
    )

    def __init__(self, *, scheme: Literal["vinyals", "lake"] = "vinyals") -> None:
        check_choice("scheme", scheme, _LISTS)
        self.list_name = _LISTS[scheme]
        train, val, test = map(len, self.class_list().splits.values())
        self.published = published_counts(train, val, test, per_class=_NUM_DRAWINGS)

    def readers(self, work: Workspace) -> Sequence[Reader]:
        return (class_folders(self.class_list(), depth=2, parts=PARTS),)
