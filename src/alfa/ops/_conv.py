"""The products of a convolution, which are each other's derivatives.

Images are ``[example, height, width, task * channel]``: tasks lie side by side as channels, and
torch takes such an image as channels-last. Weights are ``[task, out, in, side, side]``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from alfa.ops import _winograd

# With this many columns or fewer, a product with all patches of one-channel images beats torch's
# kernels for convolutions.
_MOST_COLUMNS = 36


class Kernel(NamedTuple):
    """The weights of all tasks, laid out as those like them who multiply with them.

    Attributes:
        laid: ``[task * out, in, side, side]``, channels last in memory, for torch's kernels; or U
            of `alfa.ops._winograd`.
        shape: ``[task, out, in, side, side]``
        stride: places of the image from one place of the output to the next.
        is_winograd: whether it is U.
    """

    laid: Tensor
    shape: torch.Size
    stride: int
    is_winograd: bool

    @classmethod
    def of(cls, weight: Tensor, x: Tensor, stride: int = 1) -> Kernel:
        """For images like these."""
        if weight.dtype == x.dtype and _winograd.fits(x, weight.shape, stride):
            return cls(_winograd.laid(weight), weight.shape, stride, True)
        joined = weight.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        return cls(joined, weight.shape, stride, False)

    def geometry(self) -> tuple[Any, ...]:
        """Stride, padding, dilation, not transposed, no output padding, groups."""
        padding = self.shape[-1] // 2
        return [self.stride] * 2, [padding, padding], [1, 1], False, [0, 0], self.shape[0]


def conv(*terms: tuple[Tensor, Kernel]) -> Tensor:
    """z = x * W, with padding that keeps the size at a stride of 1; of several terms, the sum."""
    if _all_winograd(kernel for _, kernel in terms):
        return _winograd.conv(*((x, kernel.laid) for x, kernel in terms))
    z, *more = (
        _last(torch.ops.aten.convolution(_first(x), kernel.laid, None, *kernel.geometry()))
        for x, kernel in terms
    )
    return functools.reduce(Tensor.add_, more, z)


class Term(NamedTuple):
    """What the gradients of a convolution are made of.

    Attributes:
        dz: the gradient in the output.
        x: the images.
        kernel: the weights.
        dx: whether the gradient in x is asked for.
        dw: whether that in W is.
    """

    dz: Tensor
    x: Tensor
    kernel: Kernel
    dx: bool = True
    dw: bool = True


def conv_backward(*terms: Term) -> tuple[Tensor | None, Tensor | None]:
    """The gradients in x and in W, of those asked for; of several terms, the sums."""
    kernel = terms[0].kernel
    if _all_winograd(term.kernel for term in terms):
        return _winograd.conv_backward(
            *(
                _winograd.Term(dz, x if dw else None, kernel.laid if dx else None)
                for dz, x, kernel, dx, dw in terms
            ),
            shape=kernel.shape,
        )
    in_x: Tensor | None = None
    in_w: Tensor | None = None
    for dz, x, kernel, *wanted in terms:
        # Both at once cost less than each alone.
        first, second, _ = torch.ops.aten.convolution_backward(
            _first(dz), _first(x), kernel.laid, None, *kernel.geometry(), [*wanted, False]
        )
        in_x, in_w = plus(in_x, first), plus(in_w, second)
    return (
        None if in_x is None else _last(in_x),
        None if in_w is None else in_w.unflatten(0, kernel.shape[:2]),
    )


def _all_winograd(kernels: Iterable[Kernel]) -> bool:
    """Whether they are laid out for Winograd, as all of them are or none is."""
    (answer,) = {kernel.is_winograd for kernel in kernels}
    return answer


def plus(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """The sum, in the place of the first, which must be a result that nobody else holds."""
    if first is None or second is None:
        return second if first is None else first
    return first.add_(second)


def _first(images: Tensor) -> Tensor:
    """Channels first in name, and still last in memory."""
    return images.permute(0, 3, 1, 2)


def _last(images: Tensor) -> Tensor:
    return images.permute(0, 2, 3, 1).contiguous()


class Patches:
    """The same for images of one channel, whose patches are small.

    With the patches in a matrix X, ``[place, task * in * 9]``, and the weights of the tasks as the
    blocks of a block-diagonal matrix B, z = X B, and dB = X' dz, of which the blocks count.
    """

    @staticmethod
    def fit(x: Tensor, weight: Tensor) -> bool:
        """Whether this is the faster way."""
        one_channel = weight.shape[2:] == (1, 3, 3)
        return one_channel and x.shape[3] * 9 <= _MOST_COLUMNS

    @staticmethod
    def of(x: Tensor) -> Tensor:
        """X"""
        num_examples, height, width, num_channels = x.shape
        padded = F.pad(x, (0, 0, 1, 1, 1, 1))
        sides: Tensor = padded.unfold(1, 3, 1).unfold(2, 3, 1)  # [example, h, w, channel, 3, 3]
        return sides.reshape(num_examples * height * width, num_channels * 9)

    @staticmethod
    def conv(patches: Tensor, weight: Tensor, shape: torch.Size) -> Tensor:
        """z, from the shape of the images."""
        blocks: Tensor = torch.block_diag(*weight.flatten(2).transpose(1, 2))
        return (patches @ blocks).view(*shape[:3], -1)

    @staticmethod
    def conv_dw(dz: Tensor, patches: Tensor, weight: Tensor) -> Tensor:
        """The gradient in W."""
        num_tasks, num_out = weight.shape[:2]
        product = patches.T @ dz.reshape(-1, num_tasks * num_out)
        blocks: Tensor = product.view(num_tasks, -1, num_tasks, num_out).diagonal(dim1=0, dim2=2)
        return blocks.permute(2, 1, 0).reshape(weight.shape)  # from [in * 9, out, task]
