"""The ten sources of Meta-Dataset, with its splits, in the layouts of their publishers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from alfa.data._base import Split
from alfa.data.sources._base import Listing, Source, Workspace, register_source
from alfa.data.sources._folders import Reader
from alfa.data.sources._meta_dataset_layouts import (
    read_aircraft,
    read_flowers,
    read_fungi,
    read_mscoco,
    read_quick_draw,
)
from alfa.data.sources._published import class_folders, class_list, find_published
from alfa.types import Count

_CITE = "Triantafillou et al., Meta-Dataset, 2020"
# The published names say which split a class belongs to; these folders do not.
_PARTS = ("train", "val", "valid", "test", "base", "novel")
_FOLDERS = "class folders <class>/*, also under {train,val,test}, or these in an archive"


class _OfMetaDataset(Source):
    """A source of Meta-Dataset, found by its list of classes.

    Attributes:
        list_name: of its classes.
        archives: patterns of the paths of its archives, in lower case; none where several must be
            unpacked into one folder.
        parts: names of folders that hold classes of any split.
    """

    size = 84
    mean: Sequence[float] = (0.5, 0.5, 0.5)
    std: Sequence[float] = (0.5, 0.5, 0.5)
    list_name: ClassVar[str]
    archives: ClassVar[Sequence[str]] = ()
    parts: ClassVar[Sequence[str]] = _PARTS

    def readers(self) -> Sequence[Reader]:
        """Of its layouts, the likeliest first."""
        return (self.folders(),)

    def folders(self, *, depth: int = 1) -> Reader:
        """A reader of class folders, which may lie under those of other splits than this one."""
        classes = class_list(self.list_name)
        return class_folders(classes, depth=depth, parts=self.parts, splits=False)

    def find(self, path: Path, *, work: Workspace) -> Listing:
        return find_published(
            self,
            class_list(self.list_name),
            path,
            work=work,
            readers=self.readers(),
            archives=self.archives,
        )


@register_source("md-ilsvrc")
class MDILSVRC(_OfMetaDataset):
    """ILSVRC-2012: the 1,000 classes of its training images, whose tasks follow WordNet.

    The few images that Meta-Dataset leaves out because other datasets have them, too, are kept.
    """

    title = "ILSVRC-2012"
    list_name = "md-ilsvrc"
    published: Mapping[Split, tuple[int, int | None]] = {
        "train": (712, None),
        "val": (158, None),
        "test": (130, None),
    }
    parts = ("train",)
    layouts = (
        "ILSVRC2012_img_train/<wnid>/*.JPEG, or any folder of such folders",
        "ILSVRC/Data/CLS-LOC/train/<wnid>/*.JPEG",
    )
    terms = f"ImageNet's terms. Cite Russakovsky et al., ImageNet Challenge, 2015, and {_CITE}."


@register_source("md-omniglot")
class MDOmniglot(_OfMetaDataset):
    """Omniglot: 50 alphabets, each in one split; a task has characters of one alphabet."""

    title = "Omniglot"
    num_channels = 1
    mean, std = (0.5,), (0.5,)
    list_name = "md-omniglot"
    published: Mapping[Split, tuple[int, int | None]] = {
        "train": (883, 17_660),
        "val": (81, 1_620),
        "test": (659, 13_180),
    }
    archives = ("*images_background*", "*images_evaluation*", "*omniglot*")
    parts = (*_PARTS, "images_background", "images_evaluation")
    layouts = (
        "images_background.zip and images_evaluation.zip, or their folders",
        "folders <alphabet>/<character>/*.png, also under {train,val,test}",
    )
    terms = (
        "MIT licence. Cite Lake et al., Human-Level Concept Learning through Probabilistic Program "
        f"Induction, 2015, and {_CITE}."
    )

    def readers(self) -> Sequence[Reader]:
        return (self.folders(depth=2),)


@register_source("md-aircraft")
class MDAircraft(_OfMetaDataset):
    """FGVC-Aircraft: 100 variants, each image cut out by the box of its aircraft."""

    title = "FGVC-Aircraft"
    list_name = "md-aircraft"
    published: Mapping[Split, tuple[int, int | None]] = {
        "train": (70, 7_000),
        "val": (15, 1_500),
        "test": (15, 1_500),
    }
    archives = ("*aircraft*",)
    layouts = (
        "fgvc-aircraft-2013b/data with images/*.jpg, images_box.txt and images_variant_*.txt",
        f"{_FOLDERS}, already cut out",
    )
    terms = (
        "For non-commercial research only. Cite Maji et al., Fine-Grained Visual Classification of "
        f"Aircraft, 2013, and {_CITE}."
    )

    def readers(self) -> Sequence[Reader]:
        return read_aircraft, self.folders()


@register_source("md-birds")
class MDBirds(_OfMetaDataset):
    """CUB-200-2011: 200 kinds of birds, in another split than the dataset `cub`."""

    title = "CUB-200-2011"
    list_name = "md-birds"
    published: Mapping[Split, tuple[int, int | None]] = {
        "train": (140, None),
        "val": (30, None),
        "test": (30, None),
    }
    archives = ("*cub*",)
    layouts = (
        "CUB_200_2011/images/<class>/*.jpg, where a class is called 002.Laysan_Albatross",
        _FOLDERS,
    )
    terms = (
        "For non-commercial research and education only. Cite Wah et al., The Caltech-UCSD "
        f"Birds-200-2011 Dataset, 2011, and {_CITE}."
    )


@register_source("md-textures")
class MDTextures(_OfMetaDataset):
    """DTD: 47 kinds of textures."""

    title = "Describable Textures"
    list_name = "md-textures"
    published: Mapping[Split, tuple[int, int | None]] = {
        "train": (33, 3_960),
        "val": (7, 840),
        "test": (7, 840),
    }
    archives = ("*dtd*",)
    layouts = ("dtd/images/<class>/*.jpg", _FOLDERS)
    terms = (
        "For research only. Cite Cimpoi et al., Describing Textures in the Wild, 2014, and "
        f"{_CITE}."
    )


@register_source("md-quickdraw")
class MDQuickDraw(_OfMetaDataset):
    """Quick, Draw!: drawings of 345 kinds of things.

    Args:
        max_per_class: drawings that are taken of a class, from the first, as all 50 million would
            fill the disk; the classes then are all of one size.
    """

    title = "Quick, Draw!"
    size = 28
    num_channels = 1
    mean, std = (0.5,), (0.5,)
    list_name = "md-quickdraw"
    published: Mapping[Split, tuple[int, int | None]] = {
        "train": (241, None),
        "val": (52, None),
        "test": (52, None),
    }
    archives = ("*quick*draw*",)
    layouts = (
        "the bitmaps <class>.npy, uint8 [drawing, 784], as the publisher has them",
        _FOLDERS,
    )
    terms = (
        f"Creative Commons BY 4.0. Cite Jongejan et al., The Quick, Draw! Game, 2016, and {_CITE}."
    )

    def __init__(self, *, max_per_class: Count = 2_000) -> None:
        self._max_per_class = max_per_class

    def readers(self) -> Sequence[Reader]:
        classes, limit = class_list(self.list_name), self._max_per_class
        return lambda path: read_quick_draw(path, classes, limit), self.folders()


@register_source("md-fungi")
class MDFungi(_OfMetaDataset):
    """FGVCx Fungi: 1,394 kinds of mushrooms."""

    title = "FGVCx Fungi"
    list_name = "md-fungi"
    published: Mapping[Split, tuple[int, int | None]] = {
        "train": (994, None),
        "val": (200, None),
        "test": (200, None),
    }
    layouts = (
        "train.json, val.json and the folder images, as the publisher has them",
        f"{_FOLDERS}, where a class is called 0008.Agaricus campestris",
    )
    terms = f"For research only. Cite Schroeder and Cui, FGVCx Fungi Challenge, 2018, and {_CITE}."

    def readers(self) -> Sequence[Reader]:
        return read_fungi, self.folders()


@register_source("md-flower")
class MDFlower(_OfMetaDataset):
    """VGG Flower: 102 kinds of flowers."""

    title = "VGG Flower"
    list_name = "md-flower"
    published: Mapping[Split, tuple[int, int | None]] = {
        "train": (71, None),
        "val": (15, None),
        "test": (16, None),
    }
    layouts = (
        "the folder jpg and imagelabels.mat beside it, as the publisher has them",
        f"{_FOLDERS}, where a class is called 001 or 001.pink primrose",
    )
    terms = (
        "For research only. Cite Nilsback & Zisserman, Automated Flower Classification over a "
        f"Large Number of Classes, 2008, and {_CITE}."
    )

    def readers(self) -> Sequence[Reader]:
        return read_flowers, self.folders()


@register_source("md-traffic-sign")
class MDTrafficSign(_OfMetaDataset):
    """GTSRB: 43 kinds of traffic signs, all for test."""

    title = "GTSRB traffic signs"
    list_name = "md-traffic-sign"
    published: Mapping[Split, tuple[int, int | None]] = {
        "test": (43, 39_209),
    }
    archives = ("*gtsrb*", "*traffic*sign*")
    layouts = (
        "GTSRB/Final_Training/Images/<class>/*.ppm, where a class is called 00014",
        f"{_FOLDERS}, where a class is called 00014",
    )
    terms = (
        "For research only. Cite Stallkamp et al., Man vs. Computer: Benchmarking Machine Learning "
        f"Algorithms for Traffic Sign Recognition, 2012, and {_CITE}."
    )


@register_source("md-mscoco")
class MDMSCOCO(_OfMetaDataset):
    """MSCOCO: 80 kinds of things, each cut out of its photo by its box, for validation and test."""

    title = "MSCOCO"
    list_name = "md-mscoco"
    published: Mapping[Split, tuple[int, int | None]] = {
        "val": (40, None),
        "test": (40, None),
    }
    layouts = (
        "the folder train2017 and annotations/instances_train2017.json, as the publisher has them",
        f"{_FOLDERS}, already cut out",
    )
    terms = (
        "Creative Commons BY 4.0 for the boxes, and each photo's own terms. Cite Lin et al., "
        f"Microsoft COCO, 2014, and {_CITE}."
    )

    def readers(self) -> Sequence[Reader]:
        return read_mscoco, self.folders()
