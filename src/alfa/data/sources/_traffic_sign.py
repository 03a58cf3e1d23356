"""GTSRB: 43 kinds of traffic signs, to test on."""

from __future__ import annotations

from alfa.data.sources._base import RemoteFile, published_counts, register_source
from alfa.data.sources._published import OnlyTestSource


@register_source("traffic-sign")
class TrafficSign(OnlyTestSource):
    """The training images of the German Traffic Sign Recognition Benchmark, for test."""

    title = "GTSRB traffic signs"
    size = 32
    published = published_counts(0, 0, 43, images=(0, 0, 39_209))
    layouts = (
        "GTSRB/Final_Training/Images/<class>/*.ppm, where a class is called 00014",
        "class folders <class>/*",
        "either in a zip or tar archive, such as GTSRB_Final_Training_Images.zip",
    )
    terms = (
        "For research only. Cite Stallkamp et al., Man vs. Computer: Benchmarking Machine Learning "
        "Algorithms for Traffic Sign Recognition, 2012."
    )
    # Address, size and MD5: the archive of the benchmark at sid.erda.dk, as in public loaders;
    # torchvision.datasets.gtsrb uses the same place, but other files.
    downloads = (
        RemoteFile(
            url="https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/"
            "GTSRB_Final_Training_Images.zip",
            name="GTSRB_Final_Training_Images.zip",
            num_bytes=276_294_756,
            checksum="md5:f33fd80ac59bff73c82d25ab499e03a3",
            page="https://benchmark.ini.rub.de/gtsrb_dataset.html",
        ),
    )
