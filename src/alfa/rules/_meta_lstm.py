"""Meta-Learner LSTM: an LSTM that updates each weight."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError
from alfa.ops import uninitialized
from alfa.rules._base import Rule, register_rule
from alfa.types import Count, Params, Rates, State

# The scale p of the preprocessing.
_P = 10


@register_rule("meta-lstm")
class MetaLSTM(Rule):
    """The weights are the cell state of an LSTM (Ravi and Larochelle, 2017).

    theta' = f * theta - i * grad. A forget gate f and an input gate i of each weight replace beta
    and alpha. Their inputs are the weight, the gate at the previous step, and the output of an LSTM
    that reads the support loss and the gradient of the weight. All weights share the parameters of
    both cells, so a task may have layers of any shape. The initial cell state c_0 is theta, the
    init. The gates start as gradient descent with a little weight decay.

    The paper takes gradients and losses as constants: set the order of the learner to ``"first"``.

    Args:
        layers: names and shapes of the adapted layers.
        num_units: number of hidden units of the LSTM.
        generator: source of the random weights.

    Examples:
        >>> import torch
        >>> from alfa import Params
        >>> from alfa.rules import MetaLSTM
        >>> theta = Params.of({"w": torch.ones(4, 3)})  # four tasks
        >>> rule = MetaLSTM(theta.layers)
        >>> rule.rates(0, theta, theta, losses=torch.ones(4)).beta["w"].shape
        torch.Size([4, 3])
    """

    uses_losses = True

    def __init__(
        self,
        layers: Mapping[str, torch.Size],
        *,
        num_units: Count = 20,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(layers)
        if num_units < 1:
            raise ConfigError(f"`num_units` must be at least 1, got {num_units}.")
        # Inputs: two values each of the loss and the gradient.
        self.lstm = uninitialized(nn.LSTMCell, 4, num_units)
        # Inputs: the output of the LSTM, the weight, and the previous gate.
        self.W_f, self.W_i = (nn.Parameter(torch.empty(num_units + 2)) for _ in range(2))
        self.b_f, self.b_i = (nn.Parameter(torch.empty(())) for _ in range(2))
        for parameter in (*self.lstm.parameters(), self.W_f, self.W_i):
            nn.init.uniform_(parameter, -0.01, 0.01, generator=generator)
        nn.init.uniform_(self.b_f, 4, 5, generator=generator)
        nn.init.uniform_(self.b_i, -5, -4, generator=generator)

    def rates(
        self,
        step: int,
        params: Params,
        grads: Params,
        state: State = (),
        *,
        losses: Tensor | None = None,
    ) -> Rates:
        if losses is None:
            raise ConfigError(
                "MetaLSTM needs the support losses; pass `losses`, a tensor [task], to `rates`."
            )
        theta, g = params.flat, grads.flat
        if state:
            h, c, f, i = (part for part in state if part is not None)
        else:
            h = c = theta.new_zeros(*theta.shape, self.lstm.hidden_size)
            f = i = torch.zeros_like(theta)
        loss = preprocess(losses).unsqueeze(1).expand(*theta.shape, 2)
        x = torch.cat([loss, preprocess(g)], dim=2)
        h, c = self.lstm(x.flatten(0, 1), (h.flatten(0, 1), c.flatten(0, 1)))
        h, c = h.unflatten(0, theta.shape), c.unflatten(0, theta.shape)
        # As in the published code, a gate enters before its sigmoid.
        f = torch.cat([h, theta.unsqueeze(2), f.unsqueeze(2)], dim=2) @ self.W_f + self.b_f
        i = torch.cat([h, theta.unsqueeze(2), i.unsqueeze(2)], dim=2) @ self.W_i + self.b_i
        # c_t = f_t * c_{t-1} - i_t * grad, with theta as the cell state c
        alpha, beta = params.like(i.sigmoid()), params.like(f.sigmoid())
        return Rates(alpha, beta, state=(h, c, f, i))


def preprocess(values: Tensor) -> Tensor:
    """Return two inputs of similar scale, ``[..., 2]``, for losses or gradients of any scale.

    (log|x| / p, sign x) if |x| is at least exp(-p), else (-1, exp(p) x), with p = 10
    (Andrychowicz et al., 2016).
    """
    is_large = values.abs() >= math.exp(-_P)
    # Without the 1, the unused logarithm of 0 would have the gradient nan.
    log = torch.where(is_large, values, 1).abs().log()
    size = torch.where(is_large, log / _P, -1)
    sign = torch.where(is_large, values.sign(), math.exp(_P) * values)
    return torch.stack([size, sign], dim=-1)
