"""Models with another head: any backbone, batch norm, freezing, weights, and configurations."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from alfa import SGD, Learner, Run, cross_entropy, mse
from alfa.build import build_learner, build_tasks, describe_experiment
from alfa.config import parse_experiment, to_dict
from alfa.data import Images
from alfa.errors import CheckpointError, ConfigError
from alfa.evaluation import evaluate
from alfa.inits import LearnedInit, PrototypeHead, TaskHead, prototypes
from alfa.models import (
    HEADS,
    MLP,
    Conv4,
    Head,
    Headed,
    Model,
    ResNet12,
    ResNet18,
    WideResNet,
    body_parameters,
    feature_shape,
    last_layer,
    register_head,
)
from alfa.runs import load_backbone, save_backbone
from alfa.training import Pretraining, pretrain_run, train_run
from alfa.training._pretrain import WEIGHTS

SHAPE = (2, 16, 16)


class Distances(Head):
    """Negative squared distances to prototypes, with a trained scale."""

    task_parameters = ("centers",)

    def __init__(self, feature_shape, num_outputs, *, scale: float = 0.5) -> None:
        super().__init__()
        self.centers = nn.Parameter(torch.zeros(num_outputs, *feature_shape).flatten(1))
        self.scale = nn.Parameter(torch.tensor(float(scale)))
        self.register_buffer("offset", torch.ones(()))

    def fit(self, z, y, way):
        return {"centers": prototypes(z, y, way)}

    def forward(self, z):
        return self.offset - self.scale * (z.unsqueeze(1) - self.centers).square().sum(-1)


class Whitened(Distances):
    is_transductive = True

    def forward(self, z):
        return super().forward(z - z.mean(0))


class Net(nn.Module):
    """A module with torch's batch norm, dropout, and a linear layer that is not the last module."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Dropout(0.5)
        self.out, self.pool = nn.Linear(3, 5), nn.AdaptiveAvgPool2d(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.drop(self.pool(self.norm(self.conv(x)).tanh()).flatten(1)))


BACKBONES = {
    "mlp": lambda: MLP(SHAPE, 5, hidden=[6]),
    "mlp without hidden layers": lambda: MLP(SHAPE, 5, hidden=[]),
    "conv4": lambda: Conv4(SHAPE, 5, filters=[2, 3, 3, 4]),
    "resnet12": lambda: ResNet12(SHAPE, 5, filters=[2, 3, 3, 4]),
    "resnet18": lambda: ResNet18(SHAPE, 5, filters=[2, 3, 3, 4]),
    "wrn": lambda: WideResNet(SHAPE, 5, depth=10, width=1),
    "module": Net,
    "sequential": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(512, 4), nn.Tanh(), nn.Linear(4, 5)
    ),
}
WITH_NORM = [
    name for name in BACKBONES if name not in ("mlp", "mlp without hidden layers", "sequential")
]


@pytest.fixture
def registered():
    """Register the head `Distances` for a test."""
    register_head("distances")(Distances)
    yield
    del HEADS._parts["distances"]


def headed(name: str, kind: type[Head] = Distances, **options) -> Headed:
    backbone = BACKBONES[name]()
    model = Headed(backbone, kind(feature_shape(backbone), 3, **options)).double()
    if name == "module":
        backbone.drop.eval()
    return model


def draw(num_tasks: int = 2, num_queries: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_tasks, 6 + num_queries, *SHAPE, generator=generator, dtype=torch.float64)
    return x[:, :6], torch.arange(6).remainder(3).expand(num_tasks, -1), x[:, 6:]


def learner_of(model: nn.Module, init=TaskHead, **options) -> Learner:
    start = init(model)
    rule = SGD(start.layers, learning_rate=0.1)
    options = {"loss": cross_entropy, "num_steps": 1, **options}
    return Learner(model, init=start, rule=rule, **options)


# The parts and their names


@pytest.mark.parametrize("name", BACKBONES)
def test_the_backbone_loses_its_last_layer(name: str) -> None:
    backbone = BACKBONES[name]().double()
    layer, x = last_layer(backbone), draw()[0][0]
    found: list[Tensor] = []
    if not isinstance(backbone, Model):
        backbone.eval()
        backbone.get_submodule(layer).register_forward_pre_hook(lambda _, z: found.append(z[0]))
        backbone(x)
        expected = found[0]
    else:
        params = {n: p[None] for n, p in backbone.named_parameters()}
        expected = backbone.embedded(params, x[None])[0]
    before = {n for n, _ in backbone.named_parameters() if not n.startswith(f"{layer}.")}
    size = torch.Size(feature_shape(backbone)).numel()
    model = Headed(backbone, Distances(feature_shape(backbone), 3)).double()
    assert set(body_parameters(model)) == before
    assert {n for n, _ in model.named_parameters()} == {
        *(f"backbone.{n}" for n in before),
        "head.centers",
        "head.scale",
    }
    assert last_layer(model) == "head"
    assert model.head.centers.shape == (3, size) == (3, expected.shape[1])
    # The module's own weights: distances of the features to the zero vector.
    torch.testing.assert_close(
        model(x), 1 - 0.5 * expected.square().sum(1, keepdim=True).expand(-1, 3)
    )


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("over_tasks", ["loop", "stack"])
def test_without_steps_it_classifies_by_distances(name: str, over_tasks: str) -> None:
    model, (x, y, queries) = headed(name), draw()
    learner = learner_of(model, num_steps=0, over_tasks=over_tasks)
    outputs = learner.adapt(x, y).predict(queries)
    for task in range(2):
        z, q = (model.backbone(images).flatten(1) for images in (x[task], queries[task]))
        centers = torch.stack([z[y[task] == k].mean(0) for k in range(3)])
        expected = 1 - 0.5 * torch.cdist(q, centers).square()
        torch.testing.assert_close(outputs[task], expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ["mlp", "conv4", "module"])
def test_an_inner_step_and_its_outer_gradient_equal_those_by_hand(name: str) -> None:
    model, (x, y, queries) = headed(name), draw()
    trained = dict(model.named_parameters())
    del trained["head.centers"]
    # By default, normalization parameters are not adapted.
    fixed = [n for n in trained if "norm" in n]
    outputs = learner_of(model).adapt(x, y).predict(queries)
    by_hand = []
    for task in range(2):
        z = model.backbone(x[task]).flatten(1)
        # Inner gradients are those at theta_{i,0}, not through the prototypes.
        params = {name: parameter.clone() for name, parameter in trained.items()}
        params = {**params, "head.centers": prototypes(z[None], y[:1], 3)[0]}
        adapted = [n for n in params if n not in fixed]
        loss = F.cross_entropy(functional_call(model, params, (x[task],)), y[task])
        grads = torch.autograd.grad(
            loss, [params[n] for n in adapted], create_graph=True, materialize_grads=True
        )
        moved = {n: params[n] - 0.1 * g for n, g in zip(adapted, grads, strict=True)}
        by_hand.append(functional_call(model, {**params, **moved}, (queries[task],)))
    expected = torch.stack(by_hand)
    torch.testing.assert_close(outputs, expected, rtol=1e-8, atol=1e-9)
    factors = torch.randn_like(expected)
    parameters = list(trained.values())
    ours, theirs = (
        torch.autograd.grad((factors * o).sum(), parameters, materialize_grads=True)
        for o in (outputs, expected)
    )
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-7, atol=1e-8)


# Batch norm


@pytest.mark.parametrize("name", WITH_NORM)
def test_inductive_batch_norm_ignores_other_queries(name: str) -> None:
    model, (x, y, queries) = headed(name), draw()
    for batch_norm, is_independent in (("inductive", True), ("transductive", False)):
        adapted = learner_of(model, batch_norm=batch_norm).adapt(x, y)
        together, alone = adapted.predict(queries)[:, :2], adapted.predict(queries[:, :2])
        assert torch.allclose(together, alone, rtol=1e-9, atol=1e-11) is is_independent


@pytest.mark.parametrize("name", ["conv4", "module"])
def test_inductive_batch_norm_equals_a_computation_by_hand(name: str) -> None:
    model, (x, y, queries) = headed(name), draw()
    outputs = learner_of(model, num_steps=0, batch_norm="inductive").adapt(x, y).predict(queries)
    body = model.backbone

    def features(images: Tensor) -> Tensor:
        """Return the features of the images after the six support images."""
        blocks = "1234" if name == "conv4" else [""]
        for block in blocks:
            images = body.get_submodule(f"conv{block}")(images)
            norm = body.get_submodule(f"norm{block}")
            support = images[:6].transpose(0, 1).flatten(1)
            mean, var = (s[:, None, None] for s in (support.mean(1), support.var(1, correction=0)))
            images = (images - mean) / (var + 1e-5).sqrt()
            images = norm.weight[:, None, None] * images + norm.bias[:, None, None]
            if name == "conv4":
                images = F.max_pool2d(F.leaky_relu(images, 0.01), 2)
        return images.flatten(1) if name == "conv4" else images.tanh().mean((2, 3))

    for task in range(2):
        z = features(torch.cat([x[task], queries[task]]))
        centers = torch.stack([z[:6][y[task] == k].mean(0) for k in range(3)])
        expected = 1 - 0.5 * torch.cdist(z[6:], centers).square()
        torch.testing.assert_close(outputs[task], expected, rtol=1e-8, atol=1e-9)


def test_a_transductive_head_sees_the_queries_only() -> None:
    model, (x, y, queries) = headed("conv4", Whitened), draw()
    adapted = learner_of(model, num_steps=0, batch_norm="inductive").adapt(x, y)
    plain = headed("conv4")
    plain.load_state_dict(model.state_dict())
    other = learner_of(plain, num_steps=0, batch_norm="inductive").adapt(x, y)
    centers = other.params["head.centers"]
    for task in range(2):
        frozen = other.frozen(x[task], task=task)[0]
        z = frozen(queries[task])
        expected = 1 - 0.5 * torch.cdist(z - z.mean(0), centers[task]).square()
        torch.testing.assert_close(adapted.predict(queries)[task], expected, rtol=1e-8, atol=1e-9)


def test_a_model_without_batch_norm_rejects_inductive() -> None:
    with pytest.raises(ConfigError, match="Headed has no batch norm that uses the statistics"):
        learner_of(headed("mlp"), batch_norm="inductive")


# Freezing a task's model


@pytest.mark.parametrize("name", BACKBONES)
def test_a_frozen_model_predicts_single_examples(name: str) -> None:
    model, (x, y, queries) = headed(name), draw()
    batch_norm = "inductive" if name in WITH_NORM else "transductive"
    adapted = learner_of(model, batch_norm=batch_norm).adapt(x, y)
    expected = adapted.predict(queries)
    for task in range(2):
        frozen = adapted.frozen(x[task], task=task)
        alone = torch.cat([frozen(query) for query in queries[task].split(1)])
        torch.testing.assert_close(alone, expected[task], rtol=1e-8, atol=1e-9)
        assert not any(p.requires_grad for p in frozen.parameters())


def test_a_transductive_head_has_no_frozen_form() -> None:
    model, (x, y, _) = headed("conv4", Whitened), draw()
    with pytest.raises(ConfigError, match="Whitened classifies the queries of a task together"):
        learner_of(model).adapt(x, y).frozen(x[0])


# Invalid combinations


def test_invalid_combinations_are_rejected() -> None:
    with pytest.raises(ConfigError, match="PrototypeHead computes a linear layer, but head is a D"):
        PrototypeHead(headed("mlp"))
    with pytest.raises(ConfigError, match="TaskHead needs a model with a head"):
        TaskHead(MLP(SHAPE, 5))
    with pytest.raises(ConfigError, match="has no linear layer"):
        Headed(nn.Sequential(nn.Flatten(), nn.Tanh()), Distances((4,), 3))

    class NoRemoval(Model):
        feature_shape = (4,)

        def stacked(self, params, x, mode=None):
            return x

    with pytest.raises(ConfigError, match="NoRemoval does not implement `remove_head`"):
        Headed(NoRemoval(), Distances((4,), 3))
    with pytest.raises(ConfigError, match=r"`adapt` leaves out head\.centers, but every task"):
        TaskHead(headed("mlp"), adapt="body")


# Weights of a backbone


@pytest.mark.parametrize("name", ["mlp", "conv4", "resnet12", "module"])
def test_weights_of_a_plain_backbone_fit_the_model_with_a_head(name: str, tmp_path) -> None:
    plain = BACKBONES[name]().double()
    # A file with the old last layer and one without both fit.
    save_file({n: p.detach() for n, p in plain.state_dict().items()}, tmp_path / "whole")
    save_backbone(plain, tmp_path / "body")
    for file in ("whole", "body"):
        model = headed(name)
        before = model.head.scale.clone()
        load_backbone(model, tmp_path / file)
        for key, parameter in body_parameters(model).items():
            assert parameter.equal(plain.get_parameter(key))
        assert model.head.scale.equal(before)
    # And back.
    save_backbone(model, tmp_path / "back")
    fresh = BACKBONES[name]().double()
    load_backbone(fresh, tmp_path / "back")
    assert all(p.equal(plain.get_parameter(k)) for k, p in body_parameters(fresh).items())


def test_weights_of_another_backbone_are_rejected(tmp_path) -> None:
    save_backbone(Conv4(SHAPE, 5, filters=6), tmp_path / "other")
    with pytest.raises(CheckpointError, match=r"does not fit Headed: conv1.weight is \[6, 2, 3, 3"):
        load_backbone(headed("conv4"), tmp_path / "other")


# Configurations

CONTENT = {
    "tasks": {"name": "images", "dataset": "strokes", "size": 16, "way": 3, "num_query": 2},
    "model": {"name": "conv4", "filters": 4},
    "head": {"name": "distances", "scale": 0.25},
    "init": {"name": "task-head", "adapt": ["head"]},
    "rule": {"name": "sgd"},
    "inner": {"num_steps": 0},
    "outer": {"num_iterations": 1, "num_tasks": 1, "validate_every": 1, "num_val_tasks": 1},
    "test": {"num_tasks": 2, "ensemble": 1},
}


@pytest.mark.parametrize("frozen", [False, True])
def test_a_run_round_trips_through_toml(registered, tmp_path, frozen: bool) -> None:
    content = {**CONTENT, "model": {**CONTENT["model"], "frozen": frozen}}
    if frozen:
        content["pretraining"] = {"num_epochs": 1, "max_batches": 1, "batch_size": 4}
    experiment = parse_experiment(content)
    train_run(Run.new(tmp_path / "run", experiment))
    run = Run.open(tmp_path / "run")
    assert to_dict(run.experiment) == to_dict(experiment)
    assert run.fingerprint == experiment.fingerprint()
    learner = run.learner()
    assert isinstance(learner.model.head, Distances)
    trained = {n for n, p in learner.model.named_parameters() if p.requires_grad}
    assert any(n.startswith("backbone.") for n in trained) is not frozen
    found = evaluate(learner, run.tasks(), num_tasks=2, seed=experiment.seed)
    assert found.loss == pytest.approx(run.result["test"]["loss"], rel=1e-6)


@pytest.mark.parametrize("frozen", [False, True])
def test_objects_are_described_and_built_again(registered, tmp_path, frozen: bool) -> None:
    tasks = Images(dataset="strokes", size=16, way=3, shot=2, num_query=2)
    backbone = Conv4(tasks.input_shape, 3, filters=4)
    model = Headed(backbone, Distances(feature_shape(backbone), 3, scale=0.75))
    backbone.requires_grad_(not frozen)
    learner = learner_of(model, lambda m: TaskHead(m, adapt="head"), num_steps=0)
    experiment = describe_experiment(learner, tasks)
    assert experiment.head.model_dump() == {"name": "distances", "scale": 0.75}
    assert experiment.model.options.get("frozen", False) is frozen
    run = Run.save(tmp_path / "run", learner, tasks)
    again = Run.open(run.path).learner()
    for (name, left), (other, right) in zip(
        model.named_parameters(), again.model.named_parameters(), strict=True
    ):
        assert name == other
        assert left.equal(right)
        assert left.requires_grad == right.requires_grad
    ours, theirs = (evaluate(each, tasks, num_tasks=3).loss for each in (learner, again))
    assert ours == theirs


def test_pretrained_weights_and_a_head(registered, tmp_path) -> None:
    content = {k: v for k, v in CONTENT.items() if k not in ("head", "init", "inner")}
    options = Pretraining(num_epochs=1, batch_size=20, max_batches=2)
    pretrain_run(Run.new(tmp_path / "pretrained", parse_experiment(content)), options=options)
    weights = tmp_path / "pretrained" / WEIGHTS
    model = {**CONTENT["model"], "weights": str(weights), "frozen": True}
    experiment = parse_experiment({**CONTENT, "model": model})
    train_run(Run.new(tmp_path / "run", experiment))
    trained = body_parameters(Run.open(tmp_path / "run").learner().model)
    loaded = load_file(weights)
    assert trained.keys() == loaded.keys()
    assert all(parameter.equal(loaded[name]) for name, parameter in trained.items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head": {"name": "distnces"}}, "head.name is 'distnces'.*Did you mean 'distances'"),
        ({"head": {"name": "distances", "scal": 1}}, "scal"),
        ({"model": {"name": "conv4", "frozen": "yes"}}, "model.frozen must be true or false"),
    ],
)
def test_faults_of_a_configuration_are_named(registered, change, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_experiment({**CONTENT, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"init": {"name": "prototype-head"}}, "use the init TaskHead"),
        ({"head": None}, "needs a model with a head"),
    ],
)
def test_a_head_needs_its_init(registered, change, message: str) -> None:
    content = {k: v for k, v in {**CONTENT, **change}.items() if v is not None}
    experiment = parse_experiment(content)
    with pytest.raises(ConfigError, match=message):
        build_learner(experiment, build_tasks(experiment))


def test_regression_tasks_reject_a_head_for_classes(registered) -> None:
    content = {**CONTENT, "tasks": {"name": "sinusoid"}, "model": {"name": "mlp"}}
    experiment = parse_experiment(content)
    with pytest.raises(ConfigError, match="needs classes, but these tasks are regression"):
        build_learner(experiment, build_tasks(experiment))


def test_a_head_on_a_plain_learned_init_is_adapted_from_its_own_weights() -> None:
    """Without TaskHead, the head's parameters are ordinary ones."""
    model = headed("mlp")
    init = LearnedInit(model)
    assert "head.centers" in init.layers
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=mse, num_steps=1)
    x, _, queries = draw()
    outputs = learner.adapt(x, torch.zeros(2, 6, 3).double()).predict(queries)
    assert outputs.shape == (2, 5, 3)
