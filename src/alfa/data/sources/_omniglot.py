"""Omniglot: 1,623 characters of 50 alphabets, each drawn by 20 people."""

from typing import Literal

from alfa.data.sources._base import RemoteFile, published_counts, register_source
from alfa.data.sources._published import PublishedSource
from alfa.errors import check_choice

PARTS = ("images_background", "images_evaluation")
TERMS = (
    "MIT license. Cite Lake et al., Human-Level Concept Learning through Probabilistic Program "
    "Induction, 2015"
)
_LISTS = {"vinyals": "omniglot", "lake": "omniglot-lake"}


def _archive(name: str, num_bytes: int, sha256: str) -> RemoteFile:
    # Addresses and MD5: torchvision.datasets.omniglot. Sizes and SHA-256: tensorflow_datasets
    # (url_checksums/omniglot), which lists the same files under their former address.
    return RemoteFile(
        url=f"https://raw.githubusercontent.com/brendenlake/omniglot/master/python/{name}",
        name=name,
        num_bytes=num_bytes,
        checksum=f"sha256:{sha256}",
        page="https://github.com/brendenlake/omniglot",
    )


@register_source("omniglot")
class Omniglot(PublishedSource):
    """Omniglot; a class is a character without rotations.

    The published list of the split `vinyals` contains every character rotated by 0, 90, 180, and
    270 degrees, always in the same split. Here each character counts once.

    Inputs are normalized by a mean and standard deviation of 0.5, which maps white to 1 and ink
    to -1; they are not statistics of the drawings.

    Args:
        scheme: ``"vinyals"``, 1028, 172, and 423 characters, or ``"lake"``, the 964 characters of
            the 30 background alphabets for training, the 659 characters of the 20 evaluation
            alphabets for test, and no validation split.
    """

    title = "Omniglot"
    size = 28
    num_channels = 1
    mean, std = (0.5,), (0.5,)
    dark_ink = True
    published = published_counts(1028, 172, 423, per_class=20)
    archives = (*(f"*{part}*" for part in PARTS), "*omniglot*")
    depth = 2
    mixed_folders = PARTS
    layouts = (
        "images_background.zip and images_evaluation.zip",
        "their folders images_background/<alphabet>/<character>/*.png and images_evaluation/...",
        "folders <alphabet>/<character>/*.png, also under {train,val,test}",
    )
    terms = (
        f"{TERMS}, and, for the split vinyals, Vinyals et al., Matching Networks for One Shot "
        "Learning, 2016."
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
        sizes = map(len, self.class_list().splits.values())
        self.published = published_counts(*sizes, per_class=20)
