"""Datasets of class folders, all of them for test."""

from pathlib import Path

from alfa.data.sources._base import (
    Listing,
    ManualDownload,
    RemoteFile,
    Source,
    Workspace,
    published_counts,
    register_source,
)
from alfa.data.sources._class_folders import find_classes


class _OnlyTest(Source):
    def find(self, path: Path, *, work: Workspace) -> Listing:
        found = find_classes(self, path, work=work)
        return Listing.of({"test": found.by_name()}, found.problems, self.published)


@register_source("vgg-flower")
class VGGFlower(_OnlyTest):
    """VGG Flower: 102 species of flowers."""

    title = "VGG Flower"
    size = 84
    published = published_counts(0, 0, 102, images=(0, 0, 8_189))
    layouts = (
        "class folders <class>/*.jpg; sort the images of the publisher's archive into them first",
        "these in a zip or tar archive",
    )
    terms = (
        "For research only. Cite Nilsback & Zisserman, Automated Flower Classification over a "
        "Large Number of Classes, 2008."
    )
    # Names and page: torchvision.datasets.flowers102.
    manual_download = ManualDownload(
        "the archive keeps the images of all classes in one folder",
        "102flowers.tgz and imagelabels.mat",
        "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/",
        steps="sort the images into a folder for each label, ",
    )


@register_source("traffic-sign")
class TrafficSign(_OnlyTest):
    """The training images of the German Traffic Sign Recognition Benchmark: 43 classes."""

    title = "GTSRB traffic signs"
    size = 32
    published = published_counts(0, 0, 43, images=(0, 0, 39_209))
    layouts = (
        "GTSRB/Final_Training/Images/<class>/*.ppm, with classes such as 00014",
        "class folders <class>/*",
        "either in a zip or tar archive, such as GTSRB_Final_Training_Images.zip",
    )
    terms = (
        "For research only. Cite Stallkamp et al., Man vs. Computer: Benchmarking Machine Learning "
        "Algorithms for Traffic Sign Recognition, 2012."
    )
    # Address, size, and MD5: the benchmark's archive at sid.erda.dk; torchvision.datasets.gtsrb
    # downloads other files from the same place.
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
