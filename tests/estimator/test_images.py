"""Accepted forms of images, their values of black and white, and errors."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from alfa import FewShotClassifier
from alfa.data import Strokes
from alfa.errors import ConfigError
from alfa.estimator._images import _each_image, is_table, value_range

Characters = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def fitted(run: Path, characters: Characters) -> FewShotClassifier:
    """Return a classifier fitted on bytes; tests must not change it."""
    return FewShotClassifier(run).fit(*characters)


@pytest.fixture(scope="module")
def paths(characters: Characters, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("files")
    found = [folder / f"{number:02d}.png" for number in range(18)]
    for path, image in zip(found, characters[0], strict=True):
        Image.fromarray(image).save(path)
    return found


# --- images and tables


def test_file_names_in_any_container(
    run: Path, fitted: FewShotClassifier, characters: Characters, paths: list[Path]
) -> None:
    pandas = pytest.importorskip("pandas")
    expected = fitted.predict_proba(characters[0])
    forms: dict[str, Any] = {
        "an array of paths": np.array(paths),
        "an array of names": np.array([str(path) for path in paths]),
        "a series of names": pandas.Series([str(path) for path in paths]),
        "a series of paths": pandas.Series(paths),
    }
    for name, form in forms.items():
        assert (fitted.predict_proba(form) == expected).all(), name
    # Generators can be read only once.
    assert fitted.predict_proba(paths[0].parent.glob("*.png")).shape == (18, 3)
    again = FewShotClassifier(run).fit((path for path in paths), characters[1])
    assert (again.predict_proba(path for path in paths) == expected).all()


def test_images_of_different_sizes_in_an_array_of_objects(
    fitted: FewShotClassifier, characters: Characters
) -> None:
    images = np.empty(2, object)
    images[:] = [characters[0][0], characters[0][1][:9]]
    assert fitted.predict_proba(images).shape == (2, 3)


def test_scikit_learn_validates_tables_and_numbers() -> None:
    assert is_table(np.arange(3.0))
    assert is_table([1.0, 2.0])
    assert is_table([[1.0, 2.0]])
    assert is_table(3)
    assert not is_table([[[1.0, 2.0]]])
    assert not is_table([None])


@pytest.mark.parametrize(
    ("single", "told"),
    [
        (np.zeros((16, 16, 3), np.uint8), r"X has the shape \[16, 16, 3\] of a single image"),
        (
            np.zeros((16, 16, 1), np.uint8),
            r"shape \[16, 16, 1\] of a single image, not of 16 images; put",
        ),
        ([[[0, 1, 2]] * 16] * 16, r"X has the shape \[16, 16, 3\]"),
        (np.zeros((16, 16), np.uint8), r"X is a table of shape \[16, 16\], but the classifier was"),
        (
            [[0.0, 1.0]],
            r"X is a table of shape \[1, 2\].*; put a single image in a list",
        ),
        (
            Image.new("L", (16, 16)),
            "X must be a list of images, got <PIL.Image.*; put a single image",
        ),
        ("photo.png", "X must be a list of images, got 'photo.png'"),
        (Path("photo.png"), r"X must be a list of images, got PosixPath\('photo.png'\)"),
    ],
    ids=["color", "gray with a channel", "lists", "gray", "numbers", "PIL", "name", "path"],
)
def test_a_single_image_is_not_a_batch(fitted: FewShotClassifier, single: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        fitted.predict(single)
    if not isinstance(single, (str, Path, list)):
        assert fitted.predict([single]).shape == (1,)


@pytest.mark.parametrize(
    "form", [np.asarray, torch.from_numpy, list], ids=["numpy", "torch", "list"]
)
def test_a_single_image_with_channels_first_is_not_a_gray_batch(
    run: Path, characters: Characters, form: Any
) -> None:
    images, labels = characters
    color = np.stack([images] * 3, axis=1)
    clf = FewShotClassifier(run).fit(form(color), labels)
    with pytest.raises(ConfigError, match=r"shape \[3, .* of a single image, not of 3 images; put"):
        clf.predict(color[0])
    assert clf.predict(color[:1]).shape == (1,)
    # In a list, or after a gray support set, they are gray images.
    assert clf.predict(list(color[0])).shape == (3,)
    for gray in (images, list(images), images.reshape(len(images), -1)):
        assert clf.fit(gray, labels).predict(color[0]).shape == (3,)


def test_tables_are_validated_against_the_last_fit(run: Path, characters: Characters) -> None:
    images, labels = characters
    table = images.reshape(18, -1)
    clf = FewShotClassifier(run).fit(table, labels)
    assert clf.predict(table).shape == (18,)
    clf.fit(images, labels)
    assert not hasattr(clf, "n_features_in_")
    with pytest.raises(ConfigError, match="X is a table"):
        clf.predict(table)


# --- black and white


def test_floats_after_bytes_or_files_raise(
    run: Path, fitted: FewShotClassifier, characters: Characters, paths: list[Path]
) -> None:
    images, labels = characters
    told = (
        r"image 0 is an array of float64 with values from 0 to 1, but the support set has only "
        r"bytes or files, so the values of black and white are unknown; use uint8, or set "
        r"`value_range` and fit again\."
    )
    for clf in (fitted, FewShotClassifier(run).fit(paths, labels)):
        assert clf.value_range_ is None
        with pytest.raises(ConfigError, match=told):
            clf.predict(images / 255)
        # Integers are bytes, and booleans are black and white.
        assert np.allclose(clf.predict_proba(images.astype(int)), clf.predict_proba(images))
        ink = images > 127
        assert np.allclose(clf.predict_proba(ink), clf.predict_proba(255 * ink.astype(np.uint8)))
    known = FewShotClassifier(run, value_range=(0, 1)).fit(paths, labels)
    found = known.predict_proba(images / 255)
    np.testing.assert_allclose(found, fitted.predict_proba(images), atol=1e-4)


def test_value_range_uses_arrays_of_unknown_scale(paths: list[Path]) -> None:
    image = np.linspace(0, 1, 16).reshape(4, 4)
    assert value_range([image]) == value_range([image > 0.5]) == (0, 1)
    assert value_range([image, 7 * image - 2]) == (-2, 5)
    assert value_range([0 * image + 3]) == (3, 4)
    assert value_range([(255 * image).astype(np.uint8), paths[0], Image.new("L", (2, 2))]) is None
    # Invalid images are skipped here; reading them raises.
    others = [None, b"x", np.empty((0, 4)), image * np.nan, [[1], [2, 3]], np.array([["a"]])]
    assert value_range([*others, 5 * image]) == (0, 5)
    assert value_range(others) is None


# --- errors


@pytest.mark.parametrize(
    ("image", "told"),
    [
        (None, "image 1 must be a file name, a PIL image, or an array of numbers, got NoneType"),
        (b"\x89PNG", "image 1 must be a file name, .*, got bytes"),
        (np.array([["a", "b"]]), "image 1 must be a file name, .*, got ndarray of <U1"),
        (np.empty((0, 4)), r"image 1 has the shape \[0, 4, 1\], but must be"),
        (np.full((4, 4), np.nan), "image 1 contains NaN"),
        ([[1.0], [2.0, 3.0]], r"image 1 cannot be converted to a NumPy array \("),
        ("a\0.png", r"cannot be read \(.*null"),
    ],
    ids=["nothing", "bytes", "letters", "empty", "NaN", "ragged", "name"],
)
def test_invalid_images_raise(run: Path, characters: Characters, image: Any, told: str) -> None:
    for good in (characters[0][0], characters[0][0] / 255):
        with pytest.raises(ConfigError, match=told):
            FewShotClassifier(run).fit([good, image], ["a", "b"])
    # The position does not matter.
    with pytest.raises(ConfigError, match=told.replace("image 1", "image 0")):
        FewShotClassifier(run).fit([image, characters[0][0] / 255], ["a", "b"])


# --- PIL images


def _saved(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def test_pil_images_are_converted_like_files(
    fitted: FewShotClassifier, characters: Characters, tmp_path: Path
) -> None:
    gray = characters[0][0]
    image, levels = Image.fromarray(gray), Image.fromarray(gray.astype(np.uint16) * 257)
    exif = Image.Exif()
    exif[0x0112] = 6
    files = {
        "16 bits": _saved(levels),
        "16 bits in 32": _saved(levels.convert("I"), "TIFF"),
        "a transparent level": _saved(image, transparency=int(gray[0, 0])),
        "turned": _saved(image, exif=exif),
        "damaged EXIF": _saved(image, exif=b"Exif\0\0rubbish"),
    }
    for name, content in files.items():
        (tmp_path / "image").write_bytes(content)
        expected = fitted.predict_proba([tmp_path / "image"])
        assert (fitted.predict_proba([Image.open(io.BytesIO(content))]) == expected).all(), name
    for made in (levels, levels.convert("I"), image.convert("RGBA")):
        assert (fitted.predict_proba([made]) == fitted.predict_proba([gray])).all(), made.mode


def test_invalid_pil_images_raise(fitted: FewShotClassifier) -> None:
    noise = _saved(Image.effect_noise((64, 64), 90))
    with pytest.raises(ConfigError, match=r"image 0 is damaged or truncated \("):
        fitted.predict([Image.open(io.BytesIO(noise[:900]))])
    with pytest.raises(ConfigError, match=r"image 0 has gray levels from .* without a known white"):
        fitted.predict([Image.new("F", (4, 4), 0.5)])


@pytest.mark.parametrize("kind", [int, float, np.uint16])
def test_a_wider_scale_than_in_the_support_set_raises(
    run: Path, characters: Characters, kind: type
) -> None:
    images, labels = characters
    clf = FewShotClassifier(run).fit(images / 255, labels)
    with pytest.raises(ConfigError, match=r"image 0 has values from 0 to 255, but .* from 0 to 1;"):
        clf.predict(images.astype(kind))
    # The scale from -1 to 1, which some networks use.
    with pytest.raises(ConfigError, match=r"image 0 has values from -1 to 1, but .* from 0 to 1;"):
        clf.predict(images / 127.5 - 1)
    # Sharpening may slightly exceed the range.
    assert clf.predict(images / 255 * 1.2 - 0.1).shape == (18,)
    # An explicit `value_range` disables the check.
    clf = FewShotClassifier(run, value_range=(0, 1)).fit(images / 255, labels)
    assert clf.predict(images.astype(kind)).shape == (18,)


@pytest.mark.parametrize("scale", [255.0, 65535.0])
def test_a_narrower_scale_than_in_the_support_set_raises(
    run: Path, characters: Characters, scale: float
) -> None:
    images, labels = characters
    clf = FewShotClassifier(run).fit(images * (scale / 255), labels)
    told = rf"X has values from 0 to 1, but the support set had values from 0 to {scale:g};"
    with pytest.raises(ConfigError, match=told):
        clf.predict(images / 255)
    # Images may be black, and booleans have a fixed scale.
    assert clf.predict(np.zeros((2, 16, 16))).shape == (2,)
    ink = images > 127
    expected = clf.predict_proba(ink.astype(float) * scale)
    np.testing.assert_allclose(clf.predict_proba(ink), expected, atol=1e-4)
    known = FewShotClassifier(run, value_range=(0, scale)).fit(images * (scale / 255), labels)
    assert known.predict(images / 255).shape == (18,)


def test_integers_beyond_bytes_raise(fitted: FewShotClassifier, characters: Characters) -> None:
    images, _ = characters
    for values, ends in ((images.astype(np.uint16) * 257, "0 to 65535"), (images - 128.0, "-128")):
        with pytest.raises(
            ConfigError, match=rf"image 0 is an array .* with values from {ends}.* are unknown"
        ):
            fitted.predict(values.astype(int))


def test_floats_are_resized_like_bytes(run: Path, fitted: FewShotClassifier) -> None:
    # At edges, the resizing filter overshoots black and white.
    images = Strokes(num_classes=3, num_examples=2, size=45).images().images[:, 0]
    floats = FewShotClassifier(run, value_range=(0, 1)).fit(images / 255.0, np.arange(6) // 2)
    both = [fitted._reader.read(images), floats._reader.read(images / 255.0)]
    # Bytes are rounded along both sides.
    assert float((both[0] - both[1]).abs().max()) < 1.5 / 255 / fitted.signature_.std[0]
    # Values that already exceeded the range are preserved.
    beyond = floats._reader.read(images / 255.0 * 1.2)
    assert float(beyond.max()) == pytest.approx(
        float(both[1].max()) + 0.2 / floats.signature_.std[0]
    )


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        *((40.0, 167.0, (0, 255)), (0.5, 255.0, (0, 255)), (3, 60, (0, 255)), (0, 16, (0, 16))),
        *((-1.0, 200.0, (-1, 200)), (0.0, 256.0, (0, 256)), (0.0, 1.0, (0, 1))),
    ],
)
def test_value_range_detects_bytes(low, high, expected) -> None:
    assert value_range(np.array([[[low, high], [high, low]]])) == expected


def test_dark_images_match_as_bytes_and_floats(run: Path, characters: Characters) -> None:
    images, labels = (characters[0] // 2 + 40).astype(np.uint8), characters[1]
    expected = FewShotClassifier(run).fit(images, labels).predict_proba(images)
    found = FewShotClassifier(run).fit(images.astype(np.float32), labels)
    for same in (images, images.astype(np.float64), [Image.fromarray(image) for image in images]):
        assert np.abs(found.predict_proba(same) - expected).max() < 1e-5


def test_channels_may_come_first_in_lists(run: Path, fitted: FewShotClassifier) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 3, 20, 24), dtype=np.uint8)
    expected = fitted.predict_proba(images)
    assert (fitted.predict_proba(list(images)) == expected).all()
    assert (fitted.predict_proba([torch.from_numpy(image) for image in images]) == expected).all()
    assert (fitted.predict_proba(images.transpose(0, 2, 3, 1)) == expected).all()


def test_transparent_floats_have_a_white_background(run: Path, characters) -> None:
    # The images have the model's size, because resizing rounds bytes.
    rgba = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 4), dtype=np.uint8)
    clf = FewShotClassifier(run, value_range=(0, 1)).fit(characters[0] / 255.0, characters[1])
    both = [clf._reader.read(pixels) for pixels in (rgba, rgba / 255.0)]
    assert float((both[0] - both[1]).abs().max()) < 1.5 / 255 / clf.signature_.std[0]


def test_table_rows_have_adjacent_channels() -> None:
    images = np.arange(2 * 4 * 4 * 3).reshape(2, 4, 4, 3)
    assert all(
        (a == b).all() for a, b in zip(_each_image(images.reshape(2, -1)), images, strict=True)
    )


def test_value_range_is_converted_to_floats(run: Path, characters: Characters) -> None:
    images, labels = characters
    expected = FewShotClassifier(run, value_range=(0, 1)).fit(images / 255, labels)
    clf = FewShotClassifier(run, value_range=("0", "1")).fit(images / 255, labels)
    assert clf.value_range_ == (0.0, 1.0)
    assert (clf.predict_proba(images / 255) == expected.predict_proba(images / 255)).all()


@pytest.mark.parametrize("change", [{"requires_grad": True}, {"dtype": torch.bfloat16}], ids=str)
def test_unsupported_tensors_raise(fitted: FewShotClassifier, change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^X cannot be converted to a NumPy array"):
        fitted.predict(torch.zeros(2, 16, 16, 1, **change))


def test_invalid_byte_arrays_raise(fitted: FewShotClassifier) -> None:
    with pytest.raises(ConfigError, match=r"^image 0 must be uint8 .*, got uint8 \[4, 4, 5\]"):
        fitted.predict(np.zeros((1, 4, 4, 5), np.uint8))
