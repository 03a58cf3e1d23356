"""The stages of convolutional networks, each with hand-written derivatives.

A stage y = f(x, w) has four passes. With dots for derivatives in a direction (xdot, wdot):

    forward             y
    backward            dx = f_x' dy,  dw = f_w' dy
    tangent             ydot = f_x xdot + f_w wdot
    backward_tangent    dxdot and dwdot, the derivatives of dx and dw in that direction,
                        where dy moves with dydot

A network is a stage, too. Its last two passes give the derivative of its gradient, which a
second-order outer gradient needs. `None` stands for a tangent or gradient of zero.

Images are ``[example, height, width, task * channel]``, tasks side by side as channels, each with
its own weights; vectors are ``[task, example, feature]``; parameters are ``[task, ...]``.
"""

from alfa.ops.stages._base import Gradients, Maybe, Stage, Tape, from_stage_layout, to_stage_layout
from alfa.ops.stages._composed import Chain, Split, Sum
from alfa.ops.stages._leaves import Conv, Flatten, GlobalPool, Linear, Mask, MaxPool, Pool
from alfa.ops.stages._norm import Norm

__all__ = [
    "Chain",
    "Conv",
    "Flatten",
    "GlobalPool",
    "Gradients",
    "Linear",
    "Mask",
    "MaxPool",
    "Maybe",
    "Norm",
    "Pool",
    "Split",
    "Stage",
    "Sum",
    "Tape",
    "from_stage_layout",
    "to_stage_layout",
]
