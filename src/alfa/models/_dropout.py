"""Dropout for convolutional backbones.

Both modules draw from torch's global generator, and only in training mode.
"""

from torch import Tensor
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd


class Dropout(_DropoutNd):
    """Set each value to zero with probability p, and divide the others by 1 - p."""

    def draw(self, x: Tensor, num_tasks: int) -> Tensor | None:
        """Return the factor of every value; None in evaluation mode.

        Args:
            x: images ``[example, height, width, task * channel]``.
            num_tasks: number of tasks side by side.
        """
        if not self.training:
            return None
        return x.new_empty(x.shape).bernoulli_(1 - self.p).div_(1 - self.p)


class DropBlock(Dropout):
    """Set squares of each map to zero (Ghiasi et al., 2018).

    With map sizes H and W and square size b, every possible corner of a square is drawn with the
    probability

        gamma = p H W / (b^2 (H - b + 1) (W - b + 1)),

    so that about a fraction p of the values is dropped. The values of each task are then divided by
    the fraction of its values that remain. Squares are cropped to smaller maps.
    """

    def __init__(self, p: float, size: int) -> None:
        super().__init__(p)
        self.size = size

    def draw(self, x: Tensor, num_tasks: int) -> Tensor | None:
        if not self.training:
            return None
        num_examples, height, width, num_channels = x.shape
        b = min(self.size, height), min(self.size, width)
        places = height - b[0] + 1, width - b[1] + 1
        gamma = self.p * height * width / (b[0] * b[1] * places[0] * places[1])
        corners = x.new_empty(num_examples, num_channels, *places).bernoulli_(gamma)
        padding = b[1] - 1, b[1] - 1, b[0] - 1, b[0] - 1
        kept = 1 - F.max_pool2d(F.pad(corners, padding), b, stride=1)
        by_task = kept.permute(0, 2, 3, 1).unflatten(3, (num_tasks, -1))
        counts = by_task.sum((0, 1, 2, 4)).clamp_min(1)
        scale = by_task[..., 0, :].numel() / counts
        mask: Tensor = (by_task * scale.unsqueeze(1)).flatten(3)
        return mask
