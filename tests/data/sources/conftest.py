"""Small datasets in common layouts."""

import io
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alfa.data import SPLITS
from alfa.data.sources import SOURCES, Listing, Source, Workspace

FOLDERS = ("train", "val", "test")


@pytest.fixture(scope="session")
def png() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.arange(12, dtype=np.uint8).reshape(2, 2, 3)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def make_classes(png) -> Callable[..., Path]:
    """Create class folders with images."""

    def make(folder: Path, names: Iterable[str], *, count: int = 2, suffix: str = ".png") -> Path:
        for name in names:
            (folder / name).mkdir(parents=True)
            for number in range(count):
                (folder / name / f"{number}{suffix}").write_bytes(png)
        return folder

    return make


@pytest.fixture
def make_splits(make_classes) -> Callable[..., Path]:
    """Create class folders under a folder for each split."""

    def make(
        folder: Path, splits: Mapping[str, Iterable[str]], *, names=FOLDERS, **options
    ) -> Path:
        for split, name in zip(SPLITS, names, strict=True):
            make_classes(folder / name, splits.get(split, ()), **options)
        return folder

    return make


@pytest.fixture
def published() -> Callable[..., dict[str, list[str]]]:
    """Return the classes of a dataset by split, or the first few of each."""

    def take(name: str, limit: int | None = None) -> dict[str, list[str]]:
        splits = SOURCES.get(name)().class_list().splits
        return {split: list(names[:limit]) for split, names in splits.items()}

    return take


@pytest.fixture
def pack() -> Callable[..., Path]:
    """Pack the content of a folder into an archive, and remove the folder."""

    def make(archive: Path, folder: Path) -> Path:
        paths = sorted(path for path in folder.rglob("*"))
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive, "w") as file:
                for path in paths:
                    file.write(path, path.relative_to(folder))
        else:
            mode = "w" if archive.suffix == ".tar" else "w:gz"
            with tarfile.open(archive, mode) as tar:
                for path in paths:
                    tar.add(path, path.relative_to(folder), recursive=False)
        for path in reversed(paths):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()
        return archive

    return make


@pytest.fixture
def find(tmp_path) -> Callable[[Source, Path], Listing]:
    return lambda source, path: source.find(path, work=Workspace(tmp_path / "work"))


@pytest.fixture
def counts() -> Callable[[Listing], dict[str, tuple[int, int]]]:
    """Count the classes and images of every split; check their order."""

    def count(listing: Listing) -> dict[str, tuple[int, int]]:
        for classes in listing.classes.values():
            assert list(classes) == sorted(classes)
            assert all(classes.values())
        return {
            split: (len(classes), sum(map(len, classes.values())))
            for split, classes in listing.classes.items()
        }

    return count


@pytest.fixture
def fatal() -> Callable[[Listing], list[str]]:
    """Return the fatal problems as they are printed."""
    return lambda listing: [str(problem) for problem in listing.problems if problem.fatal]


@pytest.fixture
def notes() -> Callable[[Listing], list[str]]:
    """Return the other problems as they are printed."""
    return lambda listing: [str(problem) for problem in listing.problems if not problem.fatal]


@pytest.fixture(scope="session")
def real_data() -> Path:
    folder = os.environ.get("ALFA_TEST_DATA")
    if not folder:
        pytest.skip("ALFA_TEST_DATA is not set")
    return Path(folder)
