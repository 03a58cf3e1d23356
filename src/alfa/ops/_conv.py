"""The products of a convolution, which are each other's derivatives.

Images are ``[example, height, width, task * channel]``: tasks lie side by side as channels, which
is torch's channels-last format. Weights are ``[task, out, in, side, side]``.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from alfa.ops import _winograd

# Up to this many columns, a product with all patches of one-channel images is faster than torch's
# convolutions.
_MAX_COLUMNS = 36


class Kernel(NamedTuple):
    """The weights of all tasks in the layout that the convolution needs."""

    values: Tensor  # [task * out, in, side, side], channels last, or U of `alfa.ops._winograd`
    shape: torch.Size  # [task, out, in, side, side]
    stride: int
    is_winograd: bool

    @classmethod
    def of(cls, weight: Tensor, x: Tensor, stride: int = 1) -> Kernel:
        """Lay out weights for images like `x`."""
        if weight.dtype == x.dtype and _winograd.is_faster(x, weight.shape, stride):
            return cls(_winograd.transform(weight), weight.shape, stride, True)
        joined = weight.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        return cls(joined, weight.shape, stride, False)

    def geometry(self) -> tuple[Any, ...]:
        """Return stride, padding, dilation, transposed, output padding, and groups."""
        padding = self.shape[-1] // 2
        return [self.stride] * 2, [padding, padding], [1, 1], False, [0, 0], self.shape[0]


def conv(*terms: tuple[Tensor, Kernel]) -> Tensor:
    """Return the sum of all x * W, with padding that keeps the size at a stride of 1."""
    # Either all kernels are laid out for Winograd or none.
    if terms[0][1].is_winograd:
        return _winograd.conv(*((x, kernel.values) for x, kernel in terms))
    convolution = torch.ops.aten.convolution
    z, *more = (
        channels_last(convolution(channels_first(x), kernel.values, None, *kernel.geometry()))
        for x, kernel in terms
    )
    return functools.reduce(Tensor.add_, more, z)


class Term(NamedTuple):
    """One term of the gradients of a convolution."""

    dz: Tensor
    x: Tensor
    kernel: Kernel
    dx: bool = True  # whether the gradient in x is needed
    dw: bool = True  # whether the gradient in W is needed


def conv_backward(*terms: Term) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients in x and in W, each summed over the terms that need it."""
    kernel = terms[0].kernel
    if kernel.is_winograd:
        return _winograd.conv_backward(
            *((dz, x if dw else None, w.values if dx else None) for dz, x, w, dx, dw in terms),
            shape=kernel.shape,
        )
    in_x: Tensor | None = None
    in_w: Tensor | None = None
    for dz, x, kernel, *wanted in terms:
        # Computing both at once costs less than one after the other.
        dx, dw, _ = torch.ops.aten.convolution_backward(
            *(channels_first(dz), channels_first(x), kernel.values, None),
            *(*kernel.geometry(), [*wanted, False]),
        )
        in_x, in_w = add_in_place(in_x, dx), add_in_place(in_w, dw)
    if in_w is not None:
        in_w = in_w.unflatten(0, kernel.shape[:2])
    return None if in_x is None else channels_last(in_x), in_w


def add_in_place(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """Add to the first tensor, which must have no other owner."""
    if first is None or second is None:
        return second if first is None else first
    return first.add_(second)


def channels_first(images: Tensor) -> Tensor:
    """View with channels first, which remain last in memory."""
    return images.permute(0, 3, 1, 2)


def channels_last(images: Tensor) -> Tensor:
    return images.permute(0, 2, 3, 1).contiguous()


class Patches:
    """Convolutions of one-channel images, whose patches are small.

    With the patches in a matrix X, ``[place, task * in * 9]``, and the weights of the tasks as the
    blocks of a block-diagonal matrix B, z = X B, and dW are the blocks of X' dz.
    """

    @staticmethod
    def are_faster(x: Tensor, weight: Tensor) -> bool:
        one_channel = weight.shape[2:] == (1, 3, 3)
        return one_channel and x.shape[3] * 9 <= _MAX_COLUMNS

    @staticmethod
    def of(x: Tensor) -> Tensor:
        """Return X."""
        num_examples, height, width, num_channels = x.shape
        padded = F.pad(x, (0, 0, 1, 1, 1, 1))
        sides: Tensor = padded.unfold(1, 3, 1).unfold(2, 3, 1)  # [example, h, w, channel, 3, 3]
        return sides.reshape(num_examples * height * width, num_channels * 9)

    @staticmethod
    def conv(patches: Tensor, weight: Tensor, shape: torch.Size) -> Tensor:
        """Return z for images of a shape."""
        blocks: Tensor = torch.block_diag(*weight.flatten(2).transpose(1, 2))
        return (patches @ blocks).view(*shape[:3], -1)

    @staticmethod
    def conv_dw(dz: Tensor, patches: Tensor, weight: Tensor) -> Tensor:
        """Return dW."""
        num_tasks, num_out = weight.shape[:2]
        product = patches.T @ dz.reshape(-1, num_tasks * num_out)
        blocks: Tensor = product.view(num_tasks, -1, num_tasks, num_out).diagonal(dim1=0, dim2=2)
        return blocks.permute(2, 1, 0).reshape(weight.shape)  # from [in * 9, out, task]
