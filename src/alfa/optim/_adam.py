"""Adam without torch's compiler, to import which takes nearly as long as to import torch."""

from __future__ import annotations

from inspect import unwrap

import torch
from torch.optim import Optimizer


class Adam(torch.optim.Adam):
    """The optimizer of torch, bit for bit.

    Torch keeps its compiler out of these methods, and imports it to say so.
    """

    add_param_group = unwrap(Optimizer.add_param_group)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)
    zero_grad = unwrap(Optimizer.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))
