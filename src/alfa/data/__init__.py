"""Sources of few-shot tasks."""

from alfa.data._archives import archive_stem, is_archive, read_zip
from alfa.data._base import (
    SPLITS,
    TASKS,
    Group,
    InMemory,
    Signature,
    Split,
    Tasks,
    grouped,
    register_tasks,
    task_rng,
)
from alfa.data._decode import (
    Crop,
    PhotoHeader,
    decode,
    decode_opened,
    load_photo,
    open_image,
    read_header,
    thumbnail_of,
)
from alfa.data._download import download
from alfa.data._drawing import draw, read_strokes
from alfa.data._features import AnyImages, FeatureSet
from alfa.data._few_shot import FewShot, Images, augmented
from alfa.data._image_format import ImageFormat
from alfa.data._image_set import Classes, ImageSet, scale_and_shift
from alfa.data._open import (
    GENERATED_DATASETS,
    data_folder,
    has_dark_ink,
    open_images,
    open_store,
    prepared,
    raw_dataset_path,
    store_path,
)
from alfa.data._photo_checks import copy_groups, photo_grid, similar_names
from alfa.data._prepare import PrepareProgress, prepare
from alfa.data._sampler import Composition, Limits, Related, Sampler, by_hierarchy, by_prefix
from alfa.data._sinusoids import Sine, Sinusoids
from alfa.data._store import Index, Store
from alfa.data._strokes import CHARACTER_EXTENT, DrawingStyle, Strokes, render_strokes
from alfa.data._varied import MetaDataset, Varied, related_classes, related_in
from alfa.data._workers import suppress_pillow_warnings
from alfa.data.sources import SOURCES, Source, Workspace, class_names, register_source

__all__ = [
    "AnyImages",
    "CHARACTER_EXTENT",
    "Classes",
    "Composition",
    "Crop",
    "DrawingStyle",
    "FeatureSet",
    "FewShot",
    "GENERATED_DATASETS",
    "Group",
    "ImageFormat",
    "ImageSet",
    "Images",
    "InMemory",
    "Index",
    "Limits",
    "MetaDataset",
    "PhotoHeader",
    "PrepareProgress",
    "Related",
    "SOURCES",
    "SPLITS",
    "Sampler",
    "Signature",
    "Sine",
    "Sinusoids",
    "Source",
    "Split",
    "Store",
    "Strokes",
    "TASKS",
    "Tasks",
    "Varied",
    "Workspace",
    "archive_stem",
    "augmented",
    "by_hierarchy",
    "by_prefix",
    "class_names",
    "copy_groups",
    "data_folder",
    "decode",
    "decode_opened",
    "download",
    "draw",
    "grouped",
    "has_dark_ink",
    "is_archive",
    "load_photo",
    "open_image",
    "open_images",
    "open_store",
    "photo_grid",
    "prepare",
    "prepared",
    "raw_dataset_path",
    "read_header",
    "read_strokes",
    "read_zip",
    "register_source",
    "register_tasks",
    "related_classes",
    "related_in",
    "render_strokes",
    "scale_and_shift",
    "similar_names",
    "store_path",
    "suppress_pillow_warnings",
    "task_rng",
    "thumbnail_of",
]
