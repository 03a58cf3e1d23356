import pytest
import torch

from alfa.errors import ConfigError
from alfa.ops import _update, apply_rates, expand_to_parameters, layer_means
from alfa.types import Layers, Params, Rates

SHAPES = {"a.weight": (3, 2), "a.bias": (3,), "scale": (1,), "kernel": (2, 1, 2, 2)}
NUM_TASKS, NUM_LAYERS = 3, len(SHAPES)


@pytest.fixture(params=["by a matrix", "compiled", "layer by layer"])
def way(request, monkeypatch):
    """Select the implementation that reduces and expands layers."""
    largest = 10**9 if request.param == "by a matrix" else 0
    monkeypatch.setattr(_update, "_LARGEST_MATRIX", largest)
    if request.param == "layer by layer":
        monkeypatch.setattr(_update.compiled, "numba_available", lambda: False)
    return request.param


@pytest.fixture
def make_params(randn):
    def make(num_tasks=NUM_TASKS):
        named = {name: randn(num_tasks, *shape) for name, shape in SHAPES.items()}
        params = Params.of(named)
        return params.like(params.flat.detach().requires_grad_())

    return make


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def rate_of(rate, task, layer, name):
    """Return the rate of one layer of one task, as `Rates` defines it."""
    if isinstance(rate, torch.Tensor):
        return rate.expand(NUM_TASKS, NUM_LAYERS)[task, layer]
    return rate[name].expand(NUM_TASKS, *SHAPES[name])[task]


def twin(params, grads, rates):
    rows = []
    for task in range(NUM_TASKS):
        row = [
            rate_of(rates.beta, task, layer, name) * params[name][task]
            - rate_of(rates.alpha, task, layer, name) * grads[name][task]
            for layer, name in enumerate(SHAPES)
        ]
        rows.append(torch.cat([part.reshape(-1) for part in row]))
    return torch.stack(rows)


def leaves_of(rate):
    return [rate] if isinstance(rate, torch.Tensor) else list(rate.values())


def element_wise(randn, num_tasks):
    return {name: randn(num_tasks, *shape).requires_grad_() for name, shape in SHAPES.items()}


RATES = {
    "a number": lambda randn: randn(()).requires_grad_(),
    "one for all": lambda randn: randn(1).requires_grad_(),
    "per layer": lambda randn: randn(NUM_LAYERS).requires_grad_(),
    "per task": lambda randn: randn(NUM_TASKS, 1).requires_grad_(),
    "per task and layer": lambda randn: randn(NUM_TASKS, NUM_LAYERS).requires_grad_(),
    "per value": lambda randn: element_wise(randn, 1),
    "per task and value": lambda randn: element_wise(randn, NUM_TASKS),
}


@pytest.mark.parametrize("beta", RATES)
@pytest.mark.parametrize("alpha", RATES)
def test_update_is_a_loop_over_tasks_and_layers(make_params, randn, way, alpha, beta):
    params, grads = make_params(), make_params()
    rates = Rates(RATES[alpha](randn), RATES[beta](randn))
    leaves = [params.flat, grads.flat, *leaves_of(rates.alpha), *leaves_of(rates.beta)]
    updated, expected = apply_rates(params, grads, rates).flat, twin(params, grads, rates)
    close(updated, expected)
    direction = randn(*updated.shape)
    actual_grads = torch.autograd.grad((updated * direction).sum(), leaves)
    expected_grads = torch.autograd.grad((expected * direction).sum(), leaves)
    for actual, wanted in zip(actual_grads, expected_grads, strict=True):
        close(actual, wanted)


def test_update_takes_rates_that_are_parameters_of_all_layers(make_params, randn, way):
    params, grads, beta = make_params(), make_params(), make_params(num_tasks=1)
    updated = apply_rates(params, grads, Rates(randn(NUM_LAYERS), beta)).flat
    alpha_only = apply_rates(params, grads, Rates(torch.zeros(()), beta)).flat
    close(alpha_only, beta.flat * params.flat)
    assert not torch.equal(updated, alpha_only)


def test_update_passes_gradcheck(make_params, randn, way):
    params, grads = make_params(), make_params()
    alpha = randn(NUM_TASKS, NUM_LAYERS).requires_grad_()
    beta = randn(NUM_LAYERS).requires_grad_()

    def update(alpha, beta, theta, grad):
        return apply_rates(params.like(theta), grads.like(grad), Rates(alpha, beta)).flat

    assert torch.autograd.gradcheck(update, (alpha, beta, params.flat, grads.flat))


def test_update_takes_gradients_that_are_not_contiguous(make_params, randn, way):
    params, grads = make_params(), make_params()
    rates = Rates(randn(NUM_TASKS, NUM_LAYERS).requires_grad_(), randn(NUM_LAYERS))
    leaves = [params.flat, grads.flat, rates.alpha]
    direction = randn(params.flat.shape[1], NUM_TASKS)
    actual = torch.autograd.grad(apply_rates(params, grads, rates).flat.t(), leaves, direction)
    expected = torch.autograd.grad(twin(params, grads, rates).t(), leaves, direction)
    for one, other in zip(actual, expected, strict=True):
        close(one, other)


def test_update_takes_a_layer_that_is_one_number(randn, way):
    layers = Layers({"w": torch.Size([2]), "scale": torch.Size([])})
    params, grads = (Params(randn(NUM_TASKS, 3), layers) for _ in range(2))
    beta = {"w": randn(NUM_TASKS, 2), "scale": randn(NUM_TASKS)}
    updated = apply_rates(params, grads, Rates(torch.tensor(0.5), beta))
    close(updated["w"], beta["w"] * params["w"] - 0.5 * grads["w"])
    close(updated["scale"], beta["scale"] * params["scale"] - 0.5 * grads["scale"])


@pytest.mark.parametrize("beta", ["a number", "per task and layer", "per value"])
@pytest.mark.parametrize("alpha", RATES)
def test_a_direction_replaces_the_gradient(make_params, randn, way, alpha, beta):
    params, grads, direction = make_params(), make_params(), make_params()
    rates = Rates(RATES[alpha](randn), RATES[beta](randn), direction)
    leaves = [params.flat, direction.flat, *leaves_of(rates.alpha), *leaves_of(rates.beta)]
    updated, expected = apply_rates(params, grads, rates).flat, twin(params, direction, rates)
    close(updated, expected)
    d = randn(*updated.shape)
    actual_grads = torch.autograd.grad((updated * d).sum(), leaves, retain_graph=True)
    expected_grads = torch.autograd.grad((expected * d).sum(), leaves)
    for actual, wanted in zip(actual_grads, expected_grads, strict=True):
        close(actual, wanted)
    (through,) = torch.autograd.grad((updated * d).sum(), [grads.flat], allow_unused=True)
    assert through is None


@pytest.mark.parametrize("alpha", ["per task and layer", "per task and value"])
def test_second_derivatives_flow_through_the_direction(make_params, randn, way, alpha):
    theta, curvature = make_params(), randn(1, sum(Layers(SHAPES).sizes)).requires_grad_()
    rate = RATES[alpha](randn)
    leaves = [theta.flat, curvature, *leaves_of(rate)]
    found = []
    for is_plain in (False, True):
        # The gradient of sum(sin^2), and a direction that is not linear in it
        loss = theta.flat.sin().square().sum()
        (g,) = torch.autograd.grad(loss, theta.flat, create_graph=True)
        direction = theta.like(curvature * g + g.square())
        rates = Rates(rate, torch.tensor(0.9).double(), direction)
        if is_plain:
            updated = twin(theta, direction, rates)
        else:
            updated = apply_rates(theta, theta.like(g), rates).flat
        found.append(torch.autograd.grad(updated.exp().sum(), leaves))
    for actual, wanted in zip(*found, strict=True):
        assert wanted.abs().max() > 0
        close(actual, wanted)


def test_one_direction_may_be_expanded_to_all_tasks(make_params, randn, way):
    params, row = make_params(), make_params(num_tasks=1)
    alpha, beta = randn(NUM_TASKS, NUM_LAYERS), randn(NUM_LAYERS)
    expanded = row.like(row.flat.expand(NUM_TASKS, -1))
    updated = apply_rates(params, params, Rates(alpha, beta, expanded)).flat
    expected = twin(params, expanded, Rates(alpha, beta))
    close(updated, expected)
    (actual,) = torch.autograd.grad(updated.sin().sum(), row.flat)
    (wanted,) = torch.autograd.grad(expected.sin().sum(), row.flat)
    close(actual, wanted)


@pytest.mark.parametrize(
    ("direction", "found"),
    [
        (lambda flat, layers: flat, r"got tensor\("),
        (lambda flat, layers: {"a.weight": flat}, r"got \{'a\.weight': tensor\("),
        (
            lambda flat, layers: Params(flat, Layers({"all": flat.shape[1:]})),
            r"got \{'all': torch\.Size\(\[18\]\)\} with \[3, 18\]",
        ),
        (
            lambda flat, layers: Params(flat, Layers(dict(reversed(list(layers.items()))))),
            r"got \{'kernel': .* with \[3, 18\]",
        ),
        (lambda flat, layers: Params(flat[:1], layers), r"got \{'a\.weight': .* with \[1, 18\]"),
        (
            lambda flat, layers: Params(flat[:, :-1], layers),
            r"got \{'a\.weight': .* with \[3, 17\]",
        ),
    ],
    ids=["tensor", "mapping", "other layers", "other order", "one task", "too few values"],
)
def test_an_invalid_direction_is_an_error(make_params, way, direction, found):
    params, one = make_params(), torch.ones((), dtype=torch.float64)
    rates = Rates(one, one, direction(params.flat.detach(), params.layers))
    message = (
        r"^the direction must be a Params with the layers \{'a\.weight': .* and values \[3, 18\], "
    )
    with pytest.raises(ConfigError, match=message + found):
        apply_rates(params, params, rates)


@pytest.mark.parametrize(
    ("rate", "sentence"),
    [
        (0.01, r"^alpha is 0\.01, but a rule must return tensors: .* here \[3, 4\]"),
        (torch.ones(NUM_TASKS), r"^alpha has the shape \[3\], which .* to \[3, 4\]"),
        (torch.ones(NUM_LAYERS, NUM_TASKS), r"^alpha has the shape \[4, 3\]"),
        (torch.ones(1, NUM_TASKS, NUM_LAYERS), r"^alpha has the shape \[1, 3, 4\]"),
        (dict.fromkeys(SHAPES, 0.5), r"^alpha of a\.weight is 0\.5, but a rule must return"),
        ({"a.weight": torch.ones(())}, r"no rate for a\.bias, scale, kernel; a rule must"),
        (
            {name: torch.ones(2) for name in SHAPES},
            r"^alpha of a\.bias has the shape \[2\], which does not broadcast to \[3, 3\]",
        ),
    ],
    ids=[
        "number",
        "tasks",
        "the wrong way round",
        "one dimension more",
        "numbers",
        "missing",
        "by layers",
    ],
)
def test_what_is_no_rate_is_a_sentence(make_params, randn, way, rate, sentence):
    params = make_params()
    rates = Rates(rate, torch.ones(()))
    with pytest.raises(ConfigError, match=sentence):
        apply_rates(params, params.like(randn(*params.flat.shape)), rates)


def test_rates_by_layers_in_another_order_are_those_of_their_layers(make_params, randn, way):
    params = make_params()
    grads = params.like(randn(*params.flat.shape))
    by_layers = {name: randn(NUM_TASKS, *shape) for name, shape in SHAPES.items()}
    other_order = Params.of(dict(reversed(by_layers.items())))
    found = apply_rates(params, grads, Rates(other_order, torch.ones((), dtype=torch.float64)))
    for name in SHAPES:
        close(found[name], params[name] - by_layers[name] * grads[name])


def test_layer_means_are_means_of_layers(make_params, randn, way):
    params = make_params()
    means = layer_means(params)
    expected = torch.stack(
        [torch.stack([params[name][task].mean() for name in SHAPES]) for task in range(NUM_TASKS)]
    )
    close(means, expected)
    direction = randn(NUM_TASKS, NUM_LAYERS)
    (actual,) = torch.autograd.grad((means * direction).sum(), params.flat)
    (wanted,) = torch.autograd.grad((expected * direction).sum(), params.flat)
    close(actual, wanted)


def test_the_mean_of_a_layer_without_values_is_zero(randn, way):
    params = Params.of({"w": randn(NUM_TASKS, 3), "none": randn(NUM_TASKS, 0, 2)})
    params.flat.requires_grad_()
    means = layer_means(params)
    close(means, torch.stack([params["w"].mean(1), torch.zeros(NUM_TASKS)], dim=1).to(means))
    (grad,) = torch.autograd.grad(means.sum(), params.flat)
    close(grad, torch.full_like(grad, 1 / 3))


def test_layer_means_of_one_row_for_all_tasks(randn, way):
    row = Params.of({name: randn(1, *shape) for name, shape in SHAPES.items()})
    expanded = row.like(row.flat.expand(NUM_TASKS, -1))
    close(layer_means(expanded), layer_means(row).expand(NUM_TASKS, -1))


def test_layer_means_can_be_differentiated_twice(make_params, way):
    params = make_params()
    assert torch.autograd.gradgradcheck(
        lambda flat: layer_means(params.like(flat)).square(), (params.flat,)
    )


def test_spread_repeats_each_value_over_its_layer(make_params, randn, way):
    layers = make_params().layers
    values = randn(NUM_TASKS, NUM_LAYERS)
    expected = torch.cat(
        [values[:, i : i + 1].expand(NUM_TASKS, size) for i, size in enumerate(layers.sizes)],
        dim=1,
    )
    assert torch.equal(expand_to_parameters(values, layers), expected)
    assert torch.equal(expand_to_parameters(values[0], layers), expected[0])


def test_spread_repeats_one_value_over_all_layers(make_params, randn, way):
    layers = make_params().layers
    value = randn(NUM_TASKS, 1)
    wanted = value.expand(NUM_TASKS, sum(layers.sizes))
    assert torch.equal(expand_to_parameters(value, layers).expand_as(wanted), wanted)


def test_spread_leaves_a_number_alone(make_params, randn):
    number = randn(())
    assert expand_to_parameters(number, make_params().layers) is number


def test_spread_sums_gradients_over_a_layer(make_params, randn, way):
    layers = make_params().layers
    values = randn(NUM_LAYERS).requires_grad_()
    expand_to_parameters(values, layers).sum().backward()
    assert values.grad.tolist() == [float(size) for size in layers.sizes]


def test_the_two_ways_agree_at_a_size_in_between(make_params, randn, monkeypatch):
    params, values = make_params(), randn(NUM_TASKS, NUM_LAYERS)
    num_entries = NUM_LAYERS * sum(params.layers.sizes)
    results = []
    for largest in (num_entries, num_entries - 1):
        monkeypatch.setattr(_update, "_LARGEST_MATRIX", largest)
        assert _update._small(params.layers) == (largest == num_entries)
        results.append((layer_means(params), expand_to_parameters(values, params.layers)))
    for one, other in zip(*results, strict=True):
        close(one, other)
