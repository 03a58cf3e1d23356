import pytest
import torch
from torch import nn

from alfa.errors import ConfigError
from alfa.inits import LearnedInit
from alfa.models import MLP, MODELS, run_stacked
from alfa.ops import cross_entropy, mse, per_task
from alfa.types import Params


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def stack_of(model, num_tasks, randn):
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    return Params.of({name: randn(num_tasks, *shape) for name, shape in shapes.items()})


@pytest.mark.parametrize("hidden", [[], [4], [5, 3], [2, 3, 4]])
def test_forward_is_linear_layers_with_relu_between(make_mlp, randn, hidden):
    model = make_mlp(3, 2, hidden)
    sizes = [3, *hidden, 2]
    modules = []
    for number in range(1, len(sizes)):
        modules += [model.get_submodule(f"linear{number}"), nn.ReLU()]
    x = randn(7, 3)
    close(model(x), nn.Sequential(*modules[:-1])(x))


def test_inputs_are_flattened(rng, randn):
    model = MLP((2, 3), 4, hidden=[5], generator=rng).double()
    x = randn(7, 2, 3)
    close(model(x), model(x.flatten(1)))
    params = stack_of(model, 2, randn)
    stacked = randn(2, 7, 2, 3)
    close(model.stacked(params, stacked), model.stacked(params, stacked.flatten(2)))


def test_a_stack_runs_each_task_with_its_own_weights(make_mlp, randn):
    model = make_mlp()
    params, x = stack_of(model, 3, randn), randn(3, 5, 2)
    outputs = run_stacked(model, params, {}, x)
    for task in range(3):
        own = {name: params[name][task] for name in params}
        close(outputs[task], torch.func.functional_call(model, own, (x[task],)))


def test_the_order_of_named_parameters_is_irrelevant(make_mlp, randn):
    model = make_mlp()
    params, x = stack_of(model, 3, randn), randn(3, 5, 2)
    backwards = {name: params[name] for name in reversed(list(params))}
    close(model.stacked(backwards, x), model.stacked(params, x))


def test_shared_parameters_are_the_same_for_every_task(make_mlp, randn):
    model = make_mlp()
    init = LearnedInit(model, adapt="linear2.*")
    full, x = stack_of(model, 3, randn), randn(3, 5, 2)
    own = Params.of({name: full[name] for name in init.layers})
    outputs = run_stacked(model, own, init.shared(), x)
    for task in range(3):
        params = {name: own[name][task] for name in own}
        close(outputs[task], torch.func.functional_call(model, params, (x[task],)))


def test_fast_gradients_support_the_mean_squared_error_only(make_mlp, randn):
    model = make_mlp()
    params, x, y = stack_of(model, 2, randn), randn(2, 4, 2), randn(2, 4, 2)
    losses, gradients = model.support_gradients(params, {}, x, y, mse)
    close(losses, mse(model.stacked(params, x), y))
    assert gradients.layers is params.layers
    assert model.support_gradients(params, {}, x, y, cross_entropy) is None
    assert model.support_gradients(params, {}, x, y, per_task(nn.functional.mse_loss)) is None


def test_weights_start_xavier_uniform_and_biases_at_zero(rng):
    model = MLP((30,), 20, hidden=[50], generator=rng)
    for linear in (model.linear1, model.linear2):
        bound = (6 / (linear.in_features + linear.out_features)) ** 0.5
        assert linear.weight.abs().max() <= bound
        assert linear.weight.abs().max() > 0.95 * bound
        assert not linear.bias.any()


def test_weights_are_drawn_from_the_generator_given():
    def draw(seed):
        return MLP((2,), 1, generator=torch.Generator().manual_seed(seed)).linear1.weight

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))


def test_default_is_the_regressor_of_the_paper():
    assert MLP((1,), 1).sizes == (1, 40, 40, 1)
    assert MODELS.get("mlp") is MLP


def test_a_layer_without_units_is_an_error():
    with pytest.raises(ConfigError, match=r"`hidden` must be at least 1, got \[4, 0\]"):
        MLP((1,), 1, hidden=[4, 0])


def test_layers_in_another_order_give_the_same_outputs() -> None:
    generator = torch.Generator().manual_seed(0)
    model = MLP((2,), 1, hidden=[3], generator=generator)
    x = torch.randn(2, 5, 2, generator=generator)
    named = {name: p.detach().expand(2, *p.shape) for name, p in model.named_parameters()}
    turned = Params.of(dict(reversed(named.items())))
    assert torch.equal(model.stacked(turned, x), model.stacked(Params.of(named), x))


@pytest.mark.parametrize("adapted", [["linear1"], ["linear2.bias", "linear1"], ["linear3"]])
def test_fast_gradients_of_some_layers_equal_those_of_autograd(make_mlp, randn, adapted):
    """The gradients, and their derivatives in adapted and in shared parameters."""
    model = make_mlp(3, 2, [5, 4])
    chosen = {n: p for n, p in model.named_parameters() if n.startswith(tuple(adapted))}
    shared = {n: p for n, p in model.named_parameters() if n not in chosen}
    params = Params.of({name: randn(6, *p.shape) for name, p in chosen.items()})
    theta = params.flat.requires_grad_()
    x, y, weights = randn(6, 7, 3), randn(6, 7, 2), randn(*theta.shape)

    def derivatives(losses, grads):
        inputs = [theta, *shared.values()]
        found = torch.autograd.grad((grads.flat * weights).sum(), inputs, materialize_grads=True)
        return [losses.detach(), grads.flat.detach(), *found]

    losses, grads = model.support_gradients(params, shared, x, y, mse)
    assert list(grads) == list(params)
    plain = mse(run_stacked(model, params, shared, x), y)
    (flat,) = torch.autograd.grad(plain.sum(), theta, create_graph=True)
    expected = derivatives(plain, params.like(flat))
    for own, other in zip(derivatives(losses, grads), expected, strict=True):
        close(own, other)
