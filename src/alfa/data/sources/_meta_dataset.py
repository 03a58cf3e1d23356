"""The ten sources of Meta-Dataset with its splits, in the layouts of their publishers."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from alfa.data._base import SPLITS, Split
from alfa.data._sampler import Related, by_hierarchy, by_prefix
from alfa.data.sources import _cub, _omniglot, _only_test
from alfa.data.sources._base import (
    IMAGENET_TERMS,
    Counts,
    ManualDownload,
    Workspace,
    published_counts,
    register_source,
)
from alfa.data.sources._class_folders import Reader
from alfa.data.sources._meta_dataset_layouts import (
    read_aircraft,
    read_flowers,
    read_fungi,
    read_mscoco,
    read_quick_draw,
)
from alfa.data.sources._published import ClassList, PublishedSource, read_split
from alfa.types import Count

_CLASS_FOLDERS = "class folders <class>/*, also under {train,val,test}, or these in an archive"
_READERS: Mapping[str, Reader] = {
    "md-aircraft": read_aircraft,
    "md-flower": read_flowers,
    "md-fungi": read_fungi,
    "md-mscoco": read_mscoco,
}
_ROBOTS = "https://www.robots.ox.ac.uk/~vgg/data"


class MetaDatasetSource(PublishedSource):
    """A source of Meta-Dataset.

    The published lists assign the classes to splits, independently of the folders around them.
    """

    size = 84
    mixed_folders = ("train", "val", "valid", "test", "base", "novel")
    split_folders = False

    def readers(self, work: Workspace) -> Sequence[Reader]:
        reader, folders = _READERS.get(self.list_name), self.read_class_folders
        return (reader, folders) if reader else (folders,)


class _ILSVRC(MetaDatasetSource):
    def related_classes(self, split: Split, names: Sequence[str]) -> Related:
        return by_hierarchy(names, read_split("md-ilsvrc")[split])


class _Omniglot(MetaDatasetSource):
    def class_list(self) -> ClassList:
        alphabets = read_split("md-omniglot")
        characters = sorted(_omniglot.Omniglot().class_list().split_of)
        return ClassList(
            {s: [c for c in characters if c.partition("/")[0] in alphabets[s]] for s in SPLITS}
        )

    def related_classes(self, split: Split, names: Sequence[str]) -> Related:
        return by_prefix(names)


class _QuickDraw(MetaDatasetSource):
    """Quick, Draw!

    Args:
        max_per_class: the number of leading drawings to use; all 50 million would fill the disk.
    """

    def __init__(self, *, max_per_class: Count = 2_000) -> None:
        self._max_per_class = max_per_class

    def readers(self, work: Workspace) -> Sequence[Reader]:
        read = partial(read_quick_draw, classes=self.class_list(), limit=self._max_per_class)
        return read, self.read_class_folders


def _register(
    name: str,
    title: str,
    published: Counts,
    *,
    terms: str,
    layout: str = "",
    class_folders: str = "",
    base: type[MetaDatasetSource] = MetaDatasetSource,
    **attributes: Any,
) -> None:
    """Register a source with attributes of `MetaDatasetSource`.

    By default, its layouts are the publisher's `layout` and `class_folders`.
    """
    half = (0.5,) * attributes.get("num_channels", 3)
    defaults = {
        "title": title,
        "published": published,
        "list_name": name,
        "layouts": (layout, f"{_CLASS_FOLDERS}{class_folders}"),
        "terms": f"{terms.removesuffix('.')}, and Triantafillou et al., Meta-Dataset, 2020.",
        "mean": half,
        "std": half,
    }
    register_source(name)(type(name, (base,), {**defaults, **attributes}))


def _by_hand(files: str, page: str, steps: str = "") -> ManualDownload:
    return ManualDownload("the checksum is unknown", files, page, steps)


# Files and pages: doc/dataset_conversion.md of google-research/meta-dataset.

# The 1,000 classes of the ImageNet challenge; tasks follow WordNet. Unlike Meta-Dataset, alfa
# keeps the few images that other datasets share.
_register(
    "md-ilsvrc",
    "ILSVRC-2012",
    published_counts(712, 158, 130),
    layouts=(
        "ILSVRC2012_img_train/<wnid>/*.JPEG, or any folder of such folders",
        "ILSVRC/Data/CLS-LOC/train/<wnid>/*.JPEG",
    ),
    terms="ImageNet's terms. Cite Russakovsky et al., ImageNet Challenge, 2015",
    manual_download=ManualDownload(
        IMAGENET_TERMS,
        "ILSVRC2012_img_train.tar (138 GB)",
        "https://image-net.org",
        steps="unpack it, and each archive in it into a folder of the same name, ",
    ),
    mixed_folders=("train",),
    base=_ILSVRC,
)
# 50 alphabets, each in one split; the characters of a task belong to one alphabet.
_register(
    "md-omniglot",
    "Omniglot",
    published_counts(883, 81, 659, per_class=20),
    layouts=(
        "images_background.zip and images_evaluation.zip, or their folders",
        "folders <alphabet>/<character>/*.png, also under {train,val,test}",
    ),
    terms=_omniglot.TERMS,
    downloads=_omniglot.Omniglot.downloads,
    num_channels=1,
    dark_ink=True,
    archives=_omniglot.Omniglot.archives,
    mixed_folders=(*MetaDatasetSource.mixed_folders, *_omniglot.PARTS),
    depth=2,
    base=_Omniglot,
)
# 100 variants of aircraft, cropped to their bounding boxes.
_register(
    "md-aircraft",
    "FGVC-Aircraft",
    published_counts(70, 15, 15, per_class=100),
    layout="fgvc-aircraft-2013b/data with images/*.jpg, images_box.txt and images_variant_*.txt",
    class_folders=", already cropped",
    terms="For non-commercial research only. Cite Maji et al., Fine-Grained Visual "
    "Classification of Aircraft, 2013",
    manual_download=_by_hand("fgvc-aircraft-2013b.tar.gz (2.6 GB)", f"{_ROBOTS}/fgvc-aircraft/"),
    archives=("*aircraft*",),
)
# 200 species of birds, with another split than the dataset `cub`.
_register(
    "md-birds",
    "CUB-200-2011",
    published_counts(140, 30, 30),
    layout=_cub.CUB.layouts[0],
    terms=_cub.TERMS,
    downloads=_cub.CUB.downloads,
    archives=_cub.CUB.archives,
)
_register(
    "md-textures",
    "Describable Textures",
    published_counts(33, 7, 7, per_class=120),
    layout="dtd/images/<class>/*.jpg",
    terms="For research only. Cite Cimpoi et al., Describing Textures in the Wild, 2014",
    manual_download=_by_hand("dtd-r1.0.1.tar.gz (0.6 GB)", f"{_ROBOTS}/dtd/"),
    archives=("*dtd*",),
)
_register(
    "md-quickdraw",
    "Quick, Draw!",
    published_counts(241, 52, 52),
    layout="the publisher's bitmaps <class>.npy, uint8 [drawing, 784]",
    terms="Creative Commons BY 4.0. Cite Jongejan et al., The Quick, Draw! Game, 2016",
    manual_download=ManualDownload(
        "the publisher offers one file for each class instead of an archive",
        "the files of the folder full/numpy_bitmap",
        "https://github.com/googlecreativelab/quickdraw-dataset",
    ),
    size=28,
    num_channels=1,
    dark_ink=False,
    archives=("*quick*draw*",),
    base=_QuickDraw,
)
_register(
    "md-fungi",
    "FGVCx Fungi",
    published_counts(994, 200, 200),
    layout="the publisher's train.json, val.json, and folder images",
    class_folders=", with classes such as 0008.Agaricus campestris",
    terms="For research only. Cite Schroeder and Cui, FGVCx Fungi Challenge, 2018",
    manual_download=_by_hand(
        "fungi_train_val.tgz (13 GB) and train_val_annotations.tgz",
        "https://github.com/visipedia/fgvcx_fungi_comp",
        steps="unpack both into one folder, ",
    ),
)
_register(
    "md-flower",
    "VGG Flower",
    published_counts(71, 15, 16),
    layout="the publisher's folder jpg with imagelabels.mat beside it",
    class_folders=", with classes such as 001 or 001.pink primrose",
    terms=_only_test.VGGFlower.terms,
    manual_download=_by_hand(
        "102flowers.tgz and imagelabels.mat",
        f"{_ROBOTS}/flowers/102/",
        steps="unpack the first beside the second, ",
    ),
    by_number=True,
)
_register(
    "md-traffic-sign",
    "GTSRB traffic signs",
    _only_test.TrafficSign.published,
    layout=_only_test.TrafficSign.layouts[0],
    class_folders=", with classes such as 00014",
    terms=_only_test.TrafficSign.terms,
    downloads=_only_test.TrafficSign.downloads,
    archives=("*gtsrb*", "*traffic*sign*"),
    by_number=True,
)
# 80 kinds of objects, cropped from photos to their bounding boxes, for validation and test.
_register(
    "md-mscoco",
    "MSCOCO",
    published_counts(0, 40, 40),
    layout="the publisher's folder train2017 and annotations/instances_train2017.json",
    class_folders=", already cropped",
    terms="Creative Commons BY 4.0 for the boxes, and each photo's own terms. Cite Lin et al., "
    "Microsoft COCO, 2014",
    manual_download=_by_hand(
        "train2017.zip (18 GB) and annotations_trainval2017.zip",
        "https://cocodataset.org",
        steps="unpack both into one folder, ",
    ),
)
