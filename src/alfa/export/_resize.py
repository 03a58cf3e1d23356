"""Resizing of images as a graph of ONNX operations, to the same pixels as `alfa.data.decode`.

The Resize operation of ONNX has no Lanczos filter, so this is Pillow's algorithm: along each side a
matrix of weights in whole numbers of 2^-22. Their products with bytes are exact in doubles, and the
results are rounded to bytes after each side. An image of the right size stays unchanged.
"""

from __future__ import annotations

# Pillow's precision, and its shares of red, green and blue in grey (ITU-R 601), in 2^-16.
_UNIT = 1 << 22
_LUMA = (19595, 38470, 7471)
_LUMA_UNIT = 1 << 16
# Pillow resizes the height first if an image is more than this many times as tall as wide.
_TALL = 100
# Types, as ONNX counts them.
_FLOAT, _INT32, _DOUBLE = 1, 6, 11


def resize_graph(shape: tuple[int, int, int], *, opset: int, ir_version: int) -> str:
    """An ONNX model, in text form, that resizes images to a shape with 1 or 3 channels.

    Its input is ``images``, uint8 ``[batch, height, width, channel]`` of any size and with 1 or 3
    channels, and its output ``levels``, float32 ``[batch, channel, height, width]``.
    """
    num_channels, height, width = shape
    wanted = f"float[batch, {num_channels}, {height}, {width}]"
    return f"""
<ir_version: {ir_version}, opset_import: ["" : {opset}]>
images (uint8[batch, height, width, channel] images) => ({wanted} levels) {{
  rgb = Constant <value_ints = [1, 1, 1, 3]> ()
  colours = Expand (images, rgb)
  {_grey() if num_channels == 1 else "chosen = Identity (colours)"}
  planes = Transpose <perm = [0, 3, 1, 2]> (chosen)
  own = Constant <value_ints = [{height}, {width}]> ()
  size = Shape <start = 1, end = 3> (images)
  equal_sides = Equal (size, own)
  sides = Cast <to = {_INT32}> (equal_sides)
  least = ReduceMin <keepdims = 0> (sides)
  is_right = Cast <to = 9> (least)
  levels = If (is_right) <
    then_branch = keep () => ({wanted} kept) {{ kept = Cast <to = {_FLOAT}> (planes) }},
    else_branch = resize () => ({wanted} resized) {{
      zero = Constant <value = double {{0}}> ()
      half = Constant <value = double {{0.5}}> ()
      one = Constant <value = double {{1}}> ()
      lobes = Constant <value = double {{3}}> ()
      pi = Constant <value = double {{3.141592653589793}}> ()
      unit = Constant <value = double {{{_UNIT}}}> ()
      white = Constant <value = double {{255}}> ()
      second = Constant <value_ints = [1]> ()
      {_weights("x", axis=2, wanted=width)}
      {_weights("y", axis=1, wanted=height)}
      exact = Cast <to = {_DOUBLE}> (planes)
      x_turned = Transpose (x_weights)
      limit = Constant <value = double {{{_TALL}}}> ()
      tallest = Mul (x_old, limit)
      is_strip = Greater (y_old, tallest)
      is_less = Less (y_new, y_old)
      is_tall = And (is_strip, is_less)
      resized = If (is_tall) <
        then_branch = y_first () => ({wanted} y_first_levels) {{
          low_sums = MatMul (y_weights, exact)
          {_rounded("low_sums", "low")}
          low_wide_sums = MatMul (low, x_turned)
          {_rounded("low_wide_sums", "low_wide")}
          y_first_levels = Cast <to = {_FLOAT}> (low_wide)
        }},
        else_branch = x_first () => ({wanted} x_first_levels) {{
          wide_sums = MatMul (exact, x_turned)
          {_rounded("wide_sums", "wide")}
          wide_low_sums = MatMul (y_weights, wide)
          {_rounded("wide_low_sums", "wide_low")}
          x_first_levels = Cast <to = {_FLOAT}> (wide_low)
        }}
      >
    }}
  >
}}
"""


def _grey() -> str:
    """Gray levels; sums are whole numbers below 2^24, which floats represent exactly."""
    return f"""
  bright = Cast <to = {_FLOAT}> (colours)
  shares = Constant <value = float[3, 1] {{{", ".join(map(str, _LUMA))}}}> ()
  luma = MatMul (bright, shares)
  luma_unit = Constant <value = float {{{_LUMA_UNIT}}}> ()
  luma_half = Constant <value = float {{0.5}}> ()
  parts = Div (luma, luma_unit)
  above = Add (parts, luma_half)
  chosen = Floor (above)"""


def _weights(p: str, *, axis: int, wanted: int) -> str:
    """The weight of every pixel along a side for every new one, ``[new, old]``, in whole units.

    With s = old / new and r = max(s, 1), the weight of pixel i for pixel o is proportional to
    sinc(d) sinc(d / 3), where d = (i + 1/2 - (o + 1/2) s) / r, and zero from |d| = 3 on.
    """
    return f"""
      {p}_size = Shape <start = {axis}, end = {axis + 1}> (images)
      {p}_scalar = Squeeze ({p}_size)
      {p}_old = Cast <to = {_DOUBLE}> ({p}_scalar)
      {p}_new = Constant <value = double {{{wanted}}}> ()
      {p}_s = Div ({p}_old, {p}_new)
      {p}_r = Max ({p}_s, one)
      {p}_o = Range (half, {p}_new, one)
      {p}_centre = Mul ({p}_o, {p}_s)
      {p}_column = Unsqueeze ({p}_centre, second)
      {p}_i = Range (half, {p}_old, one)
      {p}_away = Sub ({p}_i, {p}_column)
      {p}_d = Div ({p}_away, {p}_r)
      {p}_angle = Mul ({p}_d, pi)
      {p}_third = Div ({p}_angle, lobes)
      {p}_sin = Sin ({p}_angle)
      {p}_sin_third = Sin ({p}_third)
      {p}_sines = Mul ({p}_sin, {p}_sin_third)
      {p}_angles = Mul ({p}_angle, {p}_third)
      {p}_sinc = Div ({p}_sines, {p}_angles)
      {p}_distance = Abs ({p}_d)
      {p}_is_centre = Equal ({p}_distance, zero)
      {p}_lanczos = Where ({p}_is_centre, one, {p}_sinc)
      {p}_is_near = Less ({p}_distance, lobes)
      {p}_near = Where ({p}_is_near, {p}_lanczos, zero)
      {p}_total = ReduceSum ({p}_near, second)
      {p}_share = Div ({p}_near, {p}_total)
      {p}_fine = Mul ({p}_share, unit)
      {p}_length = Abs ({p}_fine)
      {p}_above = Add ({p}_length, half)
      {p}_whole = Floor ({p}_above)
      {p}_sign = Sign ({p}_fine)
      {p}_weights = Mul ({p}_whole, {p}_sign)"""


def _rounded(sums: str, result: str) -> str:
    """Round to the nearest byte, a half upwards."""
    return f"""
      {result}_parts = Div ({sums}, unit)
      {result}_above = Add ({result}_parts, half)
      {result}_whole = Floor ({result}_above)
      {result} = Clip ({result}_whole, zero, white)"""
