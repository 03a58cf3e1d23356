"""The contracts of rules and initializations, and small runs for tests and examples.

Call `check_rule` or `check_init` in the tests of your own parts. Both raise `AssertionError` with a
sentence that names the violated part of the contract.

Example:
    >>> from alfa import ALFA
    >>> from alfa.testing import check_rule
    >>> check_rule(lambda layers, num_steps: ALFA(layers, num_steps=num_steps))
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from alfa.config import parse_experiment
from alfa.errors import AlfaWarning, ConfigError, check_choice
from alfa.inits import Init, LearnedInit, Support
from alfa.learner import Learner
from alfa.ops import apply_rates, cross_entropy, mse
from alfa.rules import SGD, Rule
from alfa.runs import Run
from alfa.training import train_run
from alfa.types import Episode, Layers, Params, Rates

__all__ = ["check_init", "check_rule", "small_run"]

MakeRule = Callable[[Layers, int], Rule]
"""Makes a rule from the layers and the number of inner steps."""

MakeInit = Callable[[nn.Module], Init]
"""Makes an init from a model."""

_NUM_STEPS = 3
_NUM_TASKS = 3
_NUM_CLASSES = 3


def small_run(folder: Path | str, *, kind: str = "classes", head: str = "prototype-head") -> Path:
    """Train a complete run in about a second, for a test or an example.

    Its tasks are generated characters of 16 x 16 for ``"classes"``, and sine curves for
    ``"curves"``.

    Args:
        folder: the parent of the run folder.
        kind: ``"classes"`` or ``"curves"``.
        head: the init of ``"classes"``.

    Example:
        >>> import tempfile
        >>> from alfa.testing import small_run
        >>> run = small_run(tempfile.mkdtemp())
        >>> sorted(path.name for path in run.glob("*.*"))
        ['.lock', 'config.toml', 'metrics.jsonl', 'result.json', 'signature.json']
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


def check_rule(make_rule: MakeRule) -> None:
    """Check the contract of an update rule.

    Args:
        make_rule: called with the layers and the number of inner steps.

    Raises:
        AssertionError: if the rule violates it.
    """
    learner = _learner(LearnedInit, make_rule)
    rule = learner.rule
    _check_rates(rule)
    _check_purity(rule)
    _check_tasks_are_independent(learner)
    _check_orders_agree(learner)
    _check_meta_gradients(learner, rule.parameters(), "the rule's")
    _check_state_survives(learner, make_rule)
    _check_more_steps(learner)
    _check_single_precision(learner)


def check_init(make_init: MakeInit) -> None:
    """Check the contract of an initialization.

    Args:
        make_init: called with a model.

    Raises:
        AssertionError: if the init violates it.
    """
    learner = _learner(make_init, lambda layers, num_steps: SGD(layers))
    init = learner.init
    _check_start(init, dict(learner.model.named_parameters()))
    _check_tasks_are_independent(learner)
    _check_orders_agree(learner)
    _check_meta_gradients(learner, init.meta_parameters(), "the init's")
    _check_single_precision(learner)


class _Smooth(nn.Module):
    """A small model without kinks, with a parameter that no rule adapts."""

    def __init__(self, num_outputs: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first = nn.Linear(2, 4)
        self.norm = nn.LayerNorm(4)
        self.second = nn.Linear(4, num_outputs)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.add_(torch.empty_like(parameter).normal_(0, 0.3, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.second(self.norm(self.first(x)).tanh())
        return output


def _learner(make_init: MakeInit, make_rule: MakeRule) -> Learner:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = _Smooth(1)
        init = make_init(model)
        if init.classification_only and not init.variable_way:
            # It uses the model's last layer, which needs an output for each class.
            model = _Smooth(_NUM_CLASSES)
            init = make_init(model)
        rule = make_rule(init.layers, _NUM_STEPS)
    _jitter(rule)
    loss = cross_entropy if init.classification_only else mse
    return Learner(model, init=init, rule=rule, loss=loss, num_steps=_NUM_STEPS).double()


def _jitter(rule: Rule) -> None:
    """Perturb every meta-parameter: the symmetries of its initial value could hide a fault."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in rule.parameters():
            noise = torch.empty_like(parameter).uniform_(-1, 1, generator=generator)
            parameter.mul_(1 + 0.1 * noise).add_(0.001 * noise)


def _episode(init: Init) -> Episode:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(_NUM_TASKS, 10, 2, generator=generator, dtype=torch.float64)
    scale = torch.arange(1, _NUM_TASKS + 1, dtype=torch.float64).view(-1, 1, 1)
    y = scale * x.sum(2, keepdim=True).sin()
    if init.classification_only:
        y = torch.arange(10).remainder(_NUM_CLASSES).expand(_NUM_TASKS, -1)
    return Episode(x[:, :6], y[:, :6], x[:, 6:], y[:, 6:])


def _support(init: Init) -> Support:
    """Support sets with random gradients and embeddings, the same ones every time."""
    episode = _episode(init)

    def gradients(params: Params) -> Params:
        generator = torch.Generator().manual_seed(4)
        values = torch.empty(params.flat.shape, dtype=torch.float64)
        return params.like(values.normal_(generator=generator))

    def embed(params: Params, head: str) -> Tensor:
        generator = torch.Generator().manual_seed(5)
        shape = *episode.support_y.shape[:2], init.layers[f"{head}.weight"][1]
        return torch.empty(shape, dtype=torch.float64).normal_(generator=generator)

    return Support(episode.support_x, episode.support_y, gradients, embed)


def _params_and_grads(layers: Layers) -> tuple[Params, Params]:
    generator = torch.Generator().manual_seed(3)
    size = int(layers.bounds[-1])
    theta = torch.randn(_NUM_TASKS, size, generator=generator, dtype=torch.float64)
    grad = torch.randn(_NUM_TASKS, size, generator=generator, dtype=torch.float64)
    return Params(theta, layers), Params(grad, layers)


def _check_rates(rule: Rule) -> None:
    params, grads = _params_and_grads(rule.layers)
    rates = rule.rates(0, params, grads)
    assert isinstance(rates, Rates), f"`rates` must return Rates, not {type(rates).__name__}"
    try:
        apply_rates(params, grads, rates)
    except ConfigError as error:
        raise AssertionError(str(error)) from None
    for name, rate in (("alpha", rates.alpha), ("beta", rates.beta)):
        for values in [rate] if isinstance(rate, Tensor) else rate.values():
            assert values.dtype == torch.float64, f"{name} is {values.dtype}, weights are float64"
            assert bool(values.isfinite().all()), f"{name} is not finite"


def _check_purity(rule: Rule) -> None:
    params, grads = _params_and_grads(rule.layers)
    before = params.flat.clone(), grads.flat.clone()
    first = rule.rates(0, params, grads)
    rule.rates(1, params, grads, first.state)
    again = rule.rates(0, params, grads)
    assert torch.equal(params.flat, before[0]), "the rule changed its input, the parameters"
    assert torch.equal(grads.flat, before[1]), "the rule changed its input, the gradients"
    for name in ("alpha", "beta"):
        assert _same(getattr(first, name), getattr(again, name)), (
            f"{name} is not a function of its inputs: a second call returned another value"
        )


def _same(left: Tensor | Mapping[str, Tensor], right: Tensor | Mapping[str, Tensor]) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return torch.equal(left, right)
    assert not isinstance(left, Tensor)
    assert not isinstance(right, Tensor)
    return all(torch.equal(left[name], right[name]) for name in left)


def _check_tasks_are_independent(learner: Learner) -> None:
    episode = _episode(learner.init)
    together = learner.adapt(episode.support_x, episode.support_y, order="none").params.flat
    for task in range(_NUM_TASKS):
        one = slice(task, task + 1)
        alone = learner.adapt(episode.support_x[one], episode.support_y[one], order="none")
        assert torch.allclose(together[one], alone.params.flat, rtol=1e-10, atol=1e-12), (
            f"task {task} is adapted differently alone and together with other tasks"
        )


def _check_orders_agree(learner: Learner) -> None:
    episode = _episode(learner.init)
    flats = {
        order: learner.adapt(episode.support_x, episode.support_y, order=order).params.flat
        for order in ("second", "first", "none")
    }
    for order in ("first", "none"):
        assert torch.allclose(flats["second"], flats[order], rtol=1e-10, atol=1e-12), (
            f"the adapted weights depend on whether there is a graph (order {order!r})"
        )
    assert not flats["none"].requires_grad, "order 'none' leaves a graph behind"


def _check_meta_gradients(learner: Learner, given: Iterable[nn.Parameter], whose: str) -> None:
    """Every trained meta-parameter has a finite gradient with at least one nonzero value."""
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


def _check_state_survives(learner: Learner, make_rule: MakeRule) -> None:
    other = make_rule(learner.rule.layers, _NUM_STEPS).double()
    other.load_state_dict(learner.rule.state_dict())
    params, grads = _params_and_grads(learner.rule.layers)
    ours, theirs = (
        rule.rates(1, params, grads, rule.rates(0, params, grads).state)
        for rule in (learner.rule, other)
    )
    assert _same(ours.alpha, theirs.alpha), "alpha changes when the rule is saved and loaded"
    assert _same(ours.beta, theirs.beta), "beta changes when the rule is saved and loaded"


def _check_more_steps(learner: Learner) -> None:
    episode = _episode(learner.init)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AlfaWarning)
        adapted = learner.adapt(episode.support_x, episode.support_y, num_steps=_NUM_STEPS + 2)
    assert bool(adapted.params.flat.isfinite().all()), "more steps than in training fail"


def _check_single_precision(learner: Learner) -> None:
    single = copy.deepcopy(learner).float()
    episode = _episode(learner.init).to("cpu", torch.float32)
    adapted = single.adapt(episode.support_x, episode.support_y, order="none")
    assert adapted.params.flat.dtype == torch.float32, "float32 inputs give another dtype"


def _check_start(init: Init, parameters: dict[str, nn.Parameter]) -> None:
    support = _support(init)
    start = init.start(support)
    assert list(start) == list(init.layers), "`start` must return the parameters in `layers`"
    assert start.num_tasks == _NUM_TASKS, "`start` does not give every task its own parameters"
    for name, shape in init.layers.items():
        assert parameters[name].shape == shape, f"{name} must have the shape of the model"
    assert set(init.shared()) == set(parameters) - set(init.layers), (
        "`layers` and `shared` together must be all parameters of the model, each once"
    )
    again = init.start(support)
    assert torch.equal(start.flat, again.flat), "`start` returns another result the second time"
