"""Contract checks for rules and inits, and small runs for tests and examples.

Call `check_rule`, `check_init`, `check_head`, or `check_objective` in the tests of your own parts.
They raise an `AssertionError` that names the violated requirement.

Examples:
    >>> from alfa import ALFA
    >>> from alfa.testing import check_rule
    >>> check_rule(lambda layers, num_steps: ALFA(layers, num_steps=num_steps))
"""

import copy
import functools
import math
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from alfa.backbones import Backbone, Preprocessing, is_backbone, register_backbone
from alfa.config import parse_experiment
from alfa.errors import AlfaWarning, check_choice
from alfa.inits import Init, LearnedInit, Support, TaskHead
from alfa.learner import Learner, Outcome
from alfa.models import Head, Headed
from alfa.objectives import Objective
from alfa.ops import cross_entropy, mse
from alfa.rules import SGD, Rule
from alfa.runs import Run
from alfa.testing._parts import check_fitted, check_start, check_task_parameters
from alfa.testing._rates import check_form, check_losses, check_purity, check_saving
from alfa.training import train_run
from alfa.types import Episode, Layers, Params

__all__ = [
    "check_head",
    "check_init",
    "check_objective",
    "check_rule",
    "register_small_backbone",
    "small_run",
]

MakeRule = Callable[[Layers, int], Rule]
"""Function that returns a rule for the layers and the number of inner steps."""

MakeInit = Callable[[nn.Module], Init]
"""Function that returns an init for a model."""

MakeHead = Callable[[tuple[int, ...], int], Head]
"""Function that returns a head for the shape of the features and the number of outputs."""

_NUM_STEPS = 3
_NUM_CLASSES = 3
# Other than the number of classes, so that one cannot be taken for the other.
_NUM_TASKS = 2


def small_run(folder: Path | str, *, kind: str = "classes", head: str = "prototype-head") -> Path:
    """Train a complete run in about a second, for a test or an example.

    Args:
        folder: the parent of the run folder.
        kind: ``"classes"`` for generated characters of 16 x 16, or ``"curves"`` for sine curves.
        head: the init, for ``"classes"`` only.
    """
    check_choice("kind", kind, ("classes", "curves"))
    content: dict[str, object] = {
        "rule": {"name": "alfa"},
        "outer": {"num_iterations": 2, "num_tasks": 1, "validate_every": 1, "num_val_tasks": 1},
        "test": {"num_tasks": 1, "ensemble": 2},
    }
    if kind == "curves":
        content |= {"tasks": {"name": "sinusoid"}, "model": {"name": "mlp", "hidden": [20]}}
    else:
        content |= {
            "tasks": {"name": "images", "dataset": "strokes", "size": 16, "num_query": 2},
            "model": {"name": "conv4", "filters": 8},
            "init": {"name": head},
            "inner": {"batch_norm": "inductive"},
        }
    path = Path(folder) / kind
    train_run(Run.new(path, parse_experiment(content, source="small_run")))
    return path


def register_small_backbone(name: str = "small") -> str:
    """Register an untrained backbone with 8 features that needs no weights, and return its name.

    It takes the place of a pretrained one in a test or an example.
    """
    if not is_backbone(name):
        register_backbone(name)(functools.partial(_small_backbone, name))
    return name


def _small_backbone(name: str) -> Backbone:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
    return Backbone(name, network, 8, Preprocessing(size=24, resize=28))


def check_rule(make_rule: MakeRule) -> None:
    """Check that an update rule fulfills its contract.

    Args:
        make_rule: returns the rule for the given layers and number of inner steps.

    Raises:
        AssertionError: the rule violates the contract.
    """
    learner = _learner(LearnedInit, make_rule)
    rule, layers = learner.rule, learner.rule.layers
    # Each check needs new inputs, since a faulty rule may change them.
    check_form(rule, *_params_and_grads(layers))
    check_purity(rule, *_params_and_grads(layers))
    check_losses(rule, *_params_and_grads(layers))
    _check_tasks_are_independent(learner)
    _check_orders_agree(learner)
    _check_meta_gradients(learner, rule.parameters(), "the rule's")
    check_saving(rule, make_rule(layers, _NUM_STEPS).double(), *_params_and_grads(layers))
    _check_more_steps(learner)
    _check_single_precision(learner)


def check_init(make_init: MakeInit) -> None:
    """Check that an init fulfills its contract.

    Args:
        make_init: returns the init for the given model.

    Raises:
        AssertionError: the init violates the contract.
    """
    learner = _learner(make_init, lambda layers, num_steps: SGD(layers))
    init = learner.init
    check_start(init, _support(init), dict(learner.model.named_parameters()))
    _check_tasks_are_independent(learner)
    _check_orders_agree(learner)
    _check_meta_gradients(learner, init.meta_parameters(), "the init's")
    _check_single_precision(learner)


def check_head(make_head: MakeHead, *, feature_shape: tuple[int, ...] = (4,)) -> None:
    """Check that a head fulfills its contract.

    Args:
        make_head: returns the head for the shape of the features of one example and the number of
            outputs.
        feature_shape: the shape to test, such as ``(4, 3, 3)`` for maps.

    Raises:
        AssertionError: the head violates the contract.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head = make_head(feature_shape, _NUM_CLASSES)
        check_task_parameters(head)
        init = TaskHead(model := Headed(_Body(feature_shape), head), adapt="head")
        rule = SGD(init.layers)
    learner = Learner(model, init=init, rule=rule, loss=cross_entropy, num_steps=0).double()
    episode = _episode(init)
    z = _normal(6, _NUM_TASKS, 6, math.prod(feature_shape))
    first, again = (head.fit(z, episode.support_y, _NUM_CLASSES) for _ in range(2))
    check_fitted(head, first, z)
    for name, tensor in first.items():
        assert torch.equal(tensor, again[name]), f"`fit` returns another {name} the second time"
    outputs = _query_outputs(learner, episode)
    assert outputs.dtype == z.dtype, (
        f"the outputs are {outputs.dtype}, but the features are {z.dtype}; keep the type of `z`"
    )
    expected = _NUM_TASKS, episode.query_y.shape[1], _NUM_CLASSES
    assert outputs.shape == expected, (
        f"the outputs must be [task, query, class], {list(expected)}, got {list(outputs.shape)}"
    )
    _check_tasks_are_independent(learner)
    _check_orders_agree(learner)
    _check_meta_gradients(learner, init.meta_parameters(), "the head's")
    _check_single_precision(learner)
    if model.has_batch_norm:
        # Otherwise, batch norm makes the outputs of a query depend on the other queries.
        learner.batch_norm = "inductive"
        outputs = _query_outputs(learner, episode)
    if not head.is_transductive:
        alone = _query_outputs(learner, replace(episode, query_x=episode.query_x[:, :1]))
        assert torch.allclose(outputs[:, :1], alone, rtol=1e-8, atol=1e-10), (
            "the outputs of a query depend on the other queries; set `is_transductive`"
        )


def check_objective(
    make_objective: Callable[[], Objective], *, make_init: MakeInit = LearnedInit
) -> None:
    """Check that an objective fulfills its contract.

    Args:
        make_objective: returns the objective.
        make_init: returns the init of the learner for the given model, which has a normalization
            layer; an init that needs class labels makes the tasks classification.

    Raises:
        AssertionError: the objective violates the contract.
    """
    learner = _learner(make_init, lambda layers, num_steps: SGD(layers, learning_rate=0.1))
    objective, episode = make_objective().double(), _episode(learner.init)
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    found = [objective(learner, episode, progress=progress) for progress in (0.0, 0.5, 1.0)]
    for name, tensor in learner.state_dict().items():
        assert torch.equal(tensor, before[name]), f"the objective changed {name} of the learner"
    for outcome in found:
        assert isinstance(outcome, Outcome), f"expected an Outcome, got {type(outcome).__name__}"
        assert outcome.losses.shape == (_NUM_TASKS,), (
            f"`losses` must be [task], ({_NUM_TASKS},), got {tuple(outcome.losses.shape)}"
        )
        assert outcome.query_losses.shape == (_NUM_TASKS,), "`query_losses` must be [task]"
        assert bool(outcome.losses.isfinite().all()), "`losses` is not finite"
    changes = any(not torch.equal(found[0].losses, other.losses) for other in found[1:])
    assert objective.uses_progress or not changes, (
        "the losses depend on `progress`; set `uses_progress`"
    )
    again = objective(learner, episode, progress=0.0)
    assert torch.equal(found[0].losses, again.losses), "a second call gives other losses"
    trained = [p for p in learner.meta_parameters() if p.requires_grad]
    gradients = _gradients(again.losses.sum(), trained)
    for task in range(_NUM_TASKS):
        one = objective(learner, episode[task : task + 1], progress=0.0)
        assert torch.allclose(one.losses, again.losses[task : task + 1], rtol=1e-9, atol=1e-11), (
            f"task {task} has another loss alone than in a stack of tasks"
        )
        rest = _gradients(one.losses.sum(), trained)
        gradients = [whole - part for whole, part in zip(gradients, rest, strict=True)]
    assert all(torch.allclose(g, torch.zeros_like(g), atol=1e-8) for g in gradients), (
        "the gradient of a stack of tasks is not the sum of the tasks' gradients"
    )


def _gradients(loss: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    assert loss.requires_grad, "`losses` has no gradient"
    return list(torch.autograd.grad(loss, parameters, materialize_grads=True))


def _query_outputs(learner: Learner, episode: Episode) -> Tensor:
    adapted = learner.adapt(episode.support_x, episode.support_y, order="none")
    return adapted.predict(episode.query_x)


class _Body(nn.Module):
    """A smooth model with features of any shape."""

    def __init__(self, feature_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.feature_shape = feature_shape
        self.first = nn.Linear(2, math.prod(feature_shape))
        self.last = nn.Linear(math.prod(feature_shape), 1)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.last(self.first(x).tanh())
        return outputs


def _smooth_model(num_outputs: int) -> nn.Module:
    """Return a smooth model with a normalization layer, which no rule adapts."""
    first, last = nn.Linear(2, 4), nn.Linear(4, num_outputs)
    parts = {"first": first, "norm": nn.LayerNorm(4), "tanh": nn.Tanh(), "second": last}
    model = nn.Sequential(OrderedDict(parts))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.empty_like(parameter).normal_(0, 0.3, generator=generator))
    return model


def _learner(make_init: MakeInit, make_rule: MakeRule) -> Learner:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = _smooth_model(1)
        init = make_init(model)
        if init.classification_only and not init.variable_way:
            # The init uses the model's last layer, which needs an output for each class.
            model = _smooth_model(_NUM_CLASSES)
            init = make_init(model)
        rule = make_rule(init.layers, _NUM_STEPS)
    # Symmetric initial values could hide a fault.
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in rule.parameters():
            noise = torch.empty_like(parameter).uniform_(-1, 1, generator=generator)
            parameter.mul_(1 + 0.1 * noise).add_(0.001 * noise)
    loss = cross_entropy if init.classification_only else mse
    return Learner(model, init=init, rule=rule, loss=loss, num_steps=_NUM_STEPS).double()


def _normal(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _episode(init: Init) -> Episode:
    x = _normal(2, _NUM_TASKS, 10, 2)
    y = torch.arange(1, _NUM_TASKS + 1).view(-1, 1, 1) * x.sum(2, keepdim=True).sin()
    classes = None
    if init.classification_only:
        y = torch.arange(10).remainder(_NUM_CLASSES).expand(_NUM_TASKS, -1)
        classes = torch.arange(_NUM_TASKS * _NUM_CLASSES).view(_NUM_TASKS, _NUM_CLASSES)
    return Episode(x[:, :6], y[:, :6], x[:, 6:], y[:, 6:], classes)


def _support(init: Init) -> Support:
    """Return support sets with reproducible random gradients and embeddings."""
    episode = _episode(init)

    def gradients(params: Params) -> Params:
        return params.like(_normal(4, *params.flat.shape))

    def embed(params: Params, head: str) -> Tensor:
        return _normal(5, *episode.support_y.shape[:2], init.layers[f"{head}.weight"][1])

    return Support(episode.support_x, episode.support_y, gradients, embed)


def _params_and_grads(layers: Layers) -> tuple[Params, Params]:
    theta, grads = _normal(3, 2, _NUM_TASKS, int(layers.bounds[-1]))
    return Params(theta, layers), Params(grads, layers)


def _adapted(learner: Learner, tasks: slice = slice(None), **options: Any) -> Tensor:
    episode = _episode(learner.init).to(dtype=learner.dtype)[tasks]
    return learner.adapt(episode.support_x, episode.support_y, **options).params.flat


def _check_tasks_are_independent(learner: Learner) -> None:
    together = _adapted(learner, order="none")
    for task in range(_NUM_TASKS):
        one = slice(task, task + 1)
        alone = _adapted(learner, one, order="none")
        assert torch.allclose(together[one], alone, rtol=1e-10, atol=1e-12), (
            f"task {task} is adapted differently alone and in a stack of tasks"
        )


def _check_orders_agree(learner: Learner) -> None:
    flats = {order: _adapted(learner, order=order) for order in ("second", "first", "none")}
    for order in ("first", "none"):
        assert torch.allclose(flats["second"], flats[order], rtol=1e-10, atol=1e-12), (
            f"the adapted weights of order {order!r} differ from order 'second'"
        )
    assert not flats["none"].requires_grad, "order 'none' records a graph"


def _check_meta_gradients(learner: Learner, given: Iterable[nn.Parameter], whose: str) -> None:
    """Check that each trained meta-parameter has a finite gradient that is not all zero."""
    parameters = [parameter for parameter in given if parameter.requires_grad]
    if not parameters:
        return
    loss = learner(_episode(learner.init)).query_losses.mean()
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        shape = tuple(parameter.shape)
        assert gradient is not None, f"{whose} parameter of shape {shape} has no gradient at all"
        assert bool(gradient.isfinite().all()), f"{whose} gradient of shape {shape} is not finite"
        assert bool(gradient.any()), f"{whose} parameter of shape {shape} has no effect"


def _check_more_steps(learner: Learner) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AlfaWarning)
        flat = _adapted(learner, num_steps=_NUM_STEPS + 2)
    assert bool(flat.isfinite().all()), "more steps than in training fail"


def _check_single_precision(learner: Learner) -> None:
    flat = _adapted(copy.deepcopy(learner).float(), order="none")
    assert flat.dtype == torch.float32, "float32 inputs give another data type"
