"""Sources of few-shot tasks."""

from alfa.data._base import (
    SPLITS,
    TASKS,
    Group,
    Signature,
    Split,
    Tasks,
    grouped,
    register_tasks,
    task_rng,
)
from alfa.data._decode import decode
from alfa.data._download import download
from alfa.data._few_shot import FewShot, Images, augmented
from alfa.data._image_set import Classes, ImageSet, scale_and_shift
from alfa.data._open import data_folder, open_images, open_store, prepared, store_path
from alfa.data._prepare import prepare
from alfa.data._sampler import Composition, Limits, Related, Sampler, by_hierarchy, by_prefix
from alfa.data._sinusoids import Sine, Sinusoids
from alfa.data._store import Store
from alfa.data._strokes import Strokes
from alfa.data._varied import MetaDataset, Varied, related_classes, related_in
from alfa.data.sources import SOURCES, Source, Workspace, class_names, register_source

__all__ = [
    "SOURCES",
    "SPLITS",
    "TASKS",
    "Classes",
    "Composition",
    "FewShot",
    "Group",
    "ImageSet",
    "Images",
    "Limits",
    "MetaDataset",
    "Related",
    "Sampler",
    "Signature",
    "Sine",
    "Sinusoids",
    "Source",
    "Split",
    "Store",
    "Strokes",
    "Tasks",
    "Varied",
    "Workspace",
    "augmented",
    "by_hierarchy",
    "by_prefix",
    "class_names",
    "data_folder",
    "decode",
    "download",
    "grouped",
    "open_images",
    "open_store",
    "prepare",
    "prepared",
    "register_source",
    "register_tasks",
    "related_classes",
    "related_in",
    "scale_and_shift",
    "store_path",
    "task_rng",
]
