"""The user's photos: search, problems, and loading."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alfa.data import ImageFormat, Signature
from alfa.data.photos import (
    Photos,
    check_photos,
    list_photos,
    list_support_photos,
    load_photos,
    printable,
    read_photo,
)
from alfa.errors import ConfigError, DataError

FORMAT = ImageFormat.of(Signature((1, 6, 5), 5, "cross_entropy", (0.5,), (0.5,)))


def save(path: Path, *, level: int = 100, size: tuple[int, int] = (5, 6)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, level).save(path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes, one with a subfolder, and files to ignore."""
    save(tmp_path / "pets" / "dog" / "old" / "2.png")
    save(tmp_path / "pets" / "dog" / "1.png")
    save(tmp_path / "pets" / "cat" / "1.PNG")
    save(tmp_path / "pets" / "cat" / ".hidden.png")
    (tmp_path / "pets" / "cat" / "Thumbs.db").write_text("x")
    return tmp_path / "pets"


def names(pictures) -> list[tuple[str, str | None]]:
    return [("/".join(p.path.parts[-2:]), p.label) for p in pictures]


def test_a_class_has_all_images_below_its_folder(folder: Path) -> None:
    listed = list_support_photos(folder)
    assert names(listed.files) == [
        ("cat/1.PNG", "cat"),
        ("dog/1.png", "dog"),
        ("old/2.png", "dog"),
    ]
    assert not listed.problems


def test_paths_begin_as_the_user_wrote_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    found = list_photos([Path("pets/dog"), Path("pets/cat/1.PNG")]).files
    assert [str(p.path) for p in found] == [
        "pets/dog/1.png",
        "pets/dog/old/2.png",
        "pets/cat/1.PNG",
    ]
    assert [p.label for p in found] == [None, "old", None]


def test_an_image_that_is_named_twice_is_found_once(folder: Path) -> None:
    once = list_photos([folder]).files
    file = folder / "dog" / "1.png"
    for paths in ([folder, folder], [file, folder], [folder, file]):
        again = list_photos(paths).files
        assert sorted(names(again), key=str) == sorted(names(once), key=str)


def test_what_has_no_class_or_is_no_image_is_told(folder: Path) -> None:
    save(folder / "loose.png")
    (folder / "dog" / "notes.txt").write_text("x")
    told = {problem.where: problem for problem in list_support_photos(folder).problems}
    assert told[str(folder)].what == "skipped images outside the class folders: loose.png"
    assert told[str(folder / "dog")].what == "skipped files that are not images: notes.txt"
    assert not any(problem.fatal for problem in told.values())


def test_a_class_without_images_and_a_link_to_nothing_are_problems(folder: Path) -> None:
    (folder / "fox").mkdir()
    (folder / "cat" / "2.png").symlink_to(folder / "gone.png")
    problems = {problem.where: problem.what for problem in list_support_photos(folder).problems}
    assert problems == {
        str(folder / "fox"): "the class has no images",
        str(folder / "cat" / "2.png"): "is neither a file nor a link to an existing file",
    }


def test_a_folder_that_links_to_itself_ends(folder: Path) -> None:
    (folder / "dog" / "again").symlink_to(folder / "dog")
    (folder / "dog" / "up").symlink_to(folder)
    found = list_support_photos(folder).files
    assert ("dog/1.png", "dog") in names(found)
    assert len(found) < 20


def test_folders_that_cannot_serve_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty" / "cat").mkdir(parents=True)
    with pytest.raises(DataError, match=r"empty has no class folders with images; create a folder"):
        list_support_photos(tmp_path / "empty")
    with pytest.raises(DataError, match=r"gone is not a folder; pass a folder of class folders"):
        list_support_photos(tmp_path / "gone")
    with pytest.raises(DataError, match=r"there is no file or folder .*gone\."):
        list_photos([tmp_path / "gone"])
    with pytest.raises(DataError, match=r"there are no images in .*empty\."):
        list_photos([tmp_path / "empty"])


def test_images_are_read_as_a_model_takes_them(folder: Path) -> None:
    save(folder / "dog" / "1.png", level=7, size=(50, 60))
    done: list[int] = []
    found = load_photos(
        list_support_photos(folder), image_format=FORMAT, side=16, on_read=lambda: done.append(1)
    )
    assert found.pixels.shape == (3, 6, 5, 1)
    assert found.pixels.dtype == np.uint8
    assert found.pixels[:, 0, 0, 0].tolist() == [100, 7, 100]
    assert found.labels == ["cat", "dog", "dog"]
    assert [Image.open(io.BytesIO(t)).size for t in found.thumbnails] == [(5, 6), (13, 16), (5, 6)]
    assert len(done) == 3
    assert load_photos(list_support_photos(folder), image_format=FORMAT).thumbnails == []


def test_thumbnails_are_made_of_as_many_as_are_shown(folder: Path) -> None:
    save(folder / "cat" / "0.png")
    of_classes = load_photos(list_support_photos(folder), image_format=FORMAT, side=16, most=1)
    assert of_classes.labels == ["cat", "cat", "dog", "dog"]
    assert [bool(made) for made in of_classes.thumbnails] == [True, False, True, False]
    of_all = load_photos(list_photos([folder]), image_format=FORMAT, side=16, most=3)
    assert [bool(made) for made in of_all.thumbnails] == [True, True, True, False]


def test_a_name_that_no_system_takes_cannot_be_read() -> None:
    with pytest.raises(DataError, match=r"cannot be read \(.*null"):
        read_photo(Path("a\0.png"))


def test_what_is_done_to_many_images_is_told_once(folder: Path) -> None:
    for name in ("a", "b", "c"):
        Image.new("RGB", (5, 6)).save(folder / "dog" / f"{name}.png")
    (problem,) = load_photos(list_support_photos(folder), image_format=FORMAT).problems
    assert str(problem) == f"{folder}/dog/a.png: RGB converted to gray (also for 2 more)"
    assert not problem.fatal


@pytest.fixture
def broken(folder: Path) -> Photos:
    (folder / "cat" / "1.PNG").write_bytes(b"")
    (folder / "dog" / "old" / "2.png").write_text("no image")
    return load_photos(list_support_photos(folder), image_format=FORMAT)


def test_all_that_cannot_be_read_is_named_at_once(broken: Photos, folder: Path) -> None:
    with pytest.raises(DataError) as caught:
        check_photos(broken, on_problem="stop")
    first, *rest = str(caught.value).splitlines()
    assert first == (
        "nothing was written because of 3 problems; fix them, or skip them with "
        "`--on-problem skip`:"
    )
    assert rest == [
        f"  - {folder}/cat/1.PNG: is an empty file",
        f"  - {folder}/dog/old/2.png: is not an image, or its format is not supported",
        "  - cat: none of the images of this class can be used",
    ]
    check_photos(broken, on_problem="skip")
    assert broken.labels == ["dog"]


def test_one_problem_is_one_sentence(folder: Path) -> None:
    (folder / "dog" / "1.png").write_bytes(b"")
    found = load_photos(list_support_photos(folder), image_format=FORMAT)
    with pytest.raises(DataError) as caught:
        check_photos(found, on_problem="stop")
    assert str(caught.value) == (
        f"{folder}/dog/1.png: is an empty file; fix it, or skip it with `--on-problem skip`."
    )


def test_something_must_be_left(folder: Path) -> None:
    good = load_photos(list_support_photos(folder), image_format=FORMAT)
    (folder / "dog" / "1.png").write_bytes(b"")
    none = load_photos(list_photos([folder / "dog" / "1.png"]), image_format=FORMAT)
    with pytest.raises(DataError, match=r"is an empty file; no image is usable"):
        check_photos(good, none, on_problem="skip")
    with pytest.raises(ConfigError, match=r"`--on-problem` is 'skp'.* Did you mean 'skip'"):
        check_photos(good, on_problem="skp")


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_a_problem(folder: Path) -> None:
    (folder / "dog" / "1.png").chmod(0)
    problems = load_photos(list_support_photos(folder), image_format=FORMAT).problems
    assert "cannot be read (Permission denied)" in str(problems[0])


def test_names_are_shown_on_one_line() -> None:
    assert printable("naïve, “猫” \u200d ok") == "naïve, “猫” \u200d ok"
    assert printable("a\nb\x1b[31m\udcff\u2028") == "a\\nb\\x1b[31m\\udcff\\u2028"


def test_photos_that_are_not_read_are_told(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "phone" / name).mkdir(parents=True)
        (tmp_path / "phone" / name / "IMG_1.DNG").write_bytes(b"x")
    told = r"no class folders with images; .*IMG_1.DNG.* in an unsupported format; save it as"
    with pytest.raises(DataError, match=told):
        list_support_photos(tmp_path / "phone")
    save(tmp_path / "phone" / "cat" / "1.png")
    (tmp_path / "phone" / "cat" / "notes.txt").write_text("x")
    fatal = {p.where: p.what for p in list_support_photos(tmp_path / "phone").problems if p.fatal}
    for name in ("cat", "dog"):
        assert "unsupported" in fatal[str(tmp_path / "phone" / name / "IMG_1.DNG")]
    (note,) = (p.what for p in list_support_photos(tmp_path / "phone").problems if not p.fatal)
    assert note == "skipped files that are not images: notes.txt"


def test_parts_of_a_dataset_are_no_classes(tmp_path: Path) -> None:
    for part in ("train", "Test"):
        save(tmp_path / "all" / part / "cat" / "1.png")
        save(tmp_path / "all" / part / "dog" / "1.png")
    with pytest.raises(DataError, match=r"has the folders Test, train, which are splits of a data"):
        list_support_photos(tmp_path / "all")
    assert {p.label for p in list_support_photos(tmp_path / "all" / "train").files} == {
        "cat",
        "dog",
    }


def test_a_class_of_folders_alone_is_worth_a_note(tmp_path: Path) -> None:
    for name in ("cats/siam", "cats/manx", "dogs/old", "birds"):
        save(tmp_path / "pets" / name / "1.png")
    found = [(p.where, p.what) for p in list_support_photos(tmp_path / "pets").problems]
    told = "all images of this class are in subfolders: manx, siam"
    assert found == [(str(tmp_path / "pets" / "cats"), told)]
