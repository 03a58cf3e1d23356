"""Saving and loading sets of examples."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from alfa.errors import DataError
from alfa.serve import Model
from alfa.serve._examples import pack_examples, unpack_examples
from alfa.serve._limits import MAX_CLASSES, MAX_PER_CLASS, MAX_UNPACKED
from alfa.serve._session import Session


def zipped(files: dict[str, bytes], *, packed: bool = False) -> bytes:
    buffer = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", kind) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return buffer.getvalue()


def test_saved_examples_can_be_loaded(taught: Session, model: Model) -> None:
    taught.rename(taught.classes[0].number, "ålef & co. 'x'")
    content = pack_examples(taught.classes)
    other = Session(model)
    other.replace(unpack_examples(content, name="examples.zip", model=model))
    assert [each.name for each in other.classes] == ["ålef & co. 'x'", "bet", "gimel"]
    for mine, theirs in zip(other.classes, taught.classes, strict=True):
        for picture, original in zip(mine.examples, theirs.examples, strict=True):
            assert (picture.pixels == original.pixels).all()
    assert pack_examples(other.classes) == content
    losses = [each.learn().classifier.support_losses_.tolist() for each in (other, taught)]
    assert losses[0] == losses[1]


def test_empty_classes_are_omitted(session: Session, model: Model) -> None:
    session.add_example(session.selected, np.zeros((1, 16, 16), np.uint8))
    loaded = unpack_examples(pack_examples(session.classes), name="x.zip", model=model)
    assert [name for name, _ in loaded] == ["Class 1"]
    session.replace(loaded)
    assert [each.name for each in session.classes] == ["Class 1", "Class 2"]
    assert session.selected == session.classes[0].number


def test_user_made_zips_can_be_loaded(model: Model, pictures: list[list[bytes]]) -> None:
    content = zipped(
        {
            "pets/cat/1.png": pictures[0][0],
            "pets/dog/a.png": pictures[1][0],
            "pets/dog/b.png": pictures[1][1],
            "pets/.DS_Store": b"x",
            "__MACOSX/pets/cat/._1.png": b"x",
        }
    )
    loaded = unpack_examples(content, name="x.zip", model=model)
    assert [(name, len(each)) for name, each in loaded] == [("cat", 1), ("dog", 2)]


def test_white_space_in_folder_names_is_normalized(
    model: Model, pictures: list[list[bytes]]
) -> None:
    files = {f"my  \u00a0cats/{number}.png": pictures[0][number] for number in range(2)}
    content = zipped(files | {"dog/1.png": pictures[1][0]})
    loaded = unpack_examples(content, name="x.zip", model=model)
    assert [(name, len(each)) for name, each in loaded] == [("my cats", 2), ("dog", 1)]
    # Two folders must not have the same class name.
    files["my cats/3.png"] = pictures[0][2]
    with pytest.raises(DataError, match="“my cats”: the class “my cats” already exists"):
        unpack_examples(zipped(files), name="x.zip", model=model)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "contains no pictures"),
        ({"1.png": b"x"}, "is not in a class folder"),
        ({"../cat/1.png": b"x"}, "outside the target folder"),
        ({"/cat/1.png": b"x"}, "outside the target folder"),
        ({"..\\..\\cat\\1.png": b"x"}, "outside the target folder"),
        ({"C:/cat/1.png": b"x"}, "outside the target folder"),
        ({"cat/1.png": b"x"}, "“cat/1.png” is not an image"),
        ({"a?b/1.png": b"x"}, "the folder “a\\?b”: a class name must not contain"),
        ({f"{'x' * 50}/1.png": b"x"}, "must have at most 40 characters"),
        ({f"c/{number}.png": b"" for number in range(301)}, "“c/0.png” is an empty file"),
        ({f".{number}": b"" for number in range(301)}, "it has more than 300 files"),
    ],
)
def test_invalid_sets_raise(model: Model, files: dict[str, bytes], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        unpack_examples(zipped(files), name="x.zip", model=model)


def test_too_many_classes_or_pictures_raise(model: Model, pictures: list[list[bytes]]) -> None:
    file = pictures[0][0]
    many = zipped({f"c{number}/1.png": file for number in range(MAX_CLASSES + 1)})
    with pytest.raises(DataError, match=f"it has 21 classes, .* at most {MAX_CLASSES}"):
        unpack_examples(many, name="x.zip", model=model)
    many = zipped({f"c/{number}.png": file for number in range(MAX_PER_CLASS + 1)})
    with pytest.raises(DataError, match=f"more than {MAX_PER_CLASS} pictures in a class"):
        unpack_examples(many, name="x.zip", model=model)


def test_zip_bombs_are_refused_before_unpacking(model: Model) -> None:
    content = zipped({"c/1.png": bytes(MAX_UNPACKED + 1)}, packed=True)
    assert len(content) < 100_000
    with pytest.raises(DataError, match="unpacks to more than"):
        unpack_examples(content, name="x.zip", model=model)


def test_zips_with_a_wrong_size_are_refused(model: Model) -> None:
    content = bytearray(zipped({"c/1.png": bytes(1000)}, packed=True))
    entry = content.index(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = (10).to_bytes(4, "little")
    with pytest.raises(DataError, match=r"x\.zip is damaged"):
        unpack_examples(bytes(content), name="x.zip", model=model)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 and no more"])
def test_damaged_zips_are_refused(model: Model, content: bytes) -> None:
    with pytest.raises(DataError, match=r"notes\.zip is damaged or has the wrong type"):
        unpack_examples(content, name="notes.zip", model=model)


def test_links_are_refused(model: Model) -> None:
    info = zipfile.ZipInfo("cat/1.png")
    info.external_attr = 0o120777 << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match=r"outside the target folder|is a link"):
        unpack_examples(buffer.getvalue(), name="x.zip", model=model)
