import functools
import re

import pytest
import torch
from torch.nn import functional as F

from alfa.errors import ConfigError
from alfa.ops import check_loss, cross_entropy, get_loss, mse, per_task


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 5), (3, 5, 1), (3, 4, 2), (1, 2, 3, 2)])
def test_mse_is_that_of_every_task(randn, shape):
    outputs, targets = randn(*shape), randn(*shape)
    expected = [F.mse_loss(outputs[t], targets[t]) for t in range(shape[0])]
    close(mse(outputs, targets), torch.stack(expected))


@pytest.mark.parametrize("num_classes", [1, 2, 5])
def test_cross_entropy_is_that_of_every_task(randn, rng, num_classes):
    outputs = randn(3, 4, num_classes)
    targets = torch.randint(num_classes, (3, 4), generator=rng)
    expected = [F.cross_entropy(outputs[t], targets[t]) for t in range(3)]
    close(cross_entropy(outputs, targets), torch.stack(expected))


def test_cross_entropy_of_as_many_examples_as_classes(randn):
    outputs, targets = randn(2, 3, 3), torch.tensor([[0, 0, 1], [2, 1, 1]])
    expected = [F.cross_entropy(outputs[t], targets[t]) for t in range(2)]
    close(cross_entropy(outputs, targets), torch.stack(expected))


@pytest.mark.parametrize("places", [(5,), (4,), (4, 2)])
def test_cross_entropy_of_examples_with_several_places(randn, rng, places):
    outputs = randn(2, 4, *places, 3)
    targets = torch.randint(3, (2, 4, *places), generator=rng)
    expected = [F.cross_entropy(outputs[t].flatten(0, -2), targets[t].flatten()) for t in range(2)]
    close(cross_entropy(outputs, targets), torch.stack(expected))


@pytest.mark.parametrize("plain", [F.huber_loss, F.l1_loss, F.mse_loss])
def test_per_task_lifts_a_loss_of_one_task(randn, plain):
    outputs, targets = randn(3, 4, 2), randn(3, 4, 2)
    expected = [plain(outputs[t], targets[t]) for t in range(3)]
    close(per_task(plain)(outputs, targets), torch.stack(expected))


def test_per_task_refuses_another_number_of_tasks(randn):
    with pytest.raises(ValueError, match="shorter"):
        per_task(F.mse_loss)(randn(3, 4), randn(2, 4))


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 2), (3, 1, 1), (2, 4, 1)])
def test_mse_names_shapes_that_differ(randn, shape):
    with pytest.raises(ConfigError, match=re.escape("(3, 4, 1)") + ".*" + re.escape(str(shape))):
        mse(randn(3, 4, 1), randn(*shape))


@pytest.mark.parametrize("shape", [(3, 5), (3, 4, 1), (2, 4)])
def test_cross_entropy_refuses_labels_of_another_shape(randn, shape):
    labels = torch.zeros(shape, dtype=torch.long)
    with pytest.raises((ConfigError, RuntimeError, ValueError), match=r"target|shape|batch_size"):
        cross_entropy(randn(3, 4, 2), labels)


def test_losses_are_found_by_name():
    assert get_loss("mse").function is mse
    assert get_loss("cross_entropy").function is cross_entropy


def test_a_misspelt_loss_gets_a_hint():
    with pytest.raises(ConfigError, match="Did you mean 'cross_entropy'"):
        get_loss("crossentropy")


class Own(torch.nn.Module):
    def forward(self, outputs, targets):
        return mse(outputs, targets)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (torch.nn.MSELoss(), r"`loss` is torch's nn\.MSELoss\(\),.*per_task\(nn\.MSELoss\(\)\)"),
        (torch.nn.MSELoss, r"`loss` is torch's nn\.MSELoss\(\),.*per_task\(nn\.MSELoss\(\)\)"),
        (F.mse_loss, r"`loss` is torch's F\.mse_loss,.*alfa\.ops\.per_task\(F\.mse_loss\)"),
        ("mse", r"`loss` must be a function of outputs and targets, got 'mse'"),
        (None, r"`loss` must be a function of outputs and targets, got None"),
    ],
    ids=["module", "class", "function", "name", "nothing"],
)
def test_a_loss_of_one_task_is_rejected(loss, message):
    with pytest.raises(ConfigError, match=message):
        check_loss(loss)


@functools.wraps(F.huber_loss)
def huber(outputs, targets):
    return F.huber_loss(outputs, targets, reduction="none").flatten(1).mean(1)


class OwnMSE(torch.nn.MSELoss):
    def forward(self, outputs, targets):
        return mse(outputs, targets)


@pytest.mark.parametrize(
    "loss",
    [
        mse,
        cross_entropy,
        per_task(F.mse_loss),
        per_task(torch.nn.MSELoss()),
        torch.vmap(F.mse_loss),
        functools.partial(mse),
        huber,
        Own(),
        OwnMSE(),
        torch.nn.DataParallel(Own()),
    ],
)
def test_other_losses_are_taken(loss):
    assert check_loss(loss) is loss
