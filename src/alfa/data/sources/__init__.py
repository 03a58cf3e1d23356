"""Datasets of images: layouts, downloads, splits, and terms."""

from alfa.data.sources import _meta_dataset as _meta_dataset
from alfa.data.sources._base import (
    SOURCES,
    Item,
    Listing,
    ManualDownload,
    Problem,
    RemoteFile,
    Source,
    Workspace,
    register_source,
)
from alfa.data.sources._cifar100 import CIFARFS, FC100
from alfa.data.sources._class_folders import (
    INNER_FOLDERS,
    FoundClasses,
    find_classes,
    is_image,
    list_files,
    shorten_list,
    split_of_folder,
    subfolders,
)
from alfa.data.sources._cub import CUB
from alfa.data.sources._folder import Folder
from alfa.data.sources._miniimagenet import MiniImageNet
from alfa.data.sources._omniglot import Omniglot
from alfa.data.sources._only_test import TrafficSign, VGGFlower
from alfa.data.sources._published import class_names
from alfa.data.sources._tieredimagenet import TieredImageNet

__all__ = [
    "CIFARFS",
    "CUB",
    "FC100",
    "INNER_FOLDERS",
    "SOURCES",
    "Folder",
    "FoundClasses",
    "Item",
    "Listing",
    "ManualDownload",
    "MiniImageNet",
    "Omniglot",
    "Problem",
    "RemoteFile",
    "Source",
    "TieredImageNet",
    "TrafficSign",
    "VGGFlower",
    "Workspace",
    "class_names",
    "find_classes",
    "is_image",
    "list_files",
    "register_source",
    "shorten_list",
    "split_of_folder",
    "subfolders",
]
