import pytest
import torch

from alfa.errors import AlfaWarning, ConfigError
from alfa.rules import Constant, Generated, Learned, LearnedRates
from alfa.types import Params

LAYERS = {"w": torch.Size([3, 2]), "b": torch.Size([3])}


@pytest.fixture
def theta(randn):
    return Params.of({name: randn(2, *shape) for name, shape in LAYERS.items()})


@pytest.mark.parametrize("per_layer", [True, False])
@pytest.mark.parametrize("per_step", [True, False])
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_learned_rates_are_shared_as_configured(run_rule, sharing, name, per_step, per_layer):
    adapted = run_rule(LearnedRates, **{name: Learned(0.1, per_step, per_layer)})
    expected = {"task"}
    if not per_step:
        expected.add("step")
    if not per_layer:
        expected.add("layer")
    assert sharing(adapted, name) == expected


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_constant_rates_are_the_constant(run_rule, name):
    adapted = run_rule(LearnedRates, **{name: Constant(0.7)})
    for rates in adapted.rates:
        assert getattr(rates, name).item() == 0.7
        assert not getattr(rates, name).requires_grad


@pytest.mark.parametrize("per_layer", [True, False])
@pytest.mark.parametrize("per_step", [True, False])
def test_tables_hold_one_value_for_each_step_and_layer(per_step, per_layer):
    rate = Learned(per_step=per_step, per_layer=per_layer)
    rule = LearnedRates(LAYERS, num_steps=4, alpha=rate, beta=Constant(1.0))
    expected = (4 if per_step else 1) * (2 if per_layer else 1)
    assert sum(p.numel() for p in rule.parameters()) == expected


def test_beta_is_read_as_an_amount_of_decay_or_as_a_factor(theta):
    def beta(form):
        rule = LearnedRates(LAYERS, beta=Learned(0.25), beta_form=form).double()
        return rule.rates(0, theta, theta).beta.tolist()

    assert beta("decay") == [0.75, 0.75]
    assert beta("factor") == [0.25, 0.25]


@pytest.mark.parametrize("form", ["decay", "factor"])
def test_a_constant_beta_is_the_factor_itself(theta, form):
    rule = LearnedRates(LAYERS, beta=Constant(0.9), beta_form=form)
    assert rule.rates(0, theta, theta).beta.item() == 0.9


def test_rates_start_as_gradient_descent_with_weight_decay(theta):
    for form, beta in [("decay", 1 - 5e-6), ("factor", 1.0)]:
        rates = LearnedRates(LAYERS, beta_form=form).double().rates(0, theta, theta)
        torch.testing.assert_close(rates.alpha, torch.full_like(rates.alpha, 0.01))
        torch.testing.assert_close(rates.beta, torch.full_like(rates.beta, beta))


def test_each_weight_can_have_its_decay(theta, perturb):
    rule = perturb(LearnedRates(LAYERS, per_parameter_decay=True, decay_start=0.1), 0.02)
    beta = rule.rates(1, theta, theta).beta
    decay = Params(rule.weight_factor.decay.unsqueeze(0), rule.layers)
    for layer, name in enumerate(LAYERS):
        expected = 1 - rule.beta0.values[1, layer] * decay[name]
        torch.testing.assert_close(beta[name], expected, rtol=0, atol=1e-15)


def test_per_parameter_decay_needs_an_amount_to_multiply():
    with pytest.raises(ConfigError, match="`per_parameter_decay` needs `beta_form` 'decay'"):
        LearnedRates(LAYERS, per_parameter_decay=True, beta_form="factor")
    with pytest.raises(ConfigError, match="`per_parameter_decay` needs"):
        LearnedRates(LAYERS, per_parameter_decay=True, beta=Constant(1.0))


def test_a_misspelled_beta_form_gets_a_hint():
    with pytest.raises(ConfigError, match=r"`beta_form` is 'decays'.*Did you mean 'decay'"):
        LearnedRates(LAYERS, beta_form="decays")


@pytest.mark.parametrize("num_steps", [1, 2])
def test_steps_beyond_the_last_use_its_rates_and_warn_once(theta, perturb, num_steps):
    rule = perturb(LearnedRates(LAYERS, num_steps=num_steps, beta=Constant(1.0)))
    last = rule.rates(num_steps - 1, theta, theta).alpha
    with pytest.warns(AlfaWarning, match="beyond") as record:
        beyond = [rule.rates(step, theta, theta).alpha for step in range(num_steps, num_steps + 3)]
    assert len(record) == 1
    for alpha in beyond:
        assert torch.equal(alpha, last)
    rule.rates(num_steps, theta, theta)  # a second warning would be an error


def test_rates_shared_by_all_steps_have_no_step_beyond(theta, perturb):
    rate = Learned(per_step=False)
    rule = perturb(LearnedRates(LAYERS, num_steps=2, alpha=rate, beta=rate))
    assert torch.equal(rule.rates(9, theta, theta).alpha, rule.rates(0, theta, theta).alpha)


@pytest.mark.parametrize("rate", [0.1, Generated()], ids=["a number", "generated"])
def test_other_sources_are_rejected(rate):
    message = r"`alpha` must be Constant\(value\) or Learned\(\) of alfa.rules, got "
    with pytest.raises(ConfigError, match=message):
        LearnedRates({"w": torch.Size([2])}, alpha=rate)
