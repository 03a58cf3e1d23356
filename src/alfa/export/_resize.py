# mypy: ignore-errors
"""Image resizing as an ONNX model, with the same pixels as `alfa.data.decode`.

ONNX's Resize has no Lanczos filter and other weights at borders, so this is Pillow's algorithm:
along each side, bytes are multiplied by a matrix of weights, which are integer multiples of 2^-22.
Doubles represent the products exactly, and each pass rounds its results to bytes. Import this
module only if onnxscript is installed.
"""

import numpy as np
from onnx import ModelProto, TensorProto, compose, helper, inliner
from onnxscript import FLOAT, UINT8, script
from onnxscript import opset18 as op

from alfa.data import ImageFormat

# Pillow's precision, and its weights of red, green, and blue in gray (ITU-R 601) in 2^-16.
_UNIT = float(1 << 22)
_LUMA = helper.make_tensor("luma", TensorProto.FLOAT, [3, 1], [19595, 38470, 7471])
_LUMA_UNIT = float(1 << 16)
# Pillow resizes the height first if an image is more than this many times taller than wide.
_TALL = 100.0
_PI = helper.make_tensor("pi", TensorProto.DOUBLE, [], [np.pi])
_FLOAT, _INT32, _DOUBLE = TensorProto.FLOAT, TensorProto.INT32, TensorProto.DOUBLE


def resize_model(image_format: ImageFormat, *, ir_version: int) -> ModelProto:
    """Build a model that resizes uint8 ``[batch, height, width, channel]`` with 1 or 3 channels.

    The output is float32 ``[batch, channel, height, width]`` of the given format.
    """
    num_channels, height, width = image_format.shape
    select_channels = _gray if num_channels == 1 else _color
    crop = image_format.crop
    near = _FILTERS["lanczos" if crop is None else crop.resample]
    # Without a crop, the part is the whole image.
    shorter_side = 0.0 if crop is None else float(crop.shorter_side)

    @script()
    def resize(images):
        planes = op.Transpose(select_channels(images), perm=[0, 3, 1, 2])
        is_same = op.Shape(images, start=1, end=3) == op.Constant(value_ints=[height, width])
        if op.ReduceMin(op.Cast(is_same, to=_INT32), keepdims=0) == 1:
            levels = op.Cast(planes, to=_FLOAT)
        else:
            exact = op.Cast(planes, to=_DOUBLE)
            old_height = op.Cast(op.Squeeze(op.Shape(images, start=1, end=2)), to=_DOUBLE)
            old_width = op.Cast(op.Squeeze(op.Shape(images, start=2, end=3)), to=_DOUBLE)
            new_height = op.CastLike(height, exact)
            new_width = op.CastLike(width, exact)
            if shorter_side > 0.0:
                part = new_height * op.Min(old_height, old_width) / shorter_side
                part_height = op.Identity(part)
                part_width = op.Identity(part)
            else:
                part_height = op.Identity(old_height)
                part_width = op.Identity(old_width)
            y_distances = _distances(old_height, new_height, part_height)
            x_distances = _distances(old_width, new_width, part_width)
            y_weights = _weights(near(y_distances))
            x_weights = op.Transpose(_weights(near(x_distances)))
            is_tall = op.And(old_height > _TALL * old_width, old_height > new_height)
            if is_tall:
                resized = _rounded(op.MatMul(_rounded(op.MatMul(y_weights, exact)), x_weights))
            else:
                resized = _rounded(op.MatMul(y_weights, _rounded(op.MatMul(exact, x_weights))))
            levels = op.Cast(resized, to=_FLOAT)
        return levels

    model = resize.to_model_proto(
        input_types=[UINT8["batch", "height", "width", "channel"]],
        output_types=[FLOAT["batch", num_channels, height, width]],
        ir_version=ir_version,
    )
    # The prefix prevents collisions with names in the network.
    return compose.add_prefix(inliner.inline_local_functions(model), "resize/", rename_inputs=False)


@script()
def _color(images):
    """Expand gray images to three channels."""
    return op.Expand(images, op.Constant(value_ints=[1, 1, 1, 3]))


@script()
def _gray(images):
    """Compute gray levels; sums are integers below 2^24, which floats represent exactly."""
    luma = op.MatMul(op.Cast(_color(images), to=_FLOAT), op.Constant(value=_LUMA))
    return op.Floor(luma / _LUMA_UNIT + 0.5)


@script()
def _distances(old, new, part):
    """Compute the distances ``[new, old]`` of all pixels along a side from new pixels.

    The new pixels cover the central `part` of the side. With s = part / new and r = max(s, 1), the
    distance of pixel i from pixel o is (i + 1/2 - (start + (o + 1/2) s)) / r. Pillow stores the
    ends of the part in single precision.
    """
    half = op.CastLike(0.5, old)
    one = op.CastLike(1.0, old)
    columns = op.Constant(value_ints=[1])
    start = op.Cast((old - part) * half, to=_FLOAT)
    stop = op.Cast((old + part) * half, to=_FLOAT)
    s = op.Cast(stop - start, to=_DOUBLE) / new
    numbers = op.Range(half, new, one)
    centers = op.Unsqueeze(op.Cast(start, to=_DOUBLE) + numbers * s, columns)
    return (op.Range(half, old, one) - centers) / op.Max(s, one)


@script()
def _lanczos(d):
    """Compute sinc(d) sinc(d / 3) for |d| < 3."""
    angle = d * op.Constant(value=_PI)
    third = angle / 3.0
    sinc = op.Sin(angle) * op.Sin(third) / (angle * third)
    distance = op.Abs(d)
    zero = op.CastLike(0.0, d)
    return op.Where(distance < 3.0, op.Where(distance == 0.0, op.CastLike(1.0, d), sinc), zero)


@script()
def _bicubic(d):
    """Compute Keys's cubic with a = -1/2 for |d| < 2."""
    x = op.Abs(d)
    inner = (1.5 * x - 2.5) * x * x + 1.0
    outer = (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5
    return op.Where(x < 1.0, inner, op.Where(x < 2.0, outer, op.CastLike(0.0, d)))


@script()
def _bilinear(d):
    """Compute 1 - |d| for |d| < 1."""
    return op.Max(1.0 - op.Abs(d), op.CastLike(0.0, d))


_FILTERS = {"lanczos": _lanczos, "bicubic": _bicubic, "bilinear": _bilinear}


@script()
def _weights(near):
    """Normalize weights ``[new, old]``, and round them to integer units."""
    columns = op.Constant(value_ints=[1])
    weights = near / op.ReduceSum(near, columns) * _UNIT
    return op.Floor(op.Abs(weights) + 0.5) * op.Sign(weights)


@script()
def _rounded(sums):
    """Round to the nearest byte, and halves upwards."""
    return op.Clip(op.Floor(sums / _UNIT + 0.5), op.CastLike(0.0, sums), op.CastLike(255.0, sums))
