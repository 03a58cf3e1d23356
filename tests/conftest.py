"""Fixtures that all tests share; data are random, seeded, and in float64."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from alfa.backbones import BACKBONES
from alfa.config import Experiment, compose, to_dict
from alfa.data import TASKS, Strokes
from alfa.data._open import store_path
from alfa.data._store import Index, StoredClass, checksum
from alfa.inits import INITS, Init, LearnedInit
from alfa.learner import Learner
from alfa.models import HEADS, MLP, MODELS, register_model
from alfa.objectives import OBJECTIVES
from alfa.ops import _compiled as compiled
from alfa.ops import mse
from alfa.optim import OPTIMIZERS, SCHEDULES
from alfa.rules import RULES, Rule
from alfa.runs import Run
from alfa.testing import small_run
from alfa.training import train_run
from alfa.types import Episode


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread: for tiny tensors, waking threads takes most of the time."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Disable fsync: files survive a killed process without it, and no test cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda number: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_datasets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide the datasets that the user of this machine has prepared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALFA_DATA", str(tmp_path_factory.mktemp("no-datasets")))
        yield


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the parts that a test registers."""
    backbones = dict(BACKBONES)
    for registry in (RULES, INITS, OBJECTIVES, MODELS, HEADS, TASKS, OPTIMIZERS, SCHEDULES):
        monkeypatch.setattr(registry, "_parts", dict(registry._parts))
    yield
    BACKBONES.clear()
    BACKBONES.update(backbones)


@pytest.fixture(autouse=True)
def same_draws() -> None:
    """Seed torch's global generator, so that tests do not depend on earlier ones."""
    torch.manual_seed(0)


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(7)


@pytest.fixture
def randn(rng) -> Callable[..., Tensor]:
    return lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)


@pytest.fixture
def perturb(rng) -> Callable[..., nn.Module]:
    """Adds noise to every parameter, so that none has its initial value."""

    def move(module: nn.Module, scale: float = 0.1) -> nn.Module:
        module.double()
        with torch.no_grad():
            for parameter in module.parameters():
                noise = torch.randn(parameter.shape, generator=rng, dtype=torch.float64)
                parameter.add_(scale * noise)
        return module

    return move


@pytest.fixture
def without_numba(monkeypatch) -> None:
    monkeypatch.setattr(compiled, "numba_available", lambda: False)


@pytest.fixture(params=["compiled", "torch"])
def backend(request) -> str:
    """Runs a test with the compiled kernels and with torch's operations."""
    if request.param == "torch":
        request.getfixturevalue("without_numba")
    return request.param


@pytest.fixture
def kernels_used(monkeypatch) -> list[str]:
    """Records the names of the compiled kernels that are called."""
    names: list[str] = []
    real = compiled.mlp_kernels()

    class Spy:
        def __getattr__(self, name):
            names.append(name)
            return getattr(real, name)

    monkeypatch.setattr(compiled, "mlp_kernels", Spy)
    return names


@pytest.fixture
def make_episode(randn) -> Callable[..., Episode]:
    """Creates regression tasks with smooth random targets."""

    def make(
        *, num_tasks: int = 2, num_in: int = 2, num_out: int = 2, num_support: int = 4
    ) -> Episode:
        support_x, query_x = randn(num_tasks, num_support, num_in), randn(num_tasks, 5, num_in)
        map_ = randn(num_tasks, num_in, num_out)
        return Episode(support_x, (support_x @ map_).sin(), query_x, (query_x @ map_).sin())

    return make


@pytest.fixture
def make_mlp(rng, perturb) -> Callable[..., MLP]:
    def make(num_in: int = 2, num_out: int = 2, hidden: Sequence[int] = (5, 4)) -> MLP:
        return perturb(MLP((num_in,), num_out, hidden=hidden, generator=rng))

    return make


@pytest.fixture
def make_rule(rng) -> Callable[..., Rule]:
    """Creates a registered rule and supplies `num_steps` and `generator`."""

    def make(name: str, layers, **options) -> Rule:
        known = RULES.options(name)
        if "num_steps" in known:
            options.setdefault("num_steps", 3)
        if "generator" in known:
            options.setdefault("generator", rng)
        return RULES.get(name)(layers, **options).double()

    return make


@pytest.fixture
def make_init(rng) -> Callable[..., Init]:
    """Creates a registered init; an init that wraps another wraps a learned one."""

    def make(name: str, model: nn.Module, **options) -> Init:
        if not INITS.wraps(name, "init"):
            return INITS.get(name)(model, **options)
        inner = LearnedInit(model, **options)
        if INITS.get(name).has_step_parameters and len(inner.shared()) == 0:
            pytest.skip("the model has no parameters outside the inner loop")
        known = INITS.options(name)
        context = {"generator": rng, "num_steps": 3}
        filled = {key: value for key, value in context.items() if key in known}
        return INITS.get(name)(inner, **filled).double()

    return make


@pytest.fixture
def make_learner(make_init, make_rule, perturb) -> Callable[..., Learner]:
    """Creates a learner from names of an init and a rule, with perturbed meta-parameters."""

    def make(
        model: nn.Module, *, init: str = "learned", rule: str = "sgd", loss=mse, **options
    ) -> Learner:
        start = make_init(init, model)
        made = make_rule(rule, start.layers, **options.pop("rule_options", {}))
        options.setdefault("num_steps", 3)
        learner = Learner(model, init=start, rule=made, loss=loss, **options)
        for module in (start, made):
            for name, child in module.named_children():
                if name != "model":
                    perturb(child, 0.02)
        return learner.double()

    return make


@pytest.fixture
def meta_gradients() -> Callable[..., tuple[Tensor, list[Tensor]]]:
    """Computes the mean query loss and its gradient in every meta-parameter."""

    def take(learner: Learner, episode: Episode, **options) -> tuple[Tensor, list[Tensor]]:
        loss = learner(episode, **options).query_losses.mean()
        parameters = list(learner.meta_parameters())
        grads = torch.autograd.grad(loss, parameters, materialize_grads=True)
        return loss.detach(), list(grads)

    return take


@pytest.fixture
def dropping(monkeypatch) -> str:
    """Registers a model with dropout for sine curves, and returns its name."""
    monkeypatch.setattr(MODELS, "_parts", dict(MODELS._parts))

    @register_model("dropping")
    class Dropping(nn.Module):
        def __init__(self, input_shape, num_outputs):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Dropout(), nn.Linear(8, 1))

        def forward(self, x):
            return self.net(x)

    return "dropping"


def _spots(split: str, num_classes: int, num_images: int = 9) -> np.ndarray:
    """Return noise with a bright spot, whose position and color identify the class."""
    rng = np.random.default_rng([len(split), num_classes])
    images = rng.integers(0, 120, (num_classes, num_images, 3, 8, 8), np.uint8)
    for number in range(num_classes):
        down, right = rng.integers(0, 6, 2)
        images[number, :, number % 3, down : down + 3, right : right + 3] += 130
    return images


@pytest.fixture(scope="session")
def spots_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one prepared dataset, `spots`: 6, 4, and 4 classes of nine 8 x 8 x 3 images."""
    root = tmp_path_factory.mktemp("data")
    parts, entries, first = [], [], 0
    for split, num_classes in (("train", 6), ("val", 4), ("test", 4)):
        for number, images in enumerate(_spots(split, num_classes)):
            name = f"{split}-{number}"
            entries.append(StoredClass(split, name, first, len(images), checksum(images)))
            parts.append(images)
            first += len(images)
    index = Index("spots", 8, 3, (0.5,) * 3, (0.25,) * 3, tuple(entries))
    path = store_path("spots", 8, root=root)
    path.mkdir(parents=True)
    np.save(path / "images.npy", np.concatenate(parts))
    (path / "index.json").write_text(index.to_json())
    return root


@pytest.fixture
def spots(spots_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same folder, set as alfa's folder of datasets."""
    monkeypatch.setenv("ALFA_DATA", str(spots_folder))
    return spots_folder


@pytest.fixture(scope="session")
def characters_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run on generated characters, for any number of classes; do not change it."""
    return small_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def linear_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run on generated characters with a trained head of five outputs; do not change it."""
    return small_run(tmp_path_factory.mktemp("runs"), head="learned")


@pytest.fixture(scope="session")
def curves_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run on sine curves; do not change it."""
    return small_run(tmp_path_factory.mktemp("runs"), kind="curves")


@pytest.fixture(scope="session")
def characters() -> tuple[np.ndarray, np.ndarray]:
    """Six images of each of three characters, ``[image, height, width]``, and their labels."""
    images = Strokes(num_classes=3, num_examples=6, size=16).images().images[:, 0]
    return images, np.repeat(["alef", "bet", "gimel"], 6)


TINY = (
    "outer.num_iterations=20",
    "outer.max_skipped=0",
    "outer.validate_every=5",
    "outer.num_val_tasks=4",
    "test.num_tasks=5",
    "model.hidden=[8]",
    "tasks.num_query=10",
)


@pytest.fixture
def tiny() -> Callable[..., Experiment]:
    """Creates a small experiment on sine curves, with further overrides."""

    def make(*overrides: str, method: str = "alfa+maml") -> Experiment:
        return compose("sinusoid", method=method, overrides=[*TINY, *overrides])

    return make


@pytest.fixture
def tensors() -> Callable[..., dict[str, bytes]]:
    """Reads the tensors of a run's checkpoint as bytes."""

    def read(path: Path, name: str = "last") -> dict[str, bytes]:
        content = load_file(path / "checkpoints" / f"{name}.safetensors")
        return {key: tensor.numpy().tobytes() for key, tensor in content.items()}

    return read


@pytest.fixture
def own_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unregisters the rules of a test."""
    monkeypatch.setattr(RULES, "_parts", dict(RULES._parts))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory):
    """Trains an experiment without interruption, once for each experiment."""
    done: dict[str, Path] = {}

    def get(experiment) -> Path:
        key = json.dumps(to_dict(experiment), sort_keys=True)
        if key not in done:
            done[key] = tmp_path_factory.mktemp("unbroken") / "run"
            train_run(Run.new(done[key], experiment))
        return done[key]

    return get


@pytest.fixture
def assert_same(tensors):
    """Asserts that two runs have bit-identical metrics, results, and checkpoints."""

    def check(path: Path, other: Path) -> None:
        assert (path / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
        for key in ("test", "best_iteration", "val_loss", "num_iterations", "config"):
            assert Run(path).result[key] == Run(other).result[key]
        assert tensors(path, "last") == tensors(other, "last")
        assert tensors(path, "best") == tensors(other, "best")

    return check
