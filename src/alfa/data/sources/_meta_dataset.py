"""The ten sources of Meta-Dataset, with its splits, in the layouts of their publishers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from alfa.data._base import SPLITS, Split
from alfa.data._sampler import Related, by_hierarchy, by_prefix
from alfa.data.sources._base import (
    IMAGENET_TERMS,
    Counts,
    ManualDownload,
    RemoteFile,
    Workspace,
    published_counts,
    register_source,
)
from alfa.data.sources._class_folders import Reader
from alfa.data.sources._cub import CUB
from alfa.data.sources._meta_dataset_layouts import (
    read_aircraft,
    read_flowers,
    read_fungi,
    read_mscoco,
    read_quick_draw,
)
from alfa.data.sources._omniglot import PARTS as OMNIGLOT_PARTS
from alfa.data.sources._omniglot import Omniglot
from alfa.data.sources._published import (
    ClassList,
    PublishedSource,
    class_folders,
    load_class_list,
    read_split,
)
from alfa.data.sources._traffic_sign import TrafficSign
from alfa.types import Count

_CITE = "Triantafillou et al., Meta-Dataset, 2020"
# The published names tell the split of a class; these folders do not.
_SPLIT_FOLDERS = ("train", "val", "valid", "test", "base", "novel")
_CLASS_FOLDERS = "class folders <class>/*, also under {train,val,test}, or these in an archive"
_NO_CHECKSUM = "no checksum of its archive is known"
_NO_CHECKSUMS = "no checksum of its archives is known"


# Fields of a row that are attributes of its source.
_ATTRIBUTES = (
    *("title", "published", "layouts", "terms", "downloads", "manual_download", "size"),
    *("num_channels", "dark_ink", "archives"),
)


@dataclass(frozen=True)
class _Row:
    """A source of Meta-Dataset; fields without a description are attributes of `Source`.

    Attributes:
        archives: patterns of the paths of its archives, in lower case; none if several must be
            unpacked into one folder.
        reader: of the publisher's layout, besides class folders.
        parts: names of folders that contain classes of any split.
        depth: the number of folders that make up the name of a class.
        by_number: folders may be named after the number that the name of a class begins with.
        classes: the list of its classes, if it is not the file named after the source.
        related: which classes of a split go together.
        base: the base class of the source.
    """

    name: str
    title: str
    published: Counts
    layouts: Sequence[str]
    terms: str
    downloads: Sequence[RemoteFile] = ()
    manual_download: ManualDownload | None = None
    size: int = 84
    num_channels: int = 3
    dark_ink: bool | None = None
    archives: Sequence[str] = ()
    reader: Reader | None = None
    parts: Sequence[str] = _SPLIT_FOLDERS
    depth: int = 1
    by_number: bool = False
    classes: Callable[[], ClassList] | None = None
    related: Callable[[Split, Sequence[str]], Related] | None = None
    base: type[MetaDatasetSource] | None = None

    def register(self) -> None:
        attributes = {name: getattr(self, name) for name in _ATTRIBUTES}
        half = (0.5,) * self.num_channels
        base = self.base or MetaDatasetSource
        source = type(self.name, (base,), {"row": self, "mean": half, "std": half, **attributes})
        register_source(self.name)(source)


class MetaDatasetSource(PublishedSource):
    """A source of Meta-Dataset, defined by a row of the table below."""

    row: ClassVar[_Row]

    def class_list(self) -> ClassList:
        if self.row.classes is not None:
            return self.row.classes()
        return load_class_list(self.row.name, by_number=self.row.by_number)

    def readers(self, work: Workspace) -> Sequence[Reader]:
        row = self.row
        folders = class_folders(self.class_list(), depth=row.depth, parts=row.parts, splits=False)
        return (folders,) if row.reader is None else (row.reader, folders)

    def related_classes(self, split: Split, names: Sequence[str]) -> Related | None:
        return None if self.row.related is None else self.row.related(split, names)


class _QuickDraw(MetaDatasetSource):
    """Quick, Draw!

    Args:
        max_per_class: drawings that are taken of a class, from the first, as all 50 million would
            fill the disk; the classes then are all of one size.
    """

    def __init__(self, *, max_per_class: Count = 2_000) -> None:
        self._max_per_class = max_per_class

    def readers(self, work: Workspace) -> Sequence[Reader]:
        classes, limit = self.class_list(), self._max_per_class
        return lambda path: read_quick_draw(path, classes, limit), *super().readers(work)


def _omniglot_characters() -> ClassList:
    """The characters of the alphabets that the published list names."""
    alphabets, characters = read_split("md-omniglot"), Omniglot().class_list().split_of
    return ClassList(
        {
            split: sorted(n for n in characters if n.partition("/")[0] in alphabets[split])
            for split in SPLITS
        }
    )


# Files and pages: doc/dataset_conversion.md of google-research/meta-dataset.
_ROWS = (
    # The 1,000 classes of its training images; tasks follow WordNet. The few images that
    # Meta-Dataset leaves out because other datasets have them, too, are kept.
    _Row(
        "md-ilsvrc",
        "ILSVRC-2012",
        published_counts(712, 158, 130),
        layouts=(
            "ILSVRC2012_img_train/<wnid>/*.JPEG, or any folder of such folders",
            "ILSVRC/Data/CLS-LOC/train/<wnid>/*.JPEG",
        ),
        terms=f"ImageNet's terms. Cite Russakovsky et al., ImageNet Challenge, 2015, and {_CITE}.",
        manual_download=ManualDownload(
            IMAGENET_TERMS,
            "ILSVRC2012_img_train.tar (138 GB)",
            "https://image-net.org",
            steps="unpack it, and each archive in it into a folder of its name, ",
        ),
        parts=("train",),
        related=lambda split, names: by_hierarchy(names, read_split("md-ilsvrc")[split]),
    ),
    # 50 alphabets, each in one split; a task has characters of one alphabet.
    _Row(
        "md-omniglot",
        "Omniglot",
        published_counts(883, 81, 659, per_class=20),
        layouts=(
            "images_background.zip and images_evaluation.zip, or their folders",
            "folders <alphabet>/<character>/*.png, also under {train,val,test}",
        ),
        terms="MIT licence. Cite Lake et al., Human-Level Concept Learning through Probabilistic "
        f"Program Induction, 2015, and {_CITE}.",
        downloads=Omniglot.downloads,
        num_channels=1,
        dark_ink=True,
        archives=Omniglot.archives,
        parts=(*_SPLIT_FOLDERS, *OMNIGLOT_PARTS),
        depth=2,
        classes=_omniglot_characters,
        related=lambda split, names: by_prefix(names),
    ),
    # 100 variants; the bounding box of the aircraft is cut out of each image.
    _Row(
        "md-aircraft",
        "FGVC-Aircraft",
        published_counts(70, 15, 15, per_class=100),
        layouts=(
            "fgvc-aircraft-2013b/data with images/*.jpg, images_box.txt and images_variant_*.txt",
            f"{_CLASS_FOLDERS}, already cut out",
        ),
        terms="For non-commercial research only. Cite Maji et al., Fine-Grained Visual "
        f"Classification of Aircraft, 2013, and {_CITE}.",
        manual_download=ManualDownload(
            _NO_CHECKSUM,
            "fgvc-aircraft-2013b.tar.gz (2.6 GB)",
            "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/",
        ),
        reader=read_aircraft,
        archives=("*aircraft*",),
    ),
    # 200 kinds of birds, in another split than the dataset `cub`.
    _Row(
        "md-birds",
        "CUB-200-2011",
        published_counts(140, 30, 30),
        layouts=(CUB.layouts[0], _CLASS_FOLDERS),
        terms="For non-commercial research and education only. Cite Wah et al., The Caltech-UCSD "
        f"Birds-200-2011 Dataset, 2011, and {_CITE}.",
        downloads=CUB.downloads,
        archives=CUB.archives,
    ),
    # 47 kinds of textures.
    _Row(
        "md-textures",
        "Describable Textures",
        published_counts(33, 7, 7, per_class=120),
        layouts=("dtd/images/<class>/*.jpg", _CLASS_FOLDERS),
        terms="For research only. Cite Cimpoi et al., Describing Textures in the Wild, 2014, and "
        f"{_CITE}.",
        manual_download=ManualDownload(
            _NO_CHECKSUM,
            "dtd-r1.0.1.tar.gz (0.6 GB)",
            "https://www.robots.ox.ac.uk/~vgg/data/dtd/",
        ),
        archives=("*dtd*",),
    ),
    # Drawings of 345 kinds of things.
    _Row(
        "md-quickdraw",
        "Quick, Draw!",
        published_counts(241, 52, 52),
        layouts=(
            "the bitmaps <class>.npy, uint8 [drawing, 784], as the publisher has them",
            _CLASS_FOLDERS,
        ),
        terms="Creative Commons BY 4.0. Cite Jongejan et al., The Quick, Draw! Game, 2016, and "
        f"{_CITE}.",
        manual_download=ManualDownload(
            "it has no archive, but a file for each class",
            "the files of the folder full/numpy_bitmap",
            "https://github.com/googlecreativelab/quickdraw-dataset",
        ),
        size=28,
        num_channels=1,
        dark_ink=False,
        archives=("*quick*draw*",),
        base=_QuickDraw,
    ),
    # 1,394 kinds of mushrooms.
    _Row(
        "md-fungi",
        "FGVCx Fungi",
        published_counts(994, 200, 200),
        layouts=(
            "train.json, val.json and the folder images, as the publisher has them",
            f"{_CLASS_FOLDERS}, where a class is called 0008.Agaricus campestris",
        ),
        terms="For research only. Cite Schroeder and Cui, FGVCx Fungi Challenge, 2018, and "
        f"{_CITE}.",
        manual_download=ManualDownload(
            _NO_CHECKSUMS,
            "fungi_train_val.tgz (13 GB) and train_val_annotations.tgz",
            "https://github.com/visipedia/fgvcx_fungi_comp",
            steps="unpack both into one folder, ",
        ),
        reader=read_fungi,
    ),
    # 102 kinds of flowers.
    _Row(
        "md-flower",
        "VGG Flower",
        published_counts(71, 15, 16),
        layouts=(
            "the folder jpg and imagelabels.mat beside it, as the publisher has them",
            f"{_CLASS_FOLDERS}, where a class is called 001 or 001.pink primrose",
        ),
        terms="For research only. Cite Nilsback & Zisserman, Automated Flower Classification over "
        f"a Large Number of Classes, 2008, and {_CITE}.",
        manual_download=ManualDownload(
            _NO_CHECKSUM,
            "102flowers.tgz and imagelabels.mat",
            "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/",
            steps="unpack the first beside the second, ",
        ),
        reader=read_flowers,
        by_number=True,
    ),
    # 43 kinds of traffic signs, all for test.
    _Row(
        "md-traffic-sign",
        "GTSRB traffic signs",
        TrafficSign.published,
        layouts=(
            TrafficSign.layouts[0],
            f"{_CLASS_FOLDERS}, where a class is called 00014",
        ),
        terms="For research only. Cite Stallkamp et al., Man vs. Computer: Benchmarking Machine "
        f"Learning Algorithms for Traffic Sign Recognition, 2012, and {_CITE}.",
        downloads=TrafficSign.downloads,
        archives=("*gtsrb*", "*traffic*sign*"),
        by_number=True,
    ),
    # 80 kinds of things, cut out of photos by their bounding boxes, for validation and test.
    _Row(
        "md-mscoco",
        "MSCOCO",
        published_counts(0, 40, 40),
        layouts=(
            "the folder train2017 and annotations/instances_train2017.json, as the publisher has "
            "them",
            f"{_CLASS_FOLDERS}, already cut out",
        ),
        terms="Creative Commons BY 4.0 for the boxes, and each photo's own terms. Cite Lin et al., "
        f"Microsoft COCO, 2014, and {_CITE}.",
        manual_download=ManualDownload(
            _NO_CHECKSUMS,
            "train2017.zip (18 GB) and annotations_trainval2017.zip",
            "https://cocodataset.org",
            steps="unpack both into one folder, ",
        ),
        reader=read_mscoco,
    ),
)

for _row in _ROWS:
    _row.register()
