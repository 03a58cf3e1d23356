"""Sources of few-shot tasks."""

from alfa.data._base import SPLITS, TASKS, Signature, Split, Tasks, register_tasks, task_rng
from alfa.data._download import download
from alfa.data._few_shot import FewShot, Images
from alfa.data._image_set import Classes, ImageSet
from alfa.data._open import data_folder, open_images, open_store, prepared, store_path
from alfa.data._prepare import prepare
from alfa.data._sinusoids import Sine, Sinusoids
from alfa.data._store import Store
from alfa.data._strokes import Strokes
from alfa.data.sources import SOURCES, Source, Workspace, register_source

__all__ = [
    "SOURCES",
    "SPLITS",
    "TASKS",
    "Classes",
    "FewShot",
    "ImageSet",
    "Images",
    "Signature",
    "Sine",
    "Sinusoids",
    "Source",
    "Split",
    "Store",
    "Strokes",
    "Tasks",
    "Workspace",
    "data_folder",
    "download",
    "open_images",
    "open_store",
    "prepare",
    "prepared",
    "register_source",
    "register_tasks",
    "store_path",
    "task_rng",
]
