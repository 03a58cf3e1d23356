"""Inits that create the last layer for each task."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from alfa.errors import ConfigError
from alfa.inits import Attenuated, LearnedInit, PrototypeHead, ZeroHead, prototypes
from alfa.learner import Learner, adapt
from alfa.models import MLP, Conv4, Model
from alfa.ops import cross_entropy
from alfa.rules import ALFA, SGD, LearnedRates
from alfa.types import Episode

WAY = 4


class Smooth(nn.Module):
    """A smooth user-defined module."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh())
        self.top = nn.Linear(5, 2)

    def forward(self, x):
        return self.top(self.body(x))


def make_model(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "conv4":
        return Conv4((2, 8, 8), 2, filters=3, num_blocks=2).double()
    return (MLP((3,), 2, hidden=[6, 5]) if kind == "mlp" else Smooth()).double()


def make_tasks(kind: str, *, num_tasks: int = 2, way: int = WAY, shot: int = 3, seed: int = 1):
    rng = torch.Generator().manual_seed(seed)
    shape = (2, 8, 8) if kind == "conv4" else (3,)

    def draw(count: int):
        return torch.randn(num_tasks, count, *shape, generator=rng, dtype=torch.float64)

    y = torch.arange(way).repeat(shot)[None].expand(num_tasks, -1)
    # Classes may differ in their number of examples.
    y = torch.cat([y, torch.zeros(num_tasks, 1, dtype=torch.long)], dim=1)
    query_y = torch.arange(way).repeat(2)[None].expand(num_tasks, -1)
    return Episode(draw(y.shape[1]), y, draw(query_y.shape[1]), query_y)


@pytest.fixture(params=["conv4", "mlp", "own"])
def kind(request) -> str:
    return request.param


def embedded(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Compute the inputs of the last layer with torch alone."""
    found = []
    if isinstance(model, Smooth):
        return torch.stack([model.body(own) for own in x])
    if isinstance(model, MLP):
        a = x
        for layer in (model.linear1, model.linear2):
            a = layer(a).relu()
        return a
    for own in x:
        a = own
        for block in (1, 2):
            norm = getattr(model, f"norm{block}")
            a = nn.functional.conv2d(a, getattr(model, f"conv{block}").weight, padding=1)
            a = nn.functional.batch_norm(a, None, None, norm.weight, norm.bias, training=True)
            a = nn.functional.leaky_relu(nn.functional.max_pool2d(a, 2), 0.01)
        found.append(a.flatten(1))
    return torch.stack(found)


def test_initial_logits_are_negative_squared_distances_up_to_a_constant(kind) -> None:
    model, tasks = make_model(kind), make_tasks(kind)
    init = PrototypeHead(model)
    adapted = adapt(
        model,
        tasks.support_x,
        tasks.support_y,
        init=init,
        rule=SGD(init.layers),
        loss=cross_entropy,
        num_steps=0,
    )
    logits = adapted.predict(tasks.query_x)
    support, query = embedded(model, tasks.support_x), embedded(model, tasks.query_x)
    for task in range(tasks.num_tasks):
        means = torch.stack([support[task][tasks.support_y[task] == k].mean(0) for k in range(WAY)])
        distances = -(query[task].unsqueeze(1) - means).square().sum(2)
        constant = (logits[task] - distances).detach()
        assert torch.allclose(constant, constant[:, :1].expand_as(constant), rtol=0, atol=1e-11)
        assert torch.allclose(logits[task].softmax(1), distances.softmax(1), rtol=1e-11, atol=1e-13)


def test_the_outer_gradient_flows_through_the_prototypes(kind) -> None:
    """Without inner steps, the embedding gets a gradient from the prototypes and the queries."""
    model, tasks = make_model(kind), make_tasks(kind)
    init = PrototypeHead(model)
    learner = Learner(
        model, init=init, rule=SGD(init.layers), loss=cross_entropy, num_steps=0, order="first"
    )
    parameters = [p for n, p in model.named_parameters() if p.ndim > 1 and "linear3" not in n]
    parameters = [p for p in parameters if p in set(init.meta_parameters())]
    found = torch.autograd.grad(learner(tasks).query_losses.sum(), parameters)

    support, query = embedded(model, tasks.support_x), embedded(model, tasks.query_x)
    total = torch.zeros((), dtype=torch.float64)
    for task in range(tasks.num_tasks):
        means = torch.stack([support[task][tasks.support_y[task] == k].mean(0) for k in range(WAY)])
        distances = -(query[task].unsqueeze(1) - means).square().sum(2)
        total = total + nn.functional.cross_entropy(distances, tasks.query_y[task])
    wanted = torch.autograd.grad(total, parameters)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.any()
        assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("head", [PrototypeHead, ZeroHead])
@pytest.mark.parametrize("memory", ["store", "recompute"])
def test_second_order_passes_gradcheck(head, memory) -> None:
    model, tasks = make_model("own"), make_tasks("own")
    init = head(model)
    learner = Learner(
        model,
        init=init,
        # Gradcheck needs the derivative through the full state.
        rule=ALFA(
            init.layers, state_gradient="full", generator=torch.Generator().manual_seed(3)
        ).double(),
        loss=cross_entropy,
        num_steps=2,
        memory=memory,
    )
    parameters = [p for p in learner.meta_parameters() if p.requires_grad]

    def outer(*_):
        # Gradcheck changes the parameters in place.
        return learner(tasks).query_losses.sum()

    gradients = torch.autograd.grad(outer(), parameters, allow_unused=True)
    used = [p for p, g in zip(parameters, gradients, strict=True) if g is not None]
    assert len(used) > len(parameters) // 2
    assert torch.autograd.gradcheck(outer, used, fast_mode=True)


def test_gradcheck_of_the_prototypes() -> None:
    x = torch.randn(2, 7, 3, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([[0, 1, 2, 0, 1, 2, 2], [2, 1, 0, 0, 0, 0, 1]])
    assert torch.autograd.gradcheck(lambda e: prototypes(e, y, 3), (x,))
    assert torch.autograd.gradgradcheck(lambda e: prototypes(e, y, 3).square(), (x,))


@pytest.mark.parametrize("order", ["second", "first"])
@pytest.mark.parametrize("head", [PrototypeHead, ZeroHead])
@pytest.mark.parametrize("over_tasks", ["loop", "stack"])
def test_adaptation_equals_plain_autograd(kind, head, order, over_tasks) -> None:
    """Compare the fast path with plain autograd, one task at a time."""
    model, tasks = make_model(kind), make_tasks(kind)
    init = head(model)
    learner = Learner(
        model,
        init=init,
        rule=SGD(init.layers, learning_rate=0.1),
        loss=cross_entropy,
        num_steps=2,
        order=order,
        over_tasks=over_tasks,
    )
    found = torch.autograd.grad(
        learner(tasks).query_losses.sum(), list(init.meta_parameters()), allow_unused=True
    )
    names = [n for n, _ in model.named_parameters() if not n.startswith(f"{init.head}.")]
    total = torch.zeros((), dtype=torch.float64)
    for task in range(tasks.num_tasks):
        theta = {name: model.get_parameter(name) for name in names}
        # Copies: the inner gradient must not flow through the prototypes into other layers.
        own = {name: theta[name].clone() for name in names if name in init.layers}
        x, y = tasks.support_x[task], tasks.support_y[task]
        features = _features(model, theta, x)
        if head is PrototypeHead:
            means = torch.stack([features[y == k].mean(0) for k in range(WAY)])
            weight, bias = 2 * means, -means.square().sum(1)
        else:
            weight = torch.zeros(WAY, features.shape[1], dtype=torch.float64, requires_grad=True)
            bias = torch.zeros(WAY, dtype=torch.float64, requires_grad=True)
        for _ in range(2):
            logits = _features(model, {**theta, **own}, x) @ weight.T + bias
            leaves = [*own.values(), weight, bias]
            grads = torch.autograd.grad(
                nn.functional.cross_entropy(logits, y),
                leaves,
                create_graph=order == "second",
                retain_graph=True,
                allow_unused=True,
            )
            moved = [
                leaf if grad is None else leaf - 0.1 * grad
                for leaf, grad in zip(leaves, grads, strict=True)
            ]
            own = dict(zip(own, moved[:-2], strict=True))
            weight, bias = moved[-2:]
        logits = _features(model, {**theta, **own}, tasks.query_x[task]) @ weight.T + bias
        total = total + nn.functional.cross_entropy(logits, tasks.query_y[task])
    wanted = torch.autograd.grad(
        total, [model.get_parameter(name) for name in names], allow_unused=True
    )
    for name, ours, theirs in zip(names, found, wanted, strict=True):
        if theirs is None:
            assert ours is None or not ours.any(), name
        else:
            assert torch.allclose(ours, theirs, rtol=1e-8, atol=1e-10), name


def _features(model, params, x):
    if isinstance(model, MLP):
        for layer in ("linear1", "linear2"):
            x = nn.functional.linear(x, params[f"{layer}.weight"], params[f"{layer}.bias"]).relu()
        return x
    if isinstance(model, Smooth):
        for layer in ("body.0", "body.2"):
            x = nn.functional.linear(x, params[f"{layer}.weight"], params[f"{layer}.bias"]).tanh()
        return x
    for block in (1, 2):
        gamma, beta = params[f"norm{block}.weight"], params[f"norm{block}.bias"]
        x = nn.functional.conv2d(x, params[f"conv{block}.weight"], padding=1)
        x = nn.functional.batch_norm(x, None, None, gamma, beta, training=True)
        x = nn.functional.leaky_relu(nn.functional.max_pool2d(x, 2), 0.01)
    return x.flatten(1)


@pytest.mark.parametrize("rule", [SGD, ALFA])
@pytest.mark.parametrize("head", [PrototypeHead, ZeroHead])
def test_all_orders_adapt_equally_and_none_records_no_graph(kind, head, rule) -> None:
    model, tasks = make_model(kind), make_tasks(kind)
    init = head(model)
    learner = Learner(
        model, init=init, rule=rule(init.layers).double(), loss=cross_entropy, num_steps=3
    )
    second, first, none = (learner(tasks, order=o) for o in ("second", "first", "none"))
    torch.testing.assert_close(first.outputs, second.outputs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(none.outputs, second.outputs.detach(), rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        silent = learner(tasks)
    for outcome in (none, silent):
        assert not outcome.adapted.params.flat.requires_grad
        assert not outcome.outputs.requires_grad


@pytest.mark.parametrize("head", [PrototypeHead, ZeroHead])
def test_recomputing_gives_the_same_gradients(kind, head) -> None:
    model, tasks = make_model(kind), make_tasks(kind)
    init = head(model)
    found = []
    for memory in ("store", "recompute"):
        learner = Learner(
            model, init=init, rule=SGD(init.layers), loss=cross_entropy, memory=memory
        )
        loss = learner(tasks).query_losses.sum()
        parameters = list(init.meta_parameters())
        found.append(torch.autograd.grad(loss, parameters, materialize_grads=True))
    for stored, again in zip(*found, strict=True):
        torch.testing.assert_close(stored, again, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("way", [2, 5, 9])
@pytest.mark.parametrize("head", [PrototypeHead, ZeroHead])
def test_a_task_has_an_output_for_each_class(kind, head, way) -> None:
    model = make_model(kind)
    init = head(model)
    for rule in (
        SGD(init.layers),
        LearnedRates(init.layers).double(),
        ALFA(init.layers).double(),
    ):
        tasks = make_tasks(kind, way=way)
        outcome = Learner(model, init=init, rule=rule, loss=cross_entropy)(tasks)
        assert outcome.outputs.shape == (2, 2 * way, way)
        assert outcome.query_losses.isfinite().all()


@pytest.mark.parametrize("head", [PrototypeHead, ZeroHead])
def test_the_models_last_layer_is_neither_used_nor_trained(kind, head) -> None:
    model, tasks = make_model(kind), make_tasks(kind)
    init = head(model)
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=cross_entropy)
    before = learner(tasks).query_losses
    last = model.get_submodule(init.head)
    assert not {id(p) for p in last.parameters()} & {id(p) for p in init.meta_parameters()}
    assert len(list(init.meta_parameters())) == len(list(model.parameters())) - 2
    with torch.no_grad():
        for parameter in last.parameters():
            parameter.fill_(torch.nan)
    assert torch.equal(learner(tasks).query_losses, before)


def test_the_learning_state_covers_the_layers_of_the_task() -> None:
    """The means cover the rows of this task, without padding."""
    model, tasks = make_model("mlp"), make_tasks("mlp", way=7)
    init = PrototypeHead(model)
    rule = ALFA(init.layers).double()
    seen = []
    rule.learning_state = lambda params, grads: (
        seen.append(
            {name: params[name].mean(tuple(range(1, params[name].ndim))) for name in params}
        )
        or ALFA.learning_state(rule, params, grads)
    )
    state = []
    rule.g_phi.register_forward_pre_hook(lambda _, inputs: state.append(inputs[0]))
    Learner(model, init=init, rule=rule, loss=cross_entropy, num_steps=1)(tasks)
    means = torch.stack(list(seen[0].values()), dim=1)
    assert torch.allclose(state[0][:, : means.shape[1]], means)


def test_a_head_can_be_attenuated() -> None:
    model, tasks = make_model("mlp"), make_tasks("mlp", way=3)
    init = Attenuated(PrototypeHead(model)).double()
    assert init.variable_way
    assert init.classification_only
    assert not Attenuated(LearnedInit(model)).variable_way
    outcome = Learner(model, init=init, rule=SGD(init.layers), loss=cross_entropy)(tasks)
    assert outcome.outputs.shape[2] == 3


def test_only_the_last_layer_may_be_adapted(kind) -> None:
    model, tasks = make_model(kind), make_tasks(kind)
    name = PrototypeHead(model).head
    init = PrototypeHead(model, adapt=f"{name}.*")
    assert list(init.layers) == [f"{name}.weight", f"{name}.bias"]
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=cross_entropy)
    gradients = torch.autograd.grad(
        learner(tasks).query_losses.sum(), list(init.meta_parameters()), allow_unused=True
    )
    assert any(g is not None and g.any() for g in gradients)


def test_the_head_can_be_named() -> None:
    model = make_model("own")
    assert PrototypeHead(model).head == "top"
    assert PrototypeHead(model, head="top").head == "top"
    init = PrototypeHead(model, head="body.2")
    # That layer is not the last; the shapes of later layers do not change.
    assert init.layers["body.2.weight"] == torch.Size([5, 6])
    with pytest.raises(ConfigError, match=r"no parameter body\.1\.weight"):
        PrototypeHead(model, head="body.1")
    mlp = make_model("mlp")
    init = PrototypeHead(mlp, head="linear1")
    learner = Learner(mlp, init=init, rule=SGD(init.layers), loss=cross_entropy)
    with pytest.raises(ConfigError, match="last layer of MLP is 'linear3', not 'linear1'"):
        learner(make_tasks("mlp"))


@pytest.mark.parametrize("head", [PrototypeHead, ZeroHead])
def test_a_model_may_have_a_single_number(head) -> None:
    class Tempered(Smooth):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(0.5))

        def forward(self, x):
            return self.top(self.scale * self.body(x))

    torch.manual_seed(0)
    model = Tempered().double()
    init = head(model)
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=cross_entropy)
    outcome = learner(make_tasks("own"))
    outcome.query_losses.sum().backward()
    assert model.scale.grad != 0
    assert outcome.adapted.params["scale"].shape == (2,)


def test_invalid_heads_and_targets_are_rejected() -> None:
    with pytest.raises(ConfigError, match="has no linear layer"):
        PrototypeHead(nn.Conv1d(1, 1, 1))
    with pytest.raises(ConfigError, match=r"leaves out top\.bias"):
        ZeroHead(make_model("own"), adapt=["body.*", "top.weight"])
    model = make_model("own")
    init = PrototypeHead(model)
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=cross_entropy)
    tasks = make_tasks("own")
    floats = tasks.support_y.double()
    with pytest.raises(ConfigError, match="needs class labels, numbered from 0"):
        learner.adapt(tasks.support_x, floats)
    with pytest.raises(ConfigError, match="needs class labels, numbered from 0"):
        learner.adapt(tasks.support_x, tasks.support_y - 1)
    absent = tasks.support_y.clone()
    absent[1][absent[1] == 2] = 0
    with pytest.raises(ConfigError, match="task 1 has no example of class 2"):
        learner.adapt(tasks.support_x, absent)


@pytest.mark.parametrize("head", [PrototypeHead, ZeroHead])
def test_targets_that_are_not_class_labels_are_rejected(head) -> None:
    model, tasks = make_model("own"), make_tasks("own")
    init = head(model)
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=cross_entropy)
    for dtype in (torch.int32, torch.int16, torch.uint8, torch.bool):
        with pytest.raises(ConfigError, match=rf"torch\.int64.*, got {dtype} .*`\.long\(\)`"):
            learner.adapt(tasks.support_x, tasks.support_y.to(dtype))
    for dtype in (torch.float32, torch.complex64):
        with pytest.raises(ConfigError, match="needs class labels, numbered from 0"):
            learner.adapt(tasks.support_x, tasks.support_y.to(dtype))
    for empty in (tasks.support_y[:, :0], tasks.support_y[:0]):
        with pytest.raises(ConfigError, match="the support sets are empty"):
            learner.adapt(tasks.support_x[: len(empty), : empty.shape[1]], empty)


@pytest.mark.parametrize("head", [PrototypeHead, ZeroHead])
def test_a_stack_of_tasks_with_unequal_ways_is_rejected(head) -> None:
    """Tasks with fewer classes would have outputs for missing classes."""
    model, tasks = make_model("own"), make_tasks("own", num_tasks=3)
    init = head(model)
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=cross_entropy)
    for task, told in ((2, "has 4 classes, but task 2 has 3"), (0, "has 3 classes, but task 1")):
        fewer = tasks.support_y.clone()
        fewer[task] = fewer[task].clamp(max=2)
        with pytest.raises(ConfigError, match=told):
            learner.adapt(tasks.support_x, fewer)


def test_a_layer_that_runs_twice_cannot_be_a_head() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return self.last(self.last(self.first(x)))

    model = Twice().double()
    init = PrototypeHead(model)
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=cross_entropy)
    with pytest.raises(ConfigError, match="one vector for each of 13 examples, once"):
        learner(make_tasks("own"))


@pytest.mark.parametrize("rule", [ALFA, LearnedRates])
def test_per_parameter_decay_needs_the_models_number_of_classes(rule) -> None:
    model = make_model("mlp")
    init = PrototypeHead(model)
    decayed = rule(init.layers, per_parameter_decay=True).double()
    learner = Learner(model, init=init, rule=decayed, loss=cross_entropy)
    assert learner(make_tasks("mlp", way=2)).query_losses.isfinite().all()
    with pytest.raises(ConfigError, match=r"other shapes of linear3\.weight, linear3\.bias"):
        learner(make_tasks("mlp", way=3))


def test_a_model_with_a_head_name_must_implement_embedded() -> None:
    class Mute(MLP):
        embedded = Model.embedded

    model = Mute((3,), 2, hidden=[6]).double()
    init = PrototypeHead(model)
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=cross_entropy)
    with pytest.raises(ConfigError, match=r"head_name of Mute is 'linear2'.*implement `embedded`"):
        learner(make_tasks("mlp"))


@pytest.mark.parametrize("head", [PrototypeHead, ZeroHead])
def test_a_query_of_a_class_without_support_is_rejected(head) -> None:
    model, tasks = make_model("own"), make_tasks("own")
    init = head(model)
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=cross_entropy)
    queries = tasks.query_y.clone()
    queries[0, 0] = 4
    with pytest.raises(ConfigError, match="has the class 4, but the support sets have 0 to 3 only"):
        learner(replace(tasks, query_y=queries))
