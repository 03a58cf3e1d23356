"""Agreement with the numbers of the paper's published code."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from alfa.inits import Attenuated, FixedInit, LearnedInit
from alfa.learner import Learner
from alfa.models import Conv4
from alfa.ops import cross_entropy
from alfa.rules import ALFA, SGD
from alfa.types import Episode

GOLDEN = Path(__file__).parents[1] / "golden"
METHODS = ["maml", "alfa_maml", "alfa_random", "maml_l2f"]
NUM_STEPS = 3


class PlainConv4(nn.Module):
    def __init__(self, num_filters: int = 6, num_classes: int = 3) -> None:
        super().__init__()
        for block in range(1, 5):
            channels = 1 if block == 1 else num_filters
            self.add_module(f"conv{block}", nn.Conv2d(channels, num_filters, 3, padding=1))
            norm = nn.BatchNorm2d(num_filters, track_running_stats=False)
            self.add_module(f"norm{block}", norm)
        self.linear = nn.Linear(num_filters, num_classes)

    def forward(self, x):
        for block in range(1, 5):
            x = self.get_submodule(f"norm{block}")(self.get_submodule(f"conv{block}")(x))
            x = F.max_pool2d(F.leaky_relu(x, 0.01), 2)
        return self.linear(x.flatten(1))


def close(actual, expected):
    torch.testing.assert_close(actual.detach(), expected, rtol=0, atol=1e-9)


def name_in_torch(golden_name: str) -> str:
    return golden_name.replace(".gamma", ".weight").replace(".beta", ".bias")


class Golden:
    """The arrays of one method, and their learner."""

    def __init__(self, method: str, model: nn.Module) -> None:
        with np.load(GOLDEN / f"{method}.npz") as arrays:
            self.arrays = {key: torch.from_numpy(arrays[key]) for key in arrays.files}
        self.unseen = set(self.arrays)
        self.model = model.double()
        self.model.load_state_dict(
            {name_in_torch(name): value for name, value in self.named("meta/theta/").items()}
        )
        inits = {"alfa_random": FixedInit, "maml_l2f": lambda m: Attenuated(LearnedInit(m))}
        self.init = inits.get(method, LearnedInit)(self.model).double()
        self.layers = list(self.init.layers)
        self.rule = self.make_rule(method).double()
        with torch.no_grad():
            for key, parameter in self.trained().items():
                if not key.startswith("theta/"):
                    self.copy("meta/" + key, parameter)
        self.learner = Learner(
            self.model,
            init=self.init,
            rule=self.rule,
            loss=cross_entropy,
            num_steps=NUM_STEPS,
        )
        data = ["support_x", "support_y", "query_x", "query_y"]
        self.episode = Episode(*(self[key].flatten(1, 2) for key in data))

    def __getitem__(self, key):
        self.unseen.discard(key)
        return self.arrays[key]

    def named(self, prefix):
        keys = [key for key in self.arrays if key.startswith(prefix)]
        return {key.removeprefix(prefix): self[key] for key in keys}

    def by_layer(self, prefix):
        named = self.named(prefix)
        assert set(named) == set(self.layers)
        return [named[name] for name in self.layers]

    def make_rule(self, method):
        layers = self.init.layers
        if method in ("maml", "maml_l2f"):
            return SGD(layers, learning_rate=0.1)
        return ALFA.preset(
            "published-code",
            layers,
            num_steps=NUM_STEPS,
            per_parameter_decay=method == "alfa_random",
        )

    def trained(self):
        """Return every meta-parameter under its name in the arrays."""
        named = {}
        if not isinstance(self.init, FixedInit):
            for name, parameter in self.model.named_parameters():
                named[f"theta/{name}"] = parameter
        if isinstance(self.init, Attenuated):
            named |= linears("attenuator", self.init.attenuator)
        if isinstance(self.rule, ALFA):
            named["alpha0"], named["beta0"] = self.rule.alpha0.values, self.rule.beta0.values
            named |= linears("generator", self.rule.g_phi)
            if self.rule.weight_factor.decay is not None:
                named["decay"] = self.rule.weight_factor.decay
        assert len(named) == len(list(self.init.meta_parameters())) + len(
            list(self.rule.parameters())
        )
        return named

    def array_of(self, key):
        """Return the array of a meta-parameter, in the shape of the package."""
        part, kind = key.split("/")[:2]
        if kind in ("alpha0", "beta0"):
            table = torch.stack(self.by_layer(f"{part}/{kind}/"), dim=1)
            assert len(table) == NUM_STEPS + 1  # one row more than steps
            return table
        if kind == "decay":
            return torch.cat([value.flatten() for value in self.by_layer(f"{part}/decay/")])
        if "/norm" in key:
            key = key.replace(".weight", ".gamma").replace(".bias", ".beta")
        return self[key]

    def copy(self, key, parameter):
        value = self.array_of(key)
        parameter.copy_(value[:NUM_STEPS] if key in ("meta/alpha0", "meta/beta0") else value)


def linears(name, module):
    modules = [m for m in module.modules() if isinstance(m, nn.Linear)]
    return {
        f"{name}/{number}.{key}": parameter
        for number, linear in enumerate(modules)
        for key, parameter in linear.named_parameters()
    }


WAYS = {
    "plain-loop": (PlainConv4, "loop"),
    "plain-stack": (PlainConv4, "stack"),
    "by-hand-loop": (lambda: Conv4((1, 20, 20), 3, filters=6), "loop"),
    "by-hand-stack": (lambda: Conv4((1, 20, 20), 3, filters=6), "stack"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", METHODS)
def test_every_figure_of_the_published_code(method, way):
    make_model, over_tasks = WAYS[way]
    golden = Golden(method, make_model())
    golden.learner.over_tasks = over_tasks
    check_weights(golden)
    outcome = golden.learner(golden.episode)
    check_losses_and_rates(golden, outcome.adapted)
    for task in range(golden.episode.num_tasks):
        close(outcome.outputs[task], golden[f"task{task}/query_logits"])
    outer_loss = outcome.query_losses.mean()
    close(outer_loss, golden["outer_loss"])
    check_outer_gradients(golden, outer_loss)
    assert not golden.unseen


def check_weights(golden):
    support = golden.episode.support_x, golden.episode.support_y
    for num_steps in range(NUM_STEPS + 1):
        params = golden.learner.adapt(*support, num_steps=num_steps).params
        for task in range(golden.episode.num_tasks):
            when = f"step{num_steps - 1}/weights" if num_steps else "start"
            for name, wanted in zip(
                golden.layers, golden.by_layer(f"task{task}/{when}/"), strict=True
            ):
                close(params[name][task], wanted)


def check_losses_and_rates(golden, adapted):
    for task in range(golden.episode.num_tasks):
        for step in range(NUM_STEPS):
            prefix = f"task{task}/step{step}"
            close(adapted.support_losses[step, task], golden[f"{prefix}/support_loss"])
            if not isinstance(golden.rule, ALFA):
                continue
            alpha1, beta1 = adapted.rates[step].state
            close(alpha1[task], torch.stack(golden.by_layer(f"{prefix}/generated_alpha/")))
            close(beta1[task], torch.stack(golden.by_layer(f"{prefix}/generated_beta/")))


def check_outer_gradients(golden, outer_loss):
    trained = golden.trained()
    gradients = torch.autograd.grad(outer_loss, list(trained.values()))
    for (key, parameter), gradient in zip(trained.items(), gradients, strict=True):
        wanted = golden.array_of("grad/" + key)
        if key in ("alpha0", "beta0"):
            assert not wanted[NUM_STEPS:].any()
            wanted = wanted[:NUM_STEPS]
        assert gradient.shape == parameter.shape
        close(gradient, wanted)
