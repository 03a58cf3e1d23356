from itertools import product

import pytest
import torch
from torch.nn import functional as F

from alfa.errors import AlfaWarning, ConfigError
from alfa.inits import LearnedInit
from alfa.learner import Learner, adapt
from alfa.models import MLP
from alfa.ops import mse
from alfa.rules import ALFA, Constant, Generated, Learned, LearnedRates
from alfa.types import Layers, Params

LAYERS = {"w": torch.Size([3, 2]), "b": torch.Size([3])}
NUM_LAYERS = len(LAYERS)


@pytest.fixture
def draw(randn):
    def of(num_tasks=2):
        return Params.of({name: randn(num_tasks, *shape) for name, shape in LAYERS.items()})

    return of


def linears_of(rule):
    return [module for module in rule.g_phi.modules() if isinstance(module, torch.nn.Linear)]


def generate(rule, state):
    """Run g_phi in plain torch."""
    for number, linear in enumerate(linears_of(rule)):
        state = F.linear(F.relu(state) if number else state, linear.weight, linear.bias)
    return state


# A generator that returns ones


def learned_in_place_of(rate):
    if isinstance(rate, Generated):
        return Learned(rate.start, rate.per_step, rate.per_layer)
    return rate


@pytest.mark.parametrize(
    ("alpha", "beta", "options"),
    [
        (Generated(0.1), Generated(0.02), {}),
        (Generated(0.1), Generated(0.9), {"beta_form": "factor"}),
        (Generated(0.1), Learned(0.02), {}),
        (Generated(0.1), Constant(0.9), {}),
        (Learned(0.1), Generated(0.02), {}),
        (Constant(0.1), Generated(0.02), {}),
        (Generated(0.1, per_step=False), Generated(0.02, per_layer=False), {}),
        (Generated(0.1), Generated(0.5), {"per_parameter_decay": True, "decay_start": 0.1}),
    ],
)
def test_a_generator_of_ones_is_learned_rates(
    make_mlp, make_episode, perturb, meta_gradients, alpha, beta, options
):
    model, episode = make_mlp(), make_episode()
    init = LearnedInit(model)
    alfa = perturb(ALFA(init.layers, num_steps=3, alpha=alpha, beta=beta, **options), 0.01)
    last = linears_of(alfa)[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.fill_(1)
    learned = LearnedRates(
        init.layers,
        num_steps=3,
        alpha=learned_in_place_of(alpha),
        beta=learned_in_place_of(beta),
        **options,
    ).double()
    learned.load_state_dict({k: v for k, v in alfa.state_dict().items() if "g_phi" not in k})
    outcomes, gradients = [], []
    for rule in (alfa, learned):
        learner = Learner(model, init=init, rule=rule, loss=mse, num_steps=3)
        outcomes.append(learner(episode))
        names = {name: p for name, p in rule.named_parameters() if "g_phi" not in name}
        wanted = [*model.parameters(), *(names[name] for name in sorted(names))]
        gradients.append(torch.autograd.grad(outcomes[-1].query_losses.sum(), wanted))
    close(outcomes[0].query_losses, outcomes[1].query_losses, 1e-12)
    close(outcomes[0].adapted.params.flat, outcomes[1].adapted.params.flat, 1e-12)
    for one, other in zip(*gradients, strict=True):
        close(one, other, 1e-12)


def close(actual, expected, tolerance=1e-9):
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


# Sources of the rates (Table 6)


@pytest.mark.parametrize("per_layer", [True, False])
@pytest.mark.parametrize("per_step", [True, False])
@pytest.mark.parametrize("source", [Generated, Learned])
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_rates_are_shared_as_configured(run_rule, sharing, rng, name, source, per_step, per_layer):
    options = {"alpha": Generated(0.1), "beta": Generated(0.1)}
    options[name] = source(0.1, per_step=per_step, per_layer=per_layer)
    adapted = run_rule(ALFA, generator_start="random", generator=rng, **options)
    expected = set()
    if source is Learned:
        expected.add("task")
    if not per_step:
        expected.add("step")
    if not per_layer:
        expected.add("layer")
    assert sharing(adapted, name) == expected
    other = "beta" if name == "alpha" else "alpha"
    assert sharing(adapted, other) == set()


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_constant_rate_is_the_constant(run_rule, name):
    adapted = run_rule(ALFA, **{name: Constant(0.7)})
    for rates in adapted.rates:
        assert getattr(rates, name).item() == 0.7


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_rate_for_all_steps_is_generated_at_the_first(perturb, draw, name):
    # With another seed, all of these few hidden units could be dead.
    generator = torch.Generator().manual_seed(0)
    rule = perturb(ALFA(LAYERS, **{name: Generated(per_step=False)}, generator=generator))
    which = ["alpha", "beta"].index(name)
    first, later = (draw(), draw()), (draw(), draw())
    at_first = rule.rates(0, *first)
    kept = rule.rates(1, *later, at_first.state)
    kept_longer = rule.rates(2, *later, kept.state)
    generated_later = rule.rates(1, *later).state
    assert torch.equal(kept.state[which], at_first.state[which])
    assert torch.equal(kept_longer.state[which], at_first.state[which])
    # The other rate is generated again.
    assert torch.equal(kept.state[1 - which], generated_later[1 - which])
    assert not torch.equal(generated_later[which], at_first.state[which])


def test_both_rates_can_be_generated_once(perturb, draw):
    once = Generated(per_step=False)
    rule = perturb(ALFA(LAYERS, alpha=once, beta=once))
    first = rule.rates(0, draw(), draw())
    later = rule.rates(1, draw(), draw(), first.state)
    assert torch.equal(later.alpha, first.alpha)
    assert torch.equal(later.beta, first.beta)


def test_rates_are_post_multipliers_times_generated_values(perturb, draw):
    rule = perturb(ALFA(LAYERS, num_steps=3))
    params, grads = draw(), draw()
    rates = rule.rates(1, params, grads)
    generated = generate(rule, rule.learning_state(params, grads))
    alpha1, beta1 = generated[:, :NUM_LAYERS], generated[:, NUM_LAYERS:]
    close(rates.alpha, rule.alpha0.values[1] * alpha1, 1e-14)
    close(rates.beta, 1 - rule.beta0.values[1] * beta1, 1e-14)
    close(rates.state[0], alpha1, 1e-14)
    close(rates.state[1], beta1, 1e-14)


def test_beta_is_read_as_an_amount_of_decay_or_as_a_factor(perturb, draw):
    params, grads = draw(), draw()
    decay = perturb(ALFA(LAYERS))
    factor = ALFA(LAYERS, beta_form="factor").double()
    factor.load_state_dict(decay.state_dict())
    of_decay, of_factor = (rule.rates(0, params, grads) for rule in (decay, factor))
    close(of_decay.beta, 1 - of_factor.beta, 1e-14)
    assert torch.equal(of_decay.alpha, of_factor.alpha)


# The learning state (Table 5)


def test_the_state_is_means_of_weights_then_of_gradients(perturb, draw):
    params, grads = draw(), draw()
    state = perturb(ALFA(LAYERS)).learning_state(params, grads)
    expected = [tensors[name].flatten(1).mean(1) for tensors in (params, grads) for name in LAYERS]
    close(state, torch.stack(expected, dim=1), 1e-14)


@pytest.mark.parametrize("part", ["weights", "gradients"])
def test_a_part_of_the_state_can_be_left_out(perturb, draw, part):
    rule = perturb(ALFA(LAYERS, state=[part]), 0.5)
    params, grads, other = draw(), draw(), draw()
    assert linears_of(rule)[0].in_features == NUM_LAYERS
    assert rule.learning_state(params, grads).shape == (2, NUM_LAYERS)
    rates = rule.rates(0, params, grads)
    of_other_weights = rule.rates(0, other, grads)
    of_other_gradients = rule.rates(0, params, other)
    ignored, seen = of_other_gradients, of_other_weights
    if part == "gradients":
        ignored, seen = seen, ignored
    assert torch.equal(ignored.alpha, rates.alpha)
    assert not torch.equal(seen.alpha, rates.alpha)


def test_the_whole_state_sees_weights_and_gradients(perturb, draw):
    rule = perturb(ALFA(LAYERS), 0.5)
    params, grads, other = draw(), draw(), draw()
    assert linears_of(rule)[0].in_features == 2 * NUM_LAYERS
    rates = rule.rates(0, params, grads)
    assert not torch.equal(rule.rates(0, other, grads).alpha, rates.alpha)
    assert not torch.equal(rule.rates(0, params, other).alpha, rates.alpha)


# Size and initial values


@pytest.mark.parametrize(("hidden", "num_layers"), [([5, 4], 6), ([3, 4, 2, 5], 10)])
@pytest.mark.parametrize("num_steps", [1, 5])
def test_number_of_meta_parameters_beyond_maml(hidden, num_layers, num_steps):
    model = MLP((2,), 3, hidden=hidden)
    layers = LearnedInit(model).layers
    assert len(layers) == num_layers
    rule = ALFA(layers, num_steps=num_steps)
    own_decay = ALFA(layers, num_steps=num_steps, per_parameter_decay=True)
    # The paper's 2SN + 12N^2, and the biases of three layers of 2N.
    expected = 2 * num_steps * num_layers + 12 * num_layers**2 + 6 * num_layers
    assert sum(p.numel() for p in rule.parameters()) == expected
    num_weights = sum(p.numel() for p in model.parameters())
    assert sum(p.numel() for p in own_decay.parameters()) == expected + num_weights


@pytest.mark.parametrize(
    ("name", "depth", "form", "state_gradient", "beta0"),
    [
        ("default", 3, "decay", "weights", 5e-6),
        ("paper", 3, "factor", "full", 1.0),
        ("published-code", 2, "decay", "weights", 5e-6),
    ],
)
def test_presets(name, depth, form, state_gradient, beta0):
    rule = ALFA.preset(name, LAYERS, num_steps=4)
    assert len(linears_of(rule)) == depth
    assert all(linear.out_features == 2 * NUM_LAYERS for linear in linears_of(rule))
    assert rule.weight_factor.form == form
    assert rule.state_gradient == state_gradient
    assert rule.state == ("weights", "gradients")
    assert (rule.alpha0.values == torch.tensor(0.01)).all()
    assert (rule.beta0.values == torch.tensor(beta0)).all()
    assert rule.alpha0.values.shape == rule.beta0.values.shape == (4, NUM_LAYERS)


def test_presets_can_be_changed():
    rule = ALFA.preset("published-code", LAYERS, generator_depth=4, state=["gradients"])
    assert len(linears_of(rule)) == 4
    assert rule.state == ("gradients",)
    assert rule.weight_factor.form == "decay"


def test_presets_differ_in_how_the_generator_starts():
    def last_bias(name):
        bias = linears_of(ALFA.preset(name, LAYERS, generator=torch.Generator().manual_seed(3)))
        return bias[-1].bias.detach()

    assert (last_bias("default") == 1).all()
    assert (last_bias("paper")[NUM_LAYERS:] == 1).all()
    assert (last_bias("paper")[:NUM_LAYERS] != 1).all()
    assert (last_bias("published-code") != 1).all()


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_identity_start_generates_values_near_one(make_mlp, make_episode, rng, depth):
    model, episode = make_mlp(hidden=[40, 40]), make_episode()
    init = LearnedInit(model)
    rule = ALFA(init.layers, generator_depth=depth, generator=rng).double()
    adapted = adapt(model, episode.support_x, episode.support_y, init=init, rule=rule, loss=mse)
    for rates in adapted.rates:
        assert all((values - 1).abs().max() < 0.1 for values in rates.state)


def test_the_random_start_generates_values_of_either_sign(draw, rng):
    rule = ALFA(LAYERS, generator_start="random", generator=rng).double()
    generated = torch.cat(rule.rates(0, draw(50), draw(50)).state)
    assert generated.abs().max() < 1
    assert generated.min() < 0 < generated.max()


def test_weights_are_drawn_from_the_given_generator():
    def draw_rule(seed):
        return list(ALFA(LAYERS, generator=torch.Generator().manual_seed(seed)).parameters())

    def same(one, other):
        return all(torch.equal(p, q) for p, q in zip(one, other, strict=True))

    assert same(draw_rule(1), draw_rule(1))
    assert not same(draw_rule(1), draw_rule(2))


# Beyond the steps of training


def test_steps_beyond_the_last_use_its_post_multipliers(perturb, draw):
    rule = perturb(ALFA(LAYERS, num_steps=2))
    params, grads = draw(), draw()
    last = rule.rates(1, params, grads)
    with pytest.warns(AlfaWarning, match="inner step 6 is beyond the 2 steps") as record:
        beyond = rule.rates(5, params, grads)
    assert torch.equal(beyond.alpha, last.alpha)
    assert torch.equal(beyond.beta, last.beta)
    assert len(record) == 1  # for both tables together
    rule.rates(6, params, grads)  # a second warning would be an error


def test_a_rule_warns_once(make_mlp, make_episode):
    model, episode = make_mlp(), make_episode()
    init = LearnedInit(model)
    rule = ALFA(init.layers, num_steps=2, beta=Constant(1.0)).double()
    learner = Learner(model, init=init, rule=rule, loss=mse, num_steps=5)
    with pytest.warns(AlfaWarning) as record:
        learner(episode)
    assert len(record) == 1
    learner(episode)


# Invalid arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state": ["weight"]}, r"`state` must be a list .* got \['weight'\]"),
        ({"state": "weights"}, "`state` must be a list of 'weights'.* got 'weights'"),
        ({"state": []}, r"`state` must be a list of 'weights', 'gradients', or both, .* got \[\]"),
        ({"state": ["weights", "weights"]}, "once each"),
        ({"state_gradient": "ful"}, "`state_gradient` is 'ful'.*Did you mean 'full'"),
        ({"generator_start": "identiy"}, "`generator_start`.*Did you mean 'identity'"),
        ({"beta_form": "factors"}, "`beta_form` is 'factors'.*Did you mean 'factor'"),
        ({"generator_depth": 0}, "`generator_depth` must be at least 1, got 0"),
        ({"alpha": Constant(0.1), "beta": Learned()}, "neither `alpha` nor `beta` is generated"),
        (
            {"per_parameter_decay": True, "beta_form": "factor"},
            "`per_parameter_decay` needs `beta_form` 'decay'",
        ),
        ({"per_parameter_decay": True, "beta": Constant(1.0)}, "`per_parameter_decay` needs"),
    ],
)
def test_invalid_arguments_are_rejected(options, message):
    with pytest.raises(ConfigError, match=message):
        ALFA(LAYERS, **options)


def test_a_misspelled_preset_gets_a_hint():
    with pytest.raises(ConfigError, match=r"`preset` is 'papers'.*Did you mean 'paper'"):
        ALFA.preset("papers", LAYERS)


# Paths of the outer gradient


def twin_losses(model, rule, episode, *, num_steps, order, state_gradient):
    """Compute the query losses in plain torch, task by task and layer by layer."""
    names = list(rule.layers)
    losses = []
    for task in range(episode.num_tasks):
        theta = list(model.parameters())
        for step in range(num_steps):
            at = theta if order == "second" else [w.detach().requires_grad_() for w in theta]
            outputs = plain_mlp(at, episode.support_x[task])
            loss = F.mse_loss(outputs, episode.support_y[task])
            grads = torch.autograd.grad(loss, at, create_graph=order == "second")
            if order == "first":
                grads = [grad.detach() for grad in grads]
            weight_means = torch.stack([weight.mean() for weight in theta])
            grad_means = torch.stack([grad.mean() for grad in grads])
            if state_gradient == "none":
                weight_means = weight_means.detach()
            if state_gradient in ("none", "weights"):
                grad_means = grad_means.detach()
            generated = generate(rule, torch.cat([weight_means, grad_means]))
            updated = []
            for layer in range(len(names)):
                alpha = rule.alpha0.values[step, layer] * generated[layer]
                beta = 1 - rule.beta0.values[step, layer] * generated[len(names) + layer]
                updated.append(beta * theta[layer] - alpha * grads[layer])
            theta = updated
        losses.append(F.mse_loss(plain_mlp(theta, episode.query_x[task]), episode.query_y[task]))
    return torch.stack(losses)


def plain_mlp(theta, x):
    for number in range(0, len(theta), 2):
        x = F.linear(F.relu(x) if number else x, theta[number], theta[number + 1])
    return x


@pytest.mark.parametrize("order", ["second", "first"])
@pytest.mark.parametrize("state_gradient", ["full", "weights", "none"])
def test_the_outer_gradient_follows_state_gradient(
    make_mlp, make_episode, perturb, rng, meta_gradients, backend, state_gradient, order
):
    model, episode = make_mlp(), make_episode(num_tasks=3)
    init = LearnedInit(model)
    options = {"alpha": Generated(0.3), "beta": Generated(0.1), "generator_start": "random"}
    rule = perturb(
        ALFA(init.layers, num_steps=3, state_gradient=state_gradient, generator=rng, **options)
    )
    learner = Learner(model, init=init, rule=rule, loss=mse, num_steps=3, order=order)
    loss, grads = meta_gradients(learner, episode)
    twin = twin_losses(
        model, rule, episode, num_steps=3, order=order, state_gradient=state_gradient
    ).mean()
    expected = torch.autograd.grad(twin, list(learner.meta_parameters()))
    close(loss, twin.detach())
    for grad, wanted in zip(grads, expected, strict=True):
        assert wanted.abs().max() > 0
        close(grad, wanted)


def test_state_gradients_differ(make_mlp, make_episode, perturb, meta_gradients):
    model, episode = make_mlp(), make_episode()
    init = LearnedInit(model)
    gradients = {}
    state = None
    for state_gradient in ("full", "weights", "none"):
        rule = ALFA(init.layers, num_steps=3, state_gradient=state_gradient).double()
        state = state or perturb(rule, 0.1).state_dict()
        rule.load_state_dict(state)
        learner = Learner(model, init=init, rule=rule, loss=mse, num_steps=3)
        gradients[state_gradient] = meta_gradients(learner, episode)[1][0]
    assert (gradients["full"] - gradients["weights"]).abs().max() > 1e-6
    assert (gradients["weights"] - gradients["none"]).abs().max() > 1e-6


# Finite differences


GRADCHECKED = {
    "sgd": {"learning_rate": 0.3, "weight_decay": 0.1},
    "learned": {"alpha": Learned(0.3), "beta": Learned(0.1)},
    "alfa": {"state_gradient": "full", "alpha": Generated(0.3), "beta": Generated(0.1)},
    "alfa with own decays": {
        "state_gradient": "full",
        "alpha": Generated(0.3, per_step=False),
        "beta": Generated(0.5, per_layer=False),
        "per_parameter_decay": True,
        "decay_start": 0.2,
    },
}


@pytest.mark.parametrize(
    ("name", "init"),
    [
        *product(("sgd", "learned"), ("learned", "fixed", "attenuated")),
        *(("alfa", "attenuated"), ("alfa with own decays", "fixed")),
    ],
)
def test_meta_gradient_passes_gradcheck(make_learner, make_episode, perturb, name, init):
    rule, options = name.split()[0], GRADCHECKED[name]
    # Smooth, since finite differences fail at the kinks of ReLU.
    model = perturb(torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Tanh()), 0.5)
    options = {**options, "num_steps": 2} if rule != "sgd" else options
    learner = make_learner(model, init=init, rule=rule, rule_options=options, num_steps=2)
    episode = make_episode(num_out=1)
    parameters = tuple(learner.meta_parameters())
    if (init, rule) == ("fixed", "sgd"):
        assert not parameters
        return
    assert torch.autograd.gradcheck(lambda *_: learner(episode).query_losses, parameters)


def test_layers_can_be_any_mapping():
    one, other = ALFA(LAYERS), ALFA(Layers(LAYERS))
    assert dict(one.layers) == dict(other.layers) == LAYERS


def test_start_values_can_be_integers():
    rule = ALFA({"w": torch.Size([3])}, beta_form="factor", beta=Generated(start=1))
    assert rule.beta0.values.dtype == torch.float32
    ALFA({"w": torch.Size([3])}, per_parameter_decay=True, decay_start=1)


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_rate_that_is_a_number_is_rejected(name):
    kinds = r"Constant\(value\) or Learned\(\) or Generated\(\) of alfa.rules"
    with pytest.raises(ConfigError, match=rf"`{name}` must be {kinds}.*, got 0.1"):
        ALFA({"w": torch.Size([2])}, **{name: 0.1})
