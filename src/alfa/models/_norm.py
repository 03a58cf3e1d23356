"""Batch norm of user-defined modules with the statistics of the leading examples."""

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from alfa.errors import ConfigError
from alfa.models._frozen import uses_batch_statistics


def normalize_like(norm: _BatchNorm, z: Tensor, reference: Tensor) -> Tensor:
    """Apply a batch norm to z with the mean and the biased variance of the reference examples."""
    dims = [dim for dim in range(z.ndim) if dim != 1]
    mean = reference.mean(dims, keepdim=True)
    var = (reference - mean).square().mean(dims, keepdim=True)
    xhat = (z - mean) * (var + norm.eps).rsqrt()
    if norm.weight is None:
        return xhat
    shape = [1, -1] + [1] * (z.ndim - 2)
    return norm.weight.view(shape) * xhat + norm.bias.view(shape)


@contextlib.contextmanager
def leading_statistics(model: nn.Module, num_norm: int | None, num_examples: int) -> Iterator[None]:
    """Within this context, let torch's batch norm use the statistics of the leading examples.

    This applies to the layers that use batch statistics. Each normalizes all examples by the mean
    and the biased variance of the first `num_norm`, None for all, of `num_examples` examples.
    """

    def hook(norm: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Any], _: Tensor) -> Any:
        assert isinstance(norm, _BatchNorm)
        z = inputs[0] if inputs else named["input"]
        if len(z) != num_examples:
            name = next(name for name, part in model.named_modules() if part is norm)
            raise ConfigError(
                f"the batch norm {name} got {len(z)} rows for {num_examples} examples, so the rows "
                "of the support set are unknown; use batch_norm='transductive', or normalize one "
                "row for each example."
            )
        return normalize_like(norm, z, z[:num_norm])

    nested = [part for part in model.modules() if getattr(part, "has_batch_norm", False)]
    if nested and num_norm is not None:
        raise ConfigError(
            f"batch norm 'inductive' does not reach the model {type(nested[0]).__name__} inside of "
            f"{type(model).__name__}; derive {type(model).__name__} from alfa.models.Model, or use "
            "'transductive'."
        )
    norms = [part for part in model.modules() if uses_batch_statistics(part)]
    with contextlib.ExitStack() as handles:
        for norm in norms if num_norm is not None else ():
            # The layer has the parameters and statistics of the task while the hook runs.
            handles.enter_context(norm.register_forward_hook(hook, with_kwargs=True))
        yield
