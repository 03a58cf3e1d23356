"""VGG Flower: 102 kinds of flowers, to test on."""

from __future__ import annotations

from alfa.data.sources._base import ManualDownload, published_counts, register_source
from alfa.data.sources._published import OnlyTestSource


@register_source("vgg-flower")
class VGGFlower(OnlyTestSource):
    """VGG Flower; all of its classes are for test."""

    title = "VGG Flower"
    size = 84
    published = published_counts(0, 0, 102, images=(0, 0, 8_189))
    layouts = (
        "class folders <class>/*.jpg; the publisher's archive has all images in one folder, and "
        "must be sorted first",
        "these in a zip or tar archive",
    )
    terms = (
        "For research only. Cite Nilsback & Zisserman, Automated Flower Classification over a "
        "Large Number of Classes, 2008."
    )
    # Names and page: torchvision.datasets.flowers102.
    manual_download = ManualDownload(
        "its archive has the images of all classes in one folder",
        "102flowers.tgz and imagelabels.mat",
        "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/",
        steps="sort the images into a folder for each label, ",
    )
