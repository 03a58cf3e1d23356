"""Checks of single results of inits and heads, with messages that name the fix."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from alfa.inits import Init, Support
from alfa.models import Head
from alfa.types import Params


def check_task_parameters(head: Head) -> None:
    names, own = head.task_parameters, dict(head.named_parameters())
    assert not isinstance(names, str), (
        f"`task_parameters` is the text {names!r}, but must be a tuple of names; write ({names!r},)"
    )
    for name in names:
        assert name in own, (
            f"`task_parameters` has {name!r}, which is not a parameter of the head; create it in "
            f"`__init__` as an nn.Parameter, or name one of {', '.join(own) or 'none'}"
        )


def check_fitted(head: Head, fitted: Mapping[str, Tensor], z: Tensor) -> None:
    assert isinstance(fitted, Mapping), (
        f"`fit` must return a mapping of names to tensors, got {type(fitted).__name__}; return "
        f"{{{head.task_parameters[0]!r}: ...}}"
    )
    assert set(fitted) == set(head.task_parameters), (
        f"`fit` must return {', '.join(head.task_parameters)}, got {', '.join(fitted)}"
    )
    num_tasks, num_support, _ = z.shape
    for name, tensor in fitted.items():
        shape = list(tensor.shape)
        fix = "keep the first dimension of `z`"
        if shape[:1] in ([num_support], [num_tasks * num_support]):
            fix = (
                "it has a row for each support example instead of one for each task; do not "
                "flatten the tasks, and combine the examples of a task, for example with "
                "`alfa.inits.prototypes`"
            )
        assert shape[:1] == [num_tasks], (
            f"`fit` returned {name} of shape {shape}, which must begin with the task dimension, "
            f"here {num_tasks}; {fix}"
        )
        assert tensor.dtype == z.dtype, (
            f"`fit` returned {name} as {tensor.dtype}, but the features are {z.dtype}; convert it "
            "with `.to(z.dtype)`, and create tensors with `z.new_zeros`"
        )


def check_start(init: Init, support: Support, parameters: Mapping[str, nn.Parameter]) -> None:
    """Check the result of `start` and `shared` for the parameters of the model."""
    start = init.start(support)
    assert isinstance(start, Params), (
        f"`start` must return Params, got {type(start).__name__}; wrap tensors [task, ...] by name "
        "in Params.of"
    )
    _check_names(list(start), list(init.layers))
    assert start.num_tasks == support.num_tasks, (
        f"`start` must give every task its own parameters, so their first dimension must be "
        f"{support.num_tasks} here, got {start.num_tasks}; expand them to `support.num_tasks`"
    )
    assert start.flat.dtype == torch.float64, (
        f"`start` returned {start.flat.dtype}, but the model's parameters are torch.float64; "
        "create tensors with `parameter.new_zeros`"
    )
    for name, shape in init.layers.items():
        assert parameters[name].shape == shape, f"{name} must have the shape of the model's"
    _check_shared(set(init.shared()), set(parameters), set(init.layers))
    _check_graph(init, start, parameters)
    again = init.start(support)
    assert torch.equal(start.flat, again.flat), "`start` returns another result the second time"


def _check_names(found: list[str], layers: list[str]) -> None:
    if found == layers:
        return
    same = sorted(found) == sorted(layers)
    fault = "another order than" if same else "other names than"
    raise AssertionError(
        f"`start` must return the parameters in `layers`, got {fault} there: {', '.join(found)} "
        f"instead of {', '.join(layers)}; use Params.of({{name: ... for name in self.layers}})"
    )


def _check_shared(shared: set[str], parameters: set[str], layers: set[str]) -> None:
    contract = "`layers` and `shared` must contain all parameters of the model, each once"
    faults = {
        "`shared` lacks": parameters - layers - shared,
        "both contain": layers & shared,
        "`shared` has, but the model lacks,": shared - parameters,
    }
    for fault, names in faults.items():
        assert not names, (
            f"{contract}, but {fault} {', '.join(sorted(names))}; return {{name: p for name, p in "
            "model.named_parameters() if name not in self.layers} from `shared`"
        )


def _check_graph(init: Init, start: Params, parameters: Mapping[str, nn.Parameter]) -> None:
    """Check that theta_{i,0} depends on the parameters of the model that the outer loop trains."""
    trained = {id(p) for p in init.meta_parameters() if p.requires_grad}
    for name in init.layers:
        if id(parameters[name]) in trained:
            values = start[name]
            fault = (
                f"`start` returned {name} with no gradient, but `meta_parameters` yields this "
                "parameter; remove `detach()` or `torch.no_grad()`, or do not yield it"
            )
            assert values.requires_grad, fault
            # A sum could be constant in the parameter.
            factors = torch.linspace(1, 2, values.numel(), dtype=values.dtype).view_as(values)
            (gradient,) = torch.autograd.grad(
                (factors * values).sum(), parameters[name], allow_unused=True, retain_graph=True
            )
            assert gradient is not None, fault
            assert bool(gradient.any()), fault
