"""Datasets of images, one file each, and the layouts in which they are found."""

from alfa.data.sources._base import (
    SOURCES,
    Item,
    Listing,
    Problem,
    Source,
    Workspace,
    register_source,
)
from alfa.data.sources._cifar_fs import CIFARFS
from alfa.data.sources._cub import CUB
from alfa.data.sources._fc100 import FC100
from alfa.data.sources._folder import Folder
from alfa.data.sources._meta_dataset import (
    MDILSVRC,
    MDMSCOCO,
    MDAircraft,
    MDBirds,
    MDFlower,
    MDFungi,
    MDOmniglot,
    MDQuickDraw,
    MDTextures,
    MDTrafficSign,
)
from alfa.data.sources._miniimagenet import MiniImageNet
from alfa.data.sources._omniglot import Omniglot
from alfa.data.sources._published import class_names, read_split
from alfa.data.sources._tieredimagenet import TieredImageNet
from alfa.data.sources._traffic_sign import TrafficSign
from alfa.data.sources._vgg_flower import VGGFlower

__all__ = [
    "CIFARFS",
    "CUB",
    "FC100",
    "Folder",
    "Item",
    "Listing",
    "MDAircraft",
    "MDBirds",
    "MDFlower",
    "MDFungi",
    "MDILSVRC",
    "MDMSCOCO",
    "MDOmniglot",
    "MDQuickDraw",
    "MDTextures",
    "MDTrafficSign",
    "MiniImageNet",
    "Omniglot",
    "Problem",
    "SOURCES",
    "Source",
    "TieredImageNet",
    "TrafficSign",
    "VGGFlower",
    "Workspace",
    "class_names",
    "read_split",
    "register_source",
]
