"""The stages that convolutional networks are made of, each with its derivatives by hand.

A stage y = f(x, w) has four passes. With dots for derivatives in a direction (xdot, wdot):

    forward             y
    backward            dx = f_x' dy,  dw = f_w' dy
    tangent             ydot = f_x xdot + f_w wdot
    backward_tangent    dxdot and dwdot, the derivatives of dx and dw in that direction,
                        where dy moves with dydot

A network is a stage, too. Its last two passes give the derivative of its gradient, which is what
a second-order outer gradient needs. `None` stands for a tangent or gradient of zero.

Images are ``[example, height, width, task * channel]``, tasks side by side as channels, each with
weights of its own; vectors are ``[task, example, feature]``; parameters are ``[task, ...]``.
"""

from alfa.ops.stages._base import Maybe, Stage, Tape, enter, leave
from alfa.ops.stages._composed import Chain, Split, Sum
from alfa.ops.stages._leaves import Conv, Flatten, GlobalPool, Linear, MaxPool, Norm, Pool

__all__ = [
    "Chain",
    "Conv",
    "Flatten",
    "GlobalPool",
    "Linear",
    "MaxPool",
    "Maybe",
    "Norm",
    "Pool",
    "Split",
    "Stage",
    "Sum",
    "Tape",
    "enter",
    "leave",
]
