import numpy as np
import pytest
import torch

from alfa.types import Episode, Layers, Params, Rates

SHAPES = {"w": torch.Size([3, 2]), "b": torch.Size([3]), "kernel": torch.Size([2, 1, 2])}


@pytest.fixture
def tensors(randn):
    return {name: randn(4, *shape) for name, shape in SHAPES.items()}


# Layers


def test_layers_are_a_mapping_in_order():
    layers = Layers(SHAPES)
    assert dict(layers) == SHAPES
    assert list(layers) == list(SHAPES)
    assert len(layers) == 3
    assert "kernel" in repr(layers)


def test_layers_have_sizes_and_bounds():
    layers = Layers(SHAPES)
    assert layers.sizes == [6, 3, 4]
    assert np.array_equal(layers.bounds, [0, 6, 9, 13])
    assert layers.index(torch.device("cpu")).tolist() == [0] * 6 + [1] * 3 + [2] * 4


def test_a_scalar_layer_has_size_one():
    assert Layers({"scale": torch.Size([])}).sizes == [1]


# Params


def test_views_equal_the_original_tensors(tensors):
    params = Params.of(tensors)
    assert params.num_tasks == 4
    assert list(params) == list(SHAPES)
    assert dict(params.layers) == SHAPES
    for name, tensor in tensors.items():
        assert torch.equal(params[name], tensor)


def test_a_row_concatenates_all_layers(tensors):
    flat = Params.of(tensors).flat
    assert flat.shape == (4, 13)
    for task in range(4):
        expected = torch.cat([tensor[task].flatten() for tensor in tensors.values()])
        assert torch.equal(flat[task], expected)


def test_views_made_without_gradient_are_not_reused(tensors):
    params = Params.of({name: tensor.requires_grad_() for name, tensor in tensors.items()})
    with torch.no_grad():
        assert params["w"].shape == (4, 3, 2)
    (grad,) = torch.autograd.grad(params["w"].sum(), params.flat)
    assert grad.sum() == 4 * 6
    # These views are cached.
    assert params["w"] is params["w"]


def test_the_mean_of_a_layer_without_values_is_zero():
    layers = Layers({"w": torch.Size([2]), "none": torch.Size([0, 3])})
    averages = layers.averages(torch.device("cpu"), torch.float64)
    assert (torch.tensor([[1.0, 3.0]], dtype=torch.float64) @ averages).tolist() == [[2, 0]]


def test_views_see_the_row(tensors):
    params = Params.of(tensors)
    with torch.no_grad():
        params.flat.mul_(2)
    for name, tensor in tensors.items():
        assert torch.equal(params[name], 2 * tensor)


def test_gradients_flow_through_views(tensors, randn):
    row = Params.of(tensors)
    params = row.like(row.flat.clone().requires_grad_())
    direction = Params.of({name: randn(4, *shape) for name, shape in SHAPES.items()})
    sum((params[name] * direction[name]).sum() for name in params).backward()
    assert torch.equal(params.flat.grad, direction.flat)


def test_gradients_flow_into_the_tensors_of_a_row(tensors, randn):
    leaves = {name: tensor.requires_grad_() for name, tensor in tensors.items()}
    direction = randn(4, 13)
    (Params.of(leaves).flat * direction).sum().backward()
    expected = Params(direction, Layers(SHAPES))
    for name, leaf in leaves.items():
        assert torch.equal(leaf.grad, expected[name])


def test_gradients_flow_through_one_row_for_all_tasks(randn):
    row = randn(1, 13).requires_grad_()
    params = Params(row.expand(4, -1), Layers(SHAPES))
    params["b"].sum().backward()
    assert row.grad.tolist() == [[0.0] * 6 + [4.0] * 3 + [0.0] * 4]


def test_params_of_params_are_themselves(tensors):
    params = Params.of(tensors)
    assert Params.of(params) is params


def test_like_has_other_values_of_the_same_layers(tensors, randn):
    params = Params.of(tensors)
    _ = params["w"]
    flat = randn(2, 13)
    other = params.like(flat)
    assert other.layers is params.layers
    assert other.num_tasks == 2
    assert torch.equal(other["w"], flat[:, :6].reshape(2, 3, 2))


def test_a_scalar_layer_has_one_value_per_task(randn):
    tensors = {"scale": randn(4), "b": randn(4, 2)}
    params = Params.of(tensors)
    assert params["scale"].shape == (4,)
    for name, tensor in tensors.items():
        assert torch.equal(params[name], tensor)


def test_an_unknown_layer_is_a_key_error(tensors):
    params = Params.of(tensors)
    assert "weight" not in params
    with pytest.raises(KeyError, match="weight"):
        params["weight"]


# Episode


def test_moving_an_episode_changes_floating_point_only(randn):
    labels = torch.zeros(2, 3, dtype=torch.long)
    episode = Episode(randn(2, 3, 1), labels, randn(2, 3, 1), labels)
    moved = episode.to("cpu", torch.float32)
    assert episode.num_tasks == moved.num_tasks == 2
    assert moved.support_x.dtype == moved.query_x.dtype == torch.float32
    assert moved.support_y.dtype == moved.query_y.dtype == torch.long
    assert torch.equal(moved.support_x, episode.support_x.float())
    assert episode.to("cpu").support_x.dtype == torch.float64
    assert episode.to(dtype=torch.float32).query_x.dtype == torch.float32


@pytest.mark.parametrize("tasks", [(), (1,), (3,)])
def test_rates_of_weights_are_averaged_over_each_layer(randn, tasks):
    layers = Layers({"w": torch.Size([4, 2]), "b": torch.Size([4]), "scale": torch.Size([])})
    alpha = {name: randn(1, *tasks, *shape)[0] for name, shape in layers.items()}
    # Weights may also share a rate.
    beta = {"w": randn(4, 1), "b": randn(1), "scale": randn(3)}
    found_alpha, found_beta = Rates(alpha, beta).per_layer(layers, 3)
    for column, name in enumerate(layers):
        for task in range(3):
            rate = alpha[name][min(task, len(alpha[name]) - 1)] if tasks else alpha[name]
            assert found_alpha[task, column] == pytest.approx(float(rate.mean()))
    assert found_beta[0, :2].tolist() == pytest.approx([float(beta[n].mean()) for n in ("w", "b")])
    assert found_beta[:, 2].tolist() == beta["scale"].tolist()
