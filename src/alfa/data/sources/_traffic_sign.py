"""GTSRB: 43 kinds of traffic signs, to test on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from alfa.data._base import Split
from alfa.data.sources._base import Listing, Source, Workspace, register_source
from alfa.data.sources._only_test import find_for_test


@register_source("traffic-sign")
class TrafficSign(Source):
    """The training images of the German Traffic Sign Recognition Benchmark, for test."""

    title = "GTSRB traffic signs"
    size = 32
    published: Mapping[Split, tuple[int, int]] = {"test": (43, 39_209)}
    layouts = (
        "GTSRB/Final_Training/Images/<class>/*.ppm, where a class is called 00014",
        "class folders <class>/*",
        "either in a zip or tar archive, such as GTSRB_Final_Training_Images.zip",
    )
    terms = (
        "For research only. Cite Stallkamp et al., Man vs. Computer: Benchmarking Machine Learning "
        "Algorithms for Traffic Sign Recognition, 2012."
    )

    def find(self, path: Path, *, work: Workspace) -> Listing:
        return find_for_test(self, path, work=work)
