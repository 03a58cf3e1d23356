"""The query loss with an implicit gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from alfa.errors import ConfigError
from alfa.inits import LearnedInit
from alfa.learner import Learner
from alfa.models import Conv4
from alfa.objectives import Implicit
from alfa.objectives._implicit import conjugate_gradients
from alfa.ops import cross_entropy, mse
from alfa.rules import LearnedRates, Proximal
from alfa.types import Episode

STRENGTH = 1.5


def implicit_learner(model: nn.Module, *, learning_rate: float = 0.1, **options) -> Learner:
    init = LearnedInit(model)
    rule = Proximal(init.layers, learning_rate=learning_rate, strength=STRENGTH)
    return Learner(model, init=init, rule=rule, **{"loss": mse, "num_steps": 300, **options})


def gradients(learner: Learner, episode, **options) -> tuple[Tensor, dict[str, Tensor]]:
    outcome = Implicit(strength=STRENGTH, **options)(learner, episode, progress=0.0)
    named = dict(learner.model.named_parameters())
    found = torch.autograd.grad(outcome.losses.sum(), list(named.values()))
    return outcome.losses.detach(), dict(zip(named, found, strict=True))


def test_a_quadratic_has_the_gradient_in_closed_form(make_episode, perturb) -> None:
    model = perturb(nn.Linear(3, 1, bias=False))
    episode = make_episode(num_tasks=3, num_in=3, num_out=1, num_support=7)
    losses, found = gradients(implicit_learner(model), episode, num_cg_steps=3)
    theta = model.weight.detach().clone().requires_grad_()
    wanted = []
    for task in range(3):
        x, y = episode.support_x[task], episode.support_y[task]
        # The minimum of mean (x phi - y)^2 + lambda / 2 |phi - theta|^2
        a = 2 * x.T @ x / len(x) + STRENGTH * torch.eye(3, dtype=x.dtype)
        phi = torch.linalg.solve(a, 2 * x.T @ y / len(x) + STRENGTH * theta.T)
        wanted.append((episode.query_x[task] @ phi - episode.query_y[task]).square().mean())
    torch.testing.assert_close(losses, torch.stack(wanted).detach())
    (expected,) = torch.autograd.grad(sum(wanted), theta)
    torch.testing.assert_close(found["weight"], expected)


class Smooth(nn.Module):
    """A network with a normalization layer, and a dead layer, on which no loss depends."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(2, 3), nn.LayerNorm(3)
        self.last = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.last(self.norm(self.first(x)).tanh())
        return outputs


@pytest.mark.parametrize("kind", ["mlp", "norm"])
def test_a_network_has_the_gradient_of_a_long_unroll(make_mlp, make_episode, perturb, kind) -> None:
    model = perturb(Smooth()) if kind == "norm" else make_mlp(hidden=(3,))
    if kind == "mlp":
        model = nn.Sequential(nn.Linear(2, 3), nn.Softplus(), nn.Linear(3, 2)).double()
    episode = make_episode(num_tasks=2)
    theta = dict(model.named_parameters())
    adapted = [name for name in theta if not name.startswith("norm")]
    losses, found = gradients(implicit_learner(model), episode, num_cg_steps=25)
    wanted = []
    for task in range(2):
        phi = {name: theta[name] for name in adapted}
        psi = {name: theta[name] for name in theta if name not in adapted}
        for _ in range(300):
            error = functional_call(model, {**phi, **psi}, (episode.support_x[task],))
            loss = (error - episode.support_y[task]).square().mean()
            grads = torch.autograd.grad(loss, list(phi.values()), create_graph=True)
            phi = {
                name: p - 0.1 * (g + STRENGTH * (p - theta[name]))
                for (name, p), g in zip(phi.items(), grads, strict=True)
            }
        error = functional_call(model, {**phi, **psi}, (episode.query_x[task],))
        wanted.append((error - episode.query_y[task]).square().mean())
    torch.testing.assert_close(losses, torch.stack(wanted).detach())
    expected = torch.autograd.grad(sum(wanted), list(theta.values()))
    for name, gradient in zip(theta, expected, strict=True):
        torch.testing.assert_close(found[name], gradient, rtol=1e-6, atol=1e-9)
    if kind == "norm":
        direct = gradients(implicit_learner(model, num_steps=0), episode)[1]["norm.weight"]
        assert not torch.allclose(found["norm.weight"], direct, rtol=0.01)


@pytest.mark.parametrize("batch_norm", ["transductive", "inductive"])
def test_a_backbone_has_the_gradient_of_any_module(randn, perturb, batch_norm) -> None:
    """The gradients of the backbone have hand-written derivatives."""
    model = perturb(Conv4((1, 8, 8), 3, filters=4, num_blocks=2))
    y = torch.arange(3).repeat(2).expand(2, -1)
    episode = Episode(randn(2, 6, 1, 8, 8), y, randn(2, 6, 1, 8, 8), y)
    options = {"loss": cross_entropy, "num_steps": 3, "batch_norm": batch_norm}
    learner = implicit_learner(model, **options)
    losses, found = gradients(learner, episode)

    class Slow(Conv4):
        """The same network, whose gradients autograd computes."""

        def support_gradients(self, *args, **options):
            return None

    slow = Slow((1, 8, 8), 3, filters=4, num_blocks=2).double()
    slow.load_state_dict(model.state_dict())
    other, expected = gradients(implicit_learner(slow, **options), episode)
    torch.testing.assert_close(losses, other)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient)
    assert found["norm1.weight"].any()


def test_few_steps_of_conjugate_gradients_are_an_approximation(make_mlp, make_episode) -> None:
    model, episode = make_mlp(), make_episode()
    learner = implicit_learner(model, num_steps=50, learning_rate=0.1)
    results = [gradients(learner, episode, num_cg_steps=n)[1] for n in (1, 4, 40, 60)]
    flat = [torch.cat([g.flatten() for g in result.values()]) for result in results]
    errors = [float((one - flat[-1]).norm()) for one in flat[:-1]]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-8


@pytest.mark.parametrize("memory", ["store", "recompute"])
def test_the_memory_mode_does_not_change_the_gradient(make_mlp, make_episode, memory) -> None:
    model, episode = make_mlp(), make_episode()
    expected = gradients(implicit_learner(model, num_steps=3), episode)[1]
    learner = implicit_learner(model, num_steps=3, memory=memory, order="first")
    found = gradients(learner, episode)[1]
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_conjugate_gradients_solve_each_row(randn) -> None:
    root, b = randn(3, 5, 5), randn(3, 5)
    b[1] = 0
    a = root @ root.mT + torch.eye(5, dtype=b.dtype)
    x = conjugate_gradients(lambda d: (a @ d.unsqueeze(2)).squeeze(2), b, 9)
    torch.testing.assert_close(x, torch.linalg.solve(a, b))
    assert not x[1].any()


def test_conjugate_gradients_stop_at_negative_curvature() -> None:
    a = torch.tensor([[-1.0, -2.0], [1.0, 2.0], [1.0, -2.0]]).double()
    b = torch.tensor([[1.0, 1.0], [1.0, 1.0], [3.0, 0.5]]).double()
    x = conjugate_gradients(lambda d: a * d, b, 9)
    assert torch.equal(x[0], b[0])  # at the first direction
    torch.testing.assert_close(x[1], b[1] / a[1])
    # One step along b, then the curvature is negative.
    torch.testing.assert_close(x[2], b[2] * 9.25 / 8.5)


def test_the_strength_must_be_that_of_the_rule(make_mlp, make_episode) -> None:
    learner = implicit_learner(make_mlp())
    with pytest.raises(ConfigError, match=r"objective is 2\.0, but that of the rule is 1\.5"):
        Implicit()(learner, make_episode(), progress=0.0)


def test_a_rule_that_it_cannot_train_is_an_error(make_mlp, make_episode) -> None:
    model = make_mlp()
    init = LearnedInit(model)
    learner = Learner(model, init=init, rule=LearnedRates(init.layers).double(), loss=mse)
    with pytest.raises(ConfigError, match="cannot train the parameters of the rule LearnedRates"):
        Implicit()(learner, make_episode(), progress=0.0)


@pytest.mark.parametrize("options", [{"strength": 0.0}, {"num_cg_steps": 0}])
def test_invalid_options_are_errors(options) -> None:
    with pytest.raises(ConfigError, match=r"`strength` must be greater than 0 and `num_cg_steps`"):
        Implicit(**options)
