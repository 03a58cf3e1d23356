"""Datasets are opened by name and size; errors name the command that prepares them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from alfa.data import data_folder, open_images, store_path
from alfa.data._open import open_store, prepared, raw_dataset_path
from alfa.data._prepare import prepare
from alfa.data.sources._base import Item, Listing, Source, Workspace
from alfa.errors import DataError


class Dots(Source):
    title, size, num_channels = "Dots", 4, 1
    mean, std = (0.5,), (0.5,)

    def find(self, path: Path, *, work: Workspace) -> Listing:
        items = [Item(str(n), lambda: np.zeros((4, 4), np.uint8)) for n in range(3)]
        return Listing({"train": {"dot": items}})


@pytest.fixture
def make(tmp_path: Path):
    def prepare_dots(name: str, size: int = 4) -> None:
        prepare(Dots(), tmp_path, root=tmp_path, name=name, size=size)

    return prepare_dots


def test_the_data_folder_can_be_chosen(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ALFA_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    assert store_path("cub", 84) == tmp_path / "stores" / "cub-84"
    assert raw_dataset_path("cub") == tmp_path / "raw" / "cub"
    monkeypatch.setenv("ALFA_DATA", "~/mine")
    assert data_folder() == Path.home() / "mine"
    monkeypatch.delenv("ALFA_DATA")
    assert data_folder().name == "alfa"


def test_the_data_folder_of_nobody_is_a_sentence(monkeypatch) -> None:
    monkeypatch.setenv("ALFA_DATA", "~nosuchuser/data")
    with pytest.raises(
        DataError, match="ALFA_DATA is '~nosuchuser/data', but that user has no home"
    ):
        data_folder()


def test_what_is_prepared_is_found(make, tmp_path: Path) -> None:
    assert prepared(root=tmp_path) == {}
    make("dots", 4)
    make("dots", 12)
    make("dots-small")
    (tmp_path / "stores" / ".dots-9.partial").mkdir()
    (tmp_path / "stores" / "odd-name").mkdir()
    (tmp_path / "stores" / "odd-name" / "index.json").write_text("{}")
    assert prepared(root=tmp_path) == {"dots": [4, 12], "dots-small": [4]}


def test_one_size_needs_not_be_named(make, tmp_path: Path) -> None:
    make("dots")
    make("dots-small", 12)
    assert open_images("dots", root=tmp_path).shape == (1, 4, 4)
    assert open_store("dots", size=4, root=tmp_path).index.dataset == "dots"


def test_of_several_sizes_one_must_be_named(make, tmp_path: Path) -> None:
    make("dots", 12)
    make("dots", 4)
    assert open_images("dots", size=12, root=tmp_path).shape == (1, 12, 12)
    with pytest.raises(DataError, match=r"in the sizes 4, 12; choose one with --size"):
        open_images("dots", root=tmp_path)


def test_another_size_is_told(make, tmp_path: Path) -> None:
    make("dots")
    with pytest.raises(
        DataError,
        match=r"size 4, but not in 7; run `alfa data prepare folder PATH --name dots --size 7`",
    ):
        open_images("dots", size=7, root=tmp_path)


def test_what_is_not_prepared_is_told(make, tmp_path: Path) -> None:
    make("dots")
    with pytest.raises(DataError) as caught:
        open_images("dost", root=tmp_path)
    assert str(caught.value) == (
        f"dost is not prepared under {tmp_path / 'stores'}; run `alfa data prepare folder PATH "
        "--name dost` first, or set ALFA_DATA to the folder of your datasets. Did you mean 'dots'?"
    )
    with pytest.raises(DataError) as caught:
        open_images("cub", root=tmp_path)
    told = "run `alfa data prepare cub PATH` first (`alfa data list` shows how to get it), or set"
    assert told in str(caught.value)
    assert "Did you mean" not in str(caught.value)
    with pytest.raises(DataError, match=rf"prepare folder {tmp_path} --name NAME` first"):
        open_images(str(tmp_path), root=tmp_path)
    with pytest.raises(DataError, match=r"strokes is generated when it is opened"):
        open_store("strokes", root=tmp_path)


def test_a_name_with_signs_of_a_pattern_is_only_a_name(make, tmp_path: Path) -> None:
    make("dots")
    with pytest.raises(DataError, match="is not prepared"):
        open_images("d*", root=tmp_path)


def test_strokes_are_generated(make, tmp_path: Path) -> None:
    assert open_images("strokes", root=tmp_path).shape == (1, 28, 28)
    make("strokes", 4)
    assert open_images("strokes", root=tmp_path).shape == (1, 4, 4)
    assert open_images("strokes", size=14, root=tmp_path).shape == (1, 14, 14)


def test_generated_images_are_drawn_once_and_cannot_be_changed(tmp_path) -> None:
    first, second = (open_images("strokes", size=12, root=tmp_path) for _ in range(2))
    assert first is second
    with pytest.raises(ValueError, match="read-only"):
        first.images[0] = 0
