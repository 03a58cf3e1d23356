"""The usual implementation of an outer iteration, for comparison: plain torch and autograd.

It adapts to one task at a time with `functional_call` and `autograd.grad(create_graph=True)`, and
computes the same numbers as `alfa.Learner`.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from alfa.learner import Learner
from alfa.ops import mse
from alfa.rules import ALFA
from alfa.types import Episode


class PlainModel(nn.Module):
    """A 4-CONV or MLP in plain operations, which shares its parameters with another model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        for name, module in model.named_children():
            self.add_module(name, module)

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = self.children()
        for module in hidden:
            if isinstance(module, nn.Conv2d):
                x = F.conv2d(x, module.weight, module.bias, padding=1)
            elif isinstance(module, nn.BatchNorm2d):
                x = F.batch_norm(x, None, None, module.weight, module.bias, training=True)
                x = F.max_pool2d(F.leaky_relu(x, 0.01), 2)
            else:
                x = F.relu(module(x))
        return last(x.flatten(1))  # type: ignore[no-any-return]


class Plain:
    """One outer iteration of a learner with the rule ALFA or SGD; `model` is its plain model."""

    def __init__(self, learner: Learner, model: nn.Module) -> None:
        self.learner, self.model = learner, model
        self.names = list(learner.init.layers)
        self.loss = F.mse_loss if learner.loss is mse else F.cross_entropy

    def __call__(self, episode: Episode) -> Tensor:
        """Return the mean query loss, and set the gradient of every meta-parameter."""
        for parameter in self.learner.meta_parameters():
            parameter.grad = None
        parts = (episode.support_x, episode.support_y, episode.query_x, episode.query_y)
        loss = torch.stack([self.query_loss(*task) for task in zip(*parts, strict=True)]).mean()
        loss.backward()
        return loss.detach()

    def query_loss(self, x: Tensor, y: Tensor, query_x: Tensor, query_y: Tensor) -> Tensor:
        params: dict[str, Tensor] = {name: self.model.get_parameter(name) for name in self.names}
        for step in range(self.learner.num_steps):
            loss = self.loss(functional_call(self.model, params, (x,)), y)
            grads = torch.autograd.grad(loss, list(params.values()), create_graph=True)
            params = dict(zip(self.names, self.updated(step, params.values(), grads), strict=True))
        return self.loss(functional_call(self.model, params, (query_x,)), query_y)

    def updated(self, step: int, params: Any, grads: Any) -> list[Tensor]:
        """Apply Eq. 4 with the rates of Eq. 7, or with constant rates."""
        rule = self.learner.rule
        if not isinstance(rule, ALFA):
            rate = rule.learning_rate
            return [p - rate * g for p, g in zip(params, grads, strict=True)]
        state = [p.mean() for p in params] + [g.detach().mean() for g in grads]
        alpha1, beta1 = rule.g_phi(torch.stack(state)).chunk(2)
        alpha = rule.alpha0.values[step] * alpha1
        beta = 1 - rule.beta0.values[step] * beta1
        layers = zip(params, grads, alpha, beta, strict=True)
        return [b * p - a * g for p, g, a, b in layers]


class WithHigher(Plain):
    """The same iteration with the library `higher`."""

    def query_loss(self, x: Tensor, y: Tensor, query_x: Tensor, query_y: Tensor) -> Tensor:
        import higher

        if not isinstance(self.learner.rule, ALFA):
            optimizer = torch.optim.SGD(self.model.parameters(), lr=self.learner.rule.learning_rate)  # type: ignore[arg-type]
            context = higher.innerloop_ctx(self.model, optimizer, copy_initial_weights=False)
            with context as (inner, inner_optimizer):
                for _ in range(self.learner.num_steps):
                    inner_optimizer.step(self.loss(inner(x), y))
                return self.loss(inner(query_x), query_y)
        inner = higher.monkeypatch(self.model, copy_initial_weights=False)
        names = [name for name, _ in self.model.named_parameters()]
        for step in range(self.learner.num_steps):
            loss = self.loss(inner(x), y)
            params = dict(zip(names, inner.parameters(), strict=True))
            layers = [params[name] for name in self.names]
            grads = torch.autograd.grad(loss, layers, create_graph=True)
            params |= zip(self.names, self.updated(step, layers, grads), strict=True)
            inner.update_params(list(params.values()))
        return self.loss(inner(query_x), query_y)
