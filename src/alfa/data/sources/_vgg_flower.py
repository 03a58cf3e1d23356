"""VGG Flower: 102 species of flowers, for test only."""

from alfa.data.sources._base import ManualDownload, published_counts, register_source
from alfa.data.sources._published import OnlyTestSource


@register_source("vgg-flower")
class VGGFlower(OnlyTestSource):
    """VGG Flower, with all classes for test."""

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
