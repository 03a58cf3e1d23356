import pytest
import torch
from torch.nn import functional as F

from alfa.inits import LearnedInit
from alfa.learner import adapt
from alfa.ops import mse
from alfa.rules import SGD


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("learning_rate", [0.01, 0.2])
def test_sgd_equals_torch(make_mlp, make_episode, backend, learning_rate, weight_decay):
    model, episode = make_mlp(), make_episode(num_tasks=3)
    init = LearnedInit(model)
    rule = SGD(init.layers, learning_rate=learning_rate, weight_decay=weight_decay)
    adapted = adapt(model, episode.support_x, episode.support_y, init=init, rule=rule, loss=mse)
    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for task in range(3):
        model.load_state_dict(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, weight_decay=weight_decay)
        for step in range(5):
            optimizer.zero_grad()
            loss = F.mse_loss(model(episode.support_x[task]), episode.support_y[task])
            close(adapted.support_losses[step, task], loss.detach())
            loss.backward()
            optimizer.step()
        for name, parameter in model.named_parameters():
            close(adapted.params[name][task].detach(), parameter.detach())


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def test_sgd_has_no_parameters(make_rule):
    assert not list(make_rule("sgd", {"w": torch.Size([2])}).parameters())
