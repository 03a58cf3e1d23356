"""The query loss with an implicit gradient, the objective of iMAML."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from alfa.errors import ConfigError
from alfa.learner import Learner, Outcome
from alfa.objectives._base import Objective, register_objective
from alfa.objectives._reach import check_reach
from alfa.types import Count, Episode, PositiveFloat


@register_objective("implicit")
class Implicit(Objective):
    """The query loss at the minimum of a proximal problem (Rajeswaran et al., 2019, iMAML).

    The adapted weights phi are taken as the minimum of L_S(phi) + lambda / 2 |phi - theta|^2. Then
    the gradient in theta is v = (I + H / lambda)^-1 grad L_Q(phi), with H the Hessian of L_S at phi
    (Lemma 1), which conjugate gradients approximate without the inner steps (Algorithm 2). The
    gradient in psi, the parameters that the inner loop does not adapt, is the gradient of
    L_Q(phi) - grad L_S(phi)' v / lambda with phi and v constant.

    Args:
        strength: lambda, which must equal the strength of the rule.
        num_cg_steps: number of steps of conjugate gradients.

    Examples:
        >>> from alfa import MLP, Learner, LearnedInit, Sinusoids, mse
        >>> from alfa.objectives import Implicit
        >>> from alfa.rules import Proximal
        >>> model = MLP((1,), 1)
        >>> init = LearnedInit(model)
        >>> rule = Proximal(init.layers, strength=2.0)
        >>> learner = Learner(model, init=init, rule=rule, loss=mse)
        >>> outcome = Implicit()(learner, Sinusoids().episode(0, num_tasks=4), progress=0.0)
        >>> outcome.losses.sum().backward()
    """

    def __init__(self, *, strength: PositiveFloat = 2.0, num_cg_steps: Count = 5) -> None:
        super().__init__()
        if not strength > 0 or num_cg_steps < 1:
            raise ConfigError(
                "`strength` must be greater than 0 and `num_cg_steps` at least 1, got "
                f"{strength} and {num_cg_steps}."
            )
        self.strength, self.num_cg_steps = strength, num_cg_steps

    def forward(self, learner: Learner, episode: Episode, *, progress: float) -> Outcome:
        of_rule = getattr(learner.rule, "strength", self.strength)
        if of_rule != self.strength:
            raise ConfigError(
                f"`strength` of the objective is {self.strength}, but that of the rule is "
                f"{of_rule}; set both to the same value."
            )
        support = episode.support_x, episode.support_y
        start = learner.adapt(*support, num_steps=0, order="first")
        check_reach("implicit", learner, start, trains_shared=True)
        theta = start.params.flat
        adapted = learner.adapt(*support, order="none")
        phi = adapted.params.flat.detach().requires_grad_()
        psi = learner.init.shared_at(max(learner.num_steps - 1, 0))
        adapted = replace(adapted, params=adapted.params.like(phi), shared=psi, memory="store")
        outcome = learner.evaluate(adapted, episode)
        (grad_q,) = torch.autograd.grad(outcome.query_losses.sum(), phi, retain_graph=True)
        grad_s = learner.support_gradients(adapted, episode).flat

        def multiply(d: Tensor) -> Tensor:
            """Return (I + H / lambda) d."""
            hessian = None
            if grad_s.requires_grad:
                (hessian,) = torch.autograd.grad(
                    grad_s, phi, d, retain_graph=True, allow_unused=True
                )
            # The gradient of a loss that is linear in the weights is constant.
            return d if hessian is None else d + hessian / self.strength

        v = conjugate_gradients(multiply, grad_q, self.num_cg_steps)
        # Only the gradient of this term matters.
        implicit = (v * theta).sum(1) - (v * grad_s).sum(1) / self.strength
        return replace(outcome, objective=outcome.query_losses + implicit - implicit.detach())


def conjugate_gradients(multiply: Callable[[Tensor], Tensor], b: Tensor, num_steps: int) -> Tensor:
    """Solve A x = b for every row of b ``[task, size]``, with A d = `multiply` (d).

    A row stops at a direction of negative curvature, at which A is not positive definite; if this
    is the first direction, its solution is b. A solved row stops, too.
    """
    x, r, p = torch.zeros_like(b), b, b
    rr = r.square().sum(1, keepdim=True)
    runs = rr > 0
    for step in range(num_steps):
        ap = multiply(p)
        curvature = (p * ap).sum(1, keepdim=True)
        runs = runs & (curvature > 0)
        if step == 0:
            x = torch.where(runs, x, b)
        alpha = torch.where(runs, rr / curvature, 0.0)
        x, r = x + alpha * p, r - alpha * ap
        before, rr = rr, r.square().sum(1, keepdim=True)
        # Beyond the precision of the numbers, further steps would only add noise.
        runs = runs & (rr > (torch.finfo(b.dtype).eps * b.norm(dim=1, keepdim=True)) ** 2)
        p = torch.where(runs, r + rr / before * p, p)
    return x.detach()
