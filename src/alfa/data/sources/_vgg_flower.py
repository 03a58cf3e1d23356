"""VGG Flower: 102 kinds of flowers, to test on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from alfa.data._base import Split
from alfa.data.sources._base import Listing, Source, Workspace, register_source
from alfa.data.sources._only_test import find_for_test


@register_source("vgg-flower")
class VGGFlower(Source):
    """VGG Flower; all of its classes are for test."""

    title = "VGG Flower"
    size = 84
    published: Mapping[Split, tuple[int, int]] = {"test": (102, 8_189)}
    layouts = (
        "class folders <class>/*.jpg; the publisher's archive has all images in one folder, and "
        "must be sorted first",
        "these in a zip or tar archive",
    )
    terms = (
        "For research only. Cite Nilsback & Zisserman, Automated Flower Classification over a "
        "Large Number of Classes, 2008."
    )

    def find(self, path: Path, *, work: Workspace) -> Listing:
        return find_for_test(self, path, work=work)
