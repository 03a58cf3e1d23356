"""The ONNX model for resizing computes exactly the same pixels as Pillow."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from alfa.data import Crop, ImageFormat, Signature, decode
from alfa.export._resize import resize_model

OPTIONS = onnxruntime.SessionOptions()
OPTIONS.intra_op_num_threads = 1


def session(shape: tuple[int, int, int], crop: Crop | None = None) -> onnxruntime.InferenceSession:
    signature = Signature(shape, 1, "cross_entropy")
    model = resize_model(ImageFormat(shape, crop, signature), ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(model.SerializeToString(), OPTIONS)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 20)])
def test_every_pixel_matches_pillow(shape: tuple[int, int, int]) -> None:
    num_channels, height, width = shape
    found = session(shape)
    rng = np.random.default_rng(0)
    sizes = [
        (height, width),
        (1, 1),
        (height, 3 * width),
        (300, width),
        *rng.integers(1, 200, (20, 2)),
    ]
    for rows, columns in sizes:
        for channels in (1, 3):
            image = rng.integers(0, 256, (rows, columns, channels), dtype=np.uint8)
            # At edges between black and white, the filter overshoots.
            for pixels in (image, np.where(image < 128, 0, 255).astype(np.uint8)):
                (levels,) = found.run(None, {"images": pixels[None]})
                expected, _ = decode(pixels, size=(height, width), num_channels=num_channels)
                assert levels.dtype == np.float32
                assert (levels[0] == expected).all(), (rows, columns, channels)


@pytest.mark.parametrize("crop", [Crop(37, "bicubic"), Crop(32, "bilinear"), Crop(40, "bicubic")])
def test_every_pixel_of_a_crop_matches_pillow(crop: Crop) -> None:
    found = session((3, 32, 32), crop)
    rng = np.random.default_rng(0)
    sizes = [(32, 32), (1, 1), (32, 96), (3, 400), (37, 37), *rng.integers(1, 300, (30, 2))]
    for rows, columns in sizes:
        image = rng.integers(0, 256, (rows, columns, 3), dtype=np.uint8)
        for pixels in (image, np.where(image < 128, 0, 255).astype(np.uint8)):
            (levels,) = found.run(None, {"images": pixels[None]})
            expected, _ = decode(pixels, size=(32, 32), num_channels=3, crop=crop)
            assert (levels[0] == expected).all(), (rows, columns)


def test_batches_do_not_change_pixels() -> None:
    found = session((1, 9, 7))
    images = np.random.default_rng(1).integers(0, 256, (5, 12, 11, 3), dtype=np.uint8)
    (together,) = found.run(None, {"images": images})
    alone = [found.run(None, {"images": image[None]})[0] for image in images]
    assert (together == np.concatenate(alone)).all()


def test_other_numbers_of_channels_raise() -> None:
    with pytest.raises(Exception, match="Expand"):
        session((1, 9, 7)).run(None, {"images": np.zeros((1, 9, 7, 4), np.uint8)})
