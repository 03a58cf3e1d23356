# mypy: ignore-errors
"""Image resizing as an ONNX model, with the same pixels as `alfa.data.decode`.

ONNX's Resize has no Lanczos filter, so this is Pillow's algorithm: along each side, bytes are
multiplied by a matrix of weights, which are integer multiples of 2^-22. Doubles represent the
products exactly, and each pass rounds its results to bytes. Import this module only if onnxscript
is installed.
"""

import numpy as np
from onnx import ModelProto, TensorProto, compose, helper, inliner
from onnxscript import FLOAT, UINT8, script
from onnxscript import opset18 as op

# Pillow's precision, and its weights of red, green, and blue in gray (ITU-R 601) in 2^-16.
_UNIT = float(1 << 22)
_LUMA = helper.make_tensor("luma", TensorProto.FLOAT, [3, 1], [19595, 38470, 7471])
_LUMA_UNIT = float(1 << 16)
# Pillow resizes the height first if an image is more than this many times taller than wide.
_TALL = 100.0
_PI = helper.make_tensor("pi", TensorProto.DOUBLE, [], [np.pi])
_FLOAT, _INT32, _DOUBLE = TensorProto.FLOAT, TensorProto.INT32, TensorProto.DOUBLE


def resize_model(shape: tuple[int, int, int], *, ir_version: int) -> ModelProto:
    """Build a model that resizes uint8 ``[batch, height, width, channel]`` with 1 or 3 channels.

    The output is float32 ``[batch, channel, height, width]`` of the given shape.
    """
    num_channels, height, width = shape
    select_channels = _gray if num_channels == 1 else _color

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
            y_weights = _weights(old_height, new_height)
            x_weights = op.Transpose(_weights(old_width, op.CastLike(width, exact)))
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
def _weights(old, new):
    """Compute the weights ``[new, old]`` of all pixels along a side, in integer units.

    With s = old / new and r = max(s, 1), the weight of pixel i for pixel o is proportional to
    sinc(d) sinc(d / 3), where d = (i + 1/2 - (o + 1/2) s) / r, and zero for |d| >= 3.
    """
    zero = op.CastLike(0.0, old)
    half = op.CastLike(0.5, old)
    one = op.CastLike(1.0, old)
    columns = op.Constant(value_ints=[1])
    s = old / new
    centers = op.Unsqueeze(op.Range(half, new, one) * s, columns)
    d = (op.Range(half, old, one) - centers) / op.Max(s, one)
    angle = d * op.Constant(value=_PI)
    third = angle / 3.0
    sinc = op.Sin(angle) * op.Sin(third) / (angle * third)
    distance = op.Abs(d)
    near = op.Where(distance < 3.0, op.Where(distance == 0.0, one, sinc), zero)
    weights = near / op.ReduceSum(near, columns) * _UNIT
    return op.Floor(op.Abs(weights) + 0.5) * op.Sign(weights)


@script()
def _rounded(sums):
    """Round to the nearest byte, and halves upwards."""
    return op.Clip(op.Floor(sums / _UNIT + 0.5), op.CastLike(0.0, sums), op.CastLike(255.0, sums))
