from dataclasses import replace

import higher
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.inits import INITS, Init, LearnedInit
from alfa.learner import Learner, adapt
from alfa.ops import mse, per_task
from alfa.rules import RULES, SGD
from alfa.types import Episode, Params

# tests/inits/test_heads.py tests the inits that need classes.
ALL_INITS = [name for name in INITS if not INITS.get(name).classification_only]
ALL_RULES = list(RULES)


def close(actual, expected, tolerance=1e-9):
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def one_task(episode, task):
    tensors = (episode.support_x, episode.support_y, episode.query_x, episode.query_y)
    return Episode(*(tensor[task : task + 1] for tensor in tensors))


@pytest.fixture
def plain(perturb):
    """Return a module without support for stacks."""
    return perturb(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2)), 0.3)


@pytest.fixture
def run(make_mlp, make_episode):
    """Return a function that adapts a perceptron to two tasks, with other arguments."""

    def adapt_with(**changes):
        model = changes.pop("model", None) or make_mlp()
        episode = make_episode()
        init = LearnedInit(model)
        options = {
            "support_x": episode.support_x,
            "support_y": episode.support_y,
            "init": init,
            "rule": SGD(init.layers),
            "loss": mse,
            **changes,
        }
        return adapt(model, options.pop("support_x"), options.pop("support_y"), **options)

    return adapt_with


# Stacks of tasks


@pytest.mark.parametrize("stacked", [True, False], ids=["mlp", "plain"])
@pytest.mark.parametrize("rule", ALL_RULES)
@pytest.mark.parametrize("init", ALL_INITS)
def test_a_stack_of_tasks_is_a_loop_over_tasks(
    make_learner, make_mlp, make_episode, plain, init, rule, stacked
):
    learner = make_learner(make_mlp() if stacked else plain, init=init, rule=rule)
    episode = make_episode(num_tasks=3)
    together = learner(episode)
    alone = [learner(one_task(episode, task)) for task in range(3)]
    close(together.query_losses, torch.cat([one.query_losses for one in alone]))
    close(together.outputs, torch.cat([one.outputs for one in alone]))
    close(
        together.adapted.support_losses,
        torch.cat([one.adapted.support_losses for one in alone], dim=1),
    )
    for name in together.adapted.params:
        params = torch.cat([one.adapted.params[name] for one in alone])
        close(together.adapted.params[name], params)
    parameters = list(learner.meta_parameters())
    if parameters:
        of_all = torch.autograd.grad(together.query_losses.sum(), parameters)
        of_each = torch.autograd.grad(sum(one.query_losses.sum() for one in alone), parameters)
        for one, other in zip(of_all, of_each, strict=True):
            close(one, other)


@pytest.mark.parametrize("rule", ALL_RULES)
@pytest.mark.parametrize("init", ALL_INITS)
def test_vmap_is_the_loop(make_learner, make_episode, plain, init, rule):
    learner = make_learner(plain, init=init, rule=rule)
    episode = make_episode(num_tasks=3)
    results = []
    for over_tasks in ("loop", "stack"):
        learner.over_tasks = over_tasks
        losses = learner(episode).query_losses
        parameters = list(learner.meta_parameters())
        grads = torch.autograd.grad(losses.sum(), parameters) if parameters else []
        results.append([losses, *grads])
    for one, other in zip(*results, strict=True):
        close(one, other)


# Order of the outer gradient


@pytest.mark.parametrize("rule", ALL_RULES)
@pytest.mark.parametrize("init", ALL_INITS)
def test_every_order_adapts_alike(make_learner, make_mlp, make_episode, init, rule):
    learner, episode = make_learner(make_mlp(), init=init, rule=rule), make_episode()
    second, first, none = (learner(episode, order=o) for o in ("second", "first", "none"))
    close(first.adapted.params.flat, second.adapted.params.flat, 1e-12)
    close(none.adapted.params.flat, second.adapted.params.flat.detach(), 1e-12)
    close(none.query_losses, second.query_losses.detach(), 1e-12)


@pytest.mark.parametrize("switch", ["order", "no_grad"])
@pytest.mark.parametrize("rule", ALL_RULES)
@pytest.mark.parametrize("init", ALL_INITS)
def test_no_order_builds_no_graph(make_learner, make_mlp, make_episode, init, rule, switch):
    learner, episode = make_learner(make_mlp(), init=init, rule=rule), make_episode()
    if switch == "order":
        outcome = learner(episode, order="none")
    else:
        with torch.no_grad():
            outcome = learner(episode)
    assert not outcome.adapted.params.flat.requires_grad
    assert not outcome.adapted.support_losses.requires_grad
    assert not outcome.query_losses.requires_grad


@pytest.mark.parametrize("rule", ALL_RULES)
def test_rates_of_no_order_are_plain_numbers(make_learner, make_mlp, make_episode, rule):
    learner = make_learner(make_mlp(), rule=rule)
    for rates in learner(make_episode(), order="none").adapted.rates:
        tensors = [part for part in rates.state if part is not None]
        for rate in (rates.alpha, rates.beta, rates.direction or {}):
            tensors += [rate] if isinstance(rate, torch.Tensor) else list(rate.values())
        assert not any(tensor.requires_grad for tensor in tensors)


def test_no_order_builds_no_graph_through_shared_parameters(run, make_mlp):
    model = make_mlp()
    init = LearnedInit(model, adapt="linear3.*")
    adapted = run(model=model, init=init, rule=SGD(init.layers), order="none")
    assert not any(tensor.requires_grad for tensor in adapted.shared.values())
    assert not adapted.params.flat.requires_grad


def test_first_and_second_order_differ(make_learner, make_mlp, make_episode, meta_gradients):
    learner, episode = make_learner(make_mlp()), make_episode()
    _, second = meta_gradients(learner, episode)
    _, first = meta_gradients(learner, episode, order="first")
    assert (second[0] - first[0]).abs().max() > 1e-6


@pytest.mark.parametrize("compiled", [True, False], ids=["mlp", "plain"])
@pytest.mark.parametrize("order", ["second", "first"])
def test_maml_is_that_of_higher(make_mlp, make_episode, meta_gradients, order, compiled):
    model, episode = make_mlp(), make_episode(num_tasks=3)
    twin = nn.Sequential(
        nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)
    ).double()
    values = [p.detach() for p in model.parameters()]
    twin.load_state_dict(dict(zip(twin.state_dict(), values, strict=True)))
    adapted_model = model if compiled else twin
    init = LearnedInit(adapted_model)
    rule = SGD(init.layers, learning_rate=0.1)
    learner = Learner(adapted_model, init=init, rule=rule, loss=mse, order=order)
    loss, grads = meta_gradients(learner, episode)

    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    constant = {"grad_callback": lambda grads: [grad.detach() for grad in grads]}
    losses = []
    for task in range(3):
        with higher.innerloop_ctx(twin, optimizer, copy_initial_weights=False) as (net, steps):
            for _ in range(5):
                support_loss = F.mse_loss(net(episode.support_x[task]), episode.support_y[task])
                steps.step(support_loss, **(constant if order == "first" else {}))
            losses.append(F.mse_loss(net(episode.query_x[task]), episode.query_y[task]))
    expected = torch.autograd.grad(torch.stack(losses).mean(), list(twin.parameters()))
    close(loss, torch.stack(losses).mean().detach())
    for grad, wanted in zip(grads, expected, strict=True):
        close(grad, wanted)


# Steps and losses


def test_no_steps_leave_the_start(make_learner, make_mlp, make_episode):
    model = make_mlp()
    outcome = make_learner(model)(make_episode(), num_steps=0)
    assert outcome.adapted.support_losses.shape == (0, 2)
    assert outcome.adapted.rates == ()
    for name, parameter in model.named_parameters():
        for task in range(2):
            assert torch.equal(outcome.adapted.params[name][task], parameter)


def test_a_step_follows_the_equation(run, make_mlp, make_episode):
    model, episode = make_mlp(), make_episode()
    init = LearnedInit(model)
    data = {"support_x": episode.support_x, "support_y": episode.support_y}
    rule = SGD(init.layers, learning_rate=0.1, weight_decay=0.5)
    adapted = run(model=model, init=init, rule=rule, num_steps=1, **data)
    for task in range(2):
        loss = F.mse_loss(model(episode.support_x[task]), episode.support_y[task])
        close(adapted.support_losses[0, task], loss.detach(), 1e-12)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        for (name, parameter), grad in zip(model.named_parameters(), grads, strict=True):
            close(adapted.params[name][task], 0.95 * parameter - 0.1 * grad, 1e-12)


def test_support_losses_are_taken_before_each_step(run, make_mlp, make_episode):
    model, episode = make_mlp(), make_episode()
    data = {"support_x": episode.support_x, "support_y": episode.support_y}
    losses = run(model=model, num_steps=3, **data).support_losses
    for num_steps in range(3):
        adapted = run(model=model, num_steps=num_steps, **data)
        loss = mse(adapted.predict(episode.support_x), episode.support_y)
        close(losses[num_steps], loss.detach(), 1e-12)


def test_a_loss_of_ones_own_is_taken_task_by_task(make_learner, make_mlp, make_episode, backend):
    def weighted(outputs, targets):
        return (torch.tensor([1.0, 3.0], dtype=torch.float64) * (outputs - targets)).abs().mean()

    model, episode = make_mlp(), make_episode()
    own = make_learner(model, loss=per_task(weighted))(episode)
    for task in range(2):
        params = dict(model.named_parameters())
        for _ in range(3):
            outputs = torch.func.functional_call(model, params, (episode.support_x[task],))
            loss = weighted(outputs, episode.support_y[task])
            grads = torch.autograd.grad(loss, list(params.values()), create_graph=True)
            pairs = zip(params.items(), grads, strict=True)
            params = {name: value - 0.01 * grad for (name, value), grad in pairs}
        for name, value in params.items():
            close(own.adapted.params[name][task], value)


# Choosing what to adapt


@pytest.mark.parametrize("kind", ["mlp", "plain"])
@pytest.mark.parametrize("order", ["second", "first"])
def test_only_the_head_adapts_and_the_rest_still_learns(make_mlp, make_episode, plain, kind, order):
    model, head = (make_mlp(), "linear3.*") if kind == "mlp" else (plain, "2.*")
    episode = make_episode()
    init = LearnedInit(model, adapt=head)
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=mse, order=order)
    outcome = learner(episode)
    assert len(outcome.adapted.params) == 2
    grads = torch.autograd.grad(outcome.query_losses.sum(), list(model.parameters()))
    assert all(grad.any() for grad in grads)

    losses = []
    for task in range(2):
        params = dict(model.named_parameters())
        for _ in range(5):
            own = {name: params[name] for name in init.layers}
            outputs = torch.func.functional_call(model, params, (episode.support_x[task],))
            loss = F.mse_loss(outputs, episode.support_y[task])
            steps = torch.autograd.grad(loss, list(own.values()), create_graph=True)
            if order == "first":
                steps = [step.detach() for step in steps]
            pairs = zip(own.items(), steps, strict=True)
            params |= {name: value - 0.01 * step for (name, value), step in pairs}
        outputs = torch.func.functional_call(model, params, (episode.query_x[task],))
        losses.append(F.mse_loss(outputs, episode.query_y[task]))
    close(outcome.query_losses, torch.stack(losses))
    expected = torch.autograd.grad(sum(losses), list(model.parameters()))
    for grad, wanted in zip(grads, expected, strict=True):
        close(grad, wanted)


class ZeroHead(Init):
    """A head that starts at zero for every task, on a learned body."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.learned = LearnedInit(model, adapt="2.*")

    @property
    def layers(self):
        return self.learned.layers

    def start(self, support):
        size = sum(self.layers.sizes)
        return Params(torch.zeros(support.num_tasks, size, dtype=torch.float64), self.layers)

    def shared(self):
        return self.learned.shared()

    def meta_parameters(self):
        return iter(self.learned.shared().values())


def test_a_body_learns_through_the_first_step_of_a_constant_head(plain, make_episode):
    init, episode = ZeroHead(plain), make_episode()
    rule = SGD(init.layers, learning_rate=0.1)
    learner = Learner(plain, init=init, rule=rule, loss=mse, num_steps=1)
    losses = []
    for task in range(2):
        features = torch.tanh(plain[0](episode.support_x[task]))
        # The gradient of the mean squared error in a linear head at zero.
        error = -2 * episode.support_y[task] / episode.support_y[task].numel()
        weight, bias = -0.1 * error.t() @ features, -0.1 * error.sum(0)
        outputs = torch.tanh(plain[0](episode.query_x[task])) @ weight.t() + bias
        losses.append(F.mse_loss(outputs, episode.query_y[task]))
    outcome = learner(episode)
    close(outcome.query_losses, torch.stack(losses))
    body = list(plain[0].parameters())
    grads = torch.autograd.grad(outcome.query_losses.sum(), body)
    for grad, wanted in zip(grads, torch.autograd.grad(sum(losses), body), strict=True):
        close(grad, wanted)


@pytest.mark.parametrize("part", ["support_x", "support_y"])
@pytest.mark.parametrize("init", ["learned", "fixed"])
@pytest.mark.parametrize("kind", ["mlp", "plain"])
def test_support_sets_that_are_trained_get_their_gradient(
    make_learner, make_mlp, make_episode, plain, kind, init, part
):
    model, episode = make_mlp() if kind == "mlp" else plain, make_episode()
    trained = getattr(episode, part).clone().requires_grad_()
    episode = replace(episode, **{part: trained})
    losses = make_learner(model, init=init)(episode).query_losses
    expected = []
    for task in range(2):
        params = dict(model.named_parameters())
        for _ in range(3):
            outputs = torch.func.functional_call(model, params, (episode.support_x[task],))
            loss = F.mse_loss(outputs, episode.support_y[task])
            grads = torch.autograd.grad(loss, list(params.values()), create_graph=True)
            pairs = zip(params.items(), grads, strict=True)
            params = {name: value - 0.01 * grad for (name, value), grad in pairs}
        outputs = torch.func.functional_call(model, params, (episode.query_x[task],))
        expected.append(F.mse_loss(outputs, episode.query_y[task]))
    close(losses.detach(), torch.stack(expected).detach())
    (wanted,) = torch.autograd.grad(sum(expected), trained)
    assert wanted.abs().max() > 1e-6
    (grad,) = torch.autograd.grad(losses.sum(), trained)
    close(grad, wanted)


# Mistakes


@pytest.mark.parametrize("kind", ["stacked", "plain"])
@pytest.mark.parametrize("num_tasks", [1, 3])
def test_examples_of_other_tasks_are_not_predicted(run, plain, randn, kind, num_tasks):
    adapted = run(model=plain if kind == "plain" else None)
    told = f"`x` must contain the examples of 2 adapted tasks in order, got {num_tasks} tasks"
    with pytest.raises(ConfigError, match=told):
        adapted.predict(randn(num_tasks, 5, 2))


@pytest.mark.parametrize("kind", ["stacked", "plain"])
def test_a_rule_that_looks_without_a_gradient_changes_nothing(make_mlp, make_episode, plain, kind):
    class Looks(SGD):
        def rates(self, step, params, grads, state=()):
            with torch.no_grad():
                _ = params[next(iter(params))].abs().mean()
            return super().rates(step, params, grads, state)

    model, episode, gradients = plain if kind == "plain" else make_mlp(), make_episode(), []
    for rule in (SGD, Looks):
        init = LearnedInit(model)
        learner = Learner(model, init=init, rule=rule(init.layers), loss=mse, num_steps=3)
        loss = learner(episode).query_losses.sum()
        gradients.append(torch.autograd.grad(loss, list(learner.meta_parameters())))
    for found, expected in zip(*gradients, strict=True):
        close(found, expected)


def test_a_misspelt_order_gets_a_hint(run):
    with pytest.raises(ConfigError, match=r"`order` is 'secnd'.*Did you mean 'second'"):
        run(order="secnd")


def test_a_misspelt_way_over_tasks_gets_a_hint(run):
    with pytest.raises(ConfigError, match=r"`over_tasks` is 'stak'.*Did you mean 'stack'"):
        run(over_tasks="stak")


def test_steps_cannot_be_negative(run):
    with pytest.raises(ConfigError, match="`num_steps` must be at least 0, got -1"):
        run(num_steps=-1)


@pytest.mark.parametrize(
    ("x_shape", "y_shape"),
    [((2, 4, 2), (3, 4, 2)), ((2, 4, 2), (2, 5, 2)), ((8,), (8,)), ((2, 4, 2), (8, 2))],
)
def test_support_sets_that_do_not_match_are_named(run, randn, x_shape, y_shape):
    with pytest.raises(ConfigError, match=r"`support_x` and `support_y` must both begin"):
        run(support_x=randn(*x_shape), support_y=randn(*y_shape))


@pytest.mark.parametrize("average", [(), 2], ids=["one for all", "one for each example"])
def test_a_loss_that_is_not_one_value_per_task_is_named(run, average):
    with pytest.raises(ConfigError, match=r"one value per task, of shape \(2,\).*per_task"):
        run(loss=lambda outputs, targets: (outputs - targets).square().mean(average))


def test_a_loss_of_torch_is_named(run):
    with pytest.raises(ConfigError, match=r"`loss` is torch's F.mse_loss,.*per_task"):
        run(loss=F.mse_loss)


def test_inference_mode_is_refused(run):
    with torch.inference_mode(), pytest.raises(ConfigError, match=r"torch\.no_grad\(\)"):
        run()


def test_a_loss_that_ignores_the_adapted_parameters_is_named(run):
    with pytest.raises(ConfigError, match=r"does not depend on the adapted parameters.*linear1"):
        run(loss=lambda outputs, targets: targets.square().flatten(1).mean(1))


def test_a_layer_that_the_model_does_not_use_is_no_crash(perturb, make_episode):
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.used = nn.Linear(2, 2)
            self.unused = nn.Linear(2, 2)

        def forward(self, x):
            return self.used(x)

    model, episode = perturb(Unused()), make_episode()
    init = LearnedInit(model)
    data = episode.support_x, episode.support_y
    adapted = adapt(model, *data, init=init, rule=SGD(init.layers), loss=mse)
    assert torch.equal(adapted.params["unused.weight"][0], model.unused.weight)


def test_a_model_that_returns_more_than_a_tensor_is_named(randn):
    model = nn.GRU(2, 2, batch_first=True).double()
    init = LearnedInit(model)
    x, y = randn(2, 3, 4, 2), randn(2, 3, 4, 2)
    with pytest.raises(ConfigError, match=r"GRU returned tuple.*must return one tensor"):
        adapt(model, x, y, init=init, rule=SGD(init.layers), loss=mse)


def test_a_loss_that_ignores_what_is_adapted_is_refused(randn) -> None:
    class Ignores(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    model = Ignores().double()
    init = LearnedInit(model, adapt=["unused.*"])
    x = randn(2, 4, 1)
    with pytest.raises(ConfigError, match=r"does not depend on the adapted parameters \(unused"):
        adapt(model, x, x, init=init, rule=SGD(init.layers), loss=mse)


def test_a_rule_made_for_other_layers_is_refused(run, make_mlp) -> None:
    model = make_mlp()
    other = LearnedInit(torch.nn.Linear(7, 7))
    with pytest.raises(ConfigError, match=r"make it with SGD\(init.layers\)"):
        run(model=model, init=LearnedInit(model), rule=SGD(other.layers))
