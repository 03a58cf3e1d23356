"""The multilayer perceptron, the paper's regressor (section 4.5)."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from alfa.errors import ConfigError
from alfa.models._base import (
    DEFAULT_MODE,
    ExecutionMode,
    Model,
    linear_outputs,
    register_model,
    with_shared,
)
from alfa.models._frozen import filled_linear
from alfa.ops import Loss, mlp, mlp_mse_gradients, mse, uninitialized
from alfa.types import Count, Params


@register_model("mlp")
class MLP(Model):
    """Linear layers with ReLU between them.

    Args:
        input_shape: shape of one input, which the model flattens.
        num_outputs: number of outputs.
        hidden: number of units of each hidden layer.
        generator: source of the random weights.

    Examples:
        >>> import torch
        >>> from alfa import MLP
        >>> model = MLP((1,), 1, hidden=[40, 40])
        >>> model(torch.zeros(10, 1)).shape
        torch.Size([10, 1])
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: Count,
        *,
        hidden: Sequence[Count] = (40, 40),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if any(units < 1 for units in hidden):
            raise ConfigError(f"every number in `hidden` must be at least 1, got {list(hidden)}.")
        self.sizes = (torch.Size(input_shape).numel(), *hidden, num_outputs)
        pairs = pairwise(self.sizes)
        for number, (fan_in, fan_out) in enumerate(pairs, start=1):
            linear = uninitialized(nn.Linear, fan_in, fan_out)
            nn.init.xavier_uniform_(linear.weight, generator=generator)
            nn.init.zeros_(linear.bias)
            self.add_module(f"linear{number}", linear)
        self._names = [name for name, _ in self.named_parameters()]
        self.head_name = f"linear{len(self.sizes) - 1}"
        self.feature_shape = self.sizes[-2:-1]
        self._has_head = True

    def stacked(
        self, params: Mapping[str, Tensor], x: Tensor, mode: ExecutionMode = DEFAULT_MODE
    ) -> Tensor:
        if not self._has_head:
            return self.embedded(params, x, mode)
        return self._run(self._names, params, x, mode)

    def embedded(
        self, params: Mapping[str, Tensor], x: Tensor, mode: ExecutionMode = DEFAULT_MODE
    ) -> Tensor:
        names = self._names[:-2] if self._has_head else self._names
        return self._run(names, params, x, mode).relu() if names else x.flatten(2)

    def classify(self, params: Mapping[str, Tensor], z: Tensor) -> Tensor:
        return linear_outputs(self.head_name, params, z)

    def remove_head(self) -> None:
        delattr(self, f"linear{len(self.sizes) - 1}")
        self._names, self.sizes, self._has_head = self._names[:-2], self.sizes[:-1], False

    def _run(
        self, names: list[str], params: Mapping[str, Tensor], x: Tensor, mode: ExecutionMode
    ) -> Tensor:
        if not isinstance(params, Params) or list(params) != names:
            params = Params.of({name: params[name] for name in names})
        # From the biases, because the size of the last layer may differ from task to task.
        sizes = [self.sizes[0], *(params.layers[name][0] for name in names[1::2])]
        x, theta = x.flatten(2), params.flat
        if mode.over_tasks == "loop":
            tasks = zip(x.split(1), theta.split(1), strict=True)
            return torch.cat([mlp(inputs, row, sizes) for inputs, row in tasks])
        return mlp(x, theta, sizes)

    def frozen(self, params: Mapping[str, Tensor], x: Tensor) -> nn.Module:
        parts: list[nn.Module] = [nn.Flatten()]
        for weight, bias in zip(self._names[::2], self._names[1::2], strict=True):
            parts += [filled_linear(params[weight], params[bias]), nn.ReLU()]
        if self._has_head:
            parts.pop()
        return nn.Sequential(*parts).eval().requires_grad_(False)

    def support_gradients(
        self,
        params: Params,
        shared: Mapping[str, Tensor],
        x: Tensor,
        targets: Tensor,
        loss: Loss,
        mode: ExecutionMode = DEFAULT_MODE,
    ) -> tuple[Tensor, Params] | None:
        is_overridden = type(self).stacked is not MLP.stacked or not self._has_head
        if is_overridden or loss is not mse or mode.over_tasks == "loop":
            return None
        whole = params
        if list(params) != self._names:
            tensors = with_shared(params, shared)
            whole = Params.of({name: tensors[name] for name in self._names})
        result = mlp_mse_gradients(x.flatten(2), targets, whole.flat, self.sizes)
        if result is None:
            return None
        grads = whole.like(result[1])
        if whole is not params:
            grads = Params.of({name: grads[name] for name in params})
        return result[0], grads
