"""Adam equals torch's Adam bit for bit, without importing torch's compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from alfa.optim import Adam

_TRAIN = """
import sys
from pathlib import Path
from alfa.config import compose
from alfa.runs import Run
from alfa.training import train_run

small = ["outer.num_iterations=2", "outer.validate_every=1", "outer.num_val_tasks=3"]
small += ["test.num_tasks=3", "test.ensemble=2"]
train_run(Run.new(Path(sys.argv[1]), compose("sinusoid", overrides=small)))
assert "numba" in sys.modules, "nothing was trained"
print(*(name for name in ("torch._dynamo", "sympy") if name in sys.modules))
"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_and_state_are_those_of_torch(randn, dtype: torch.dtype) -> None:
    start, grads = randn(3, 5).to(dtype), randn(6, 3, 5).to(dtype)
    found = []
    for made in (torch.optim.Adam, Adam):
        decayed, other = (torch.nn.Parameter(start.clone()) for _ in range(2))
        groups = [{"params": [decayed], "weight_decay": 0.1}, {"params": [other]}]
        optimizer = made(groups, lr=0.01, fused=True)
        for grad in grads[:3]:
            decayed.grad, other.grad = grad.clone(), 2 * grad
            optimizer.step()
        state = optimizer.state_dict()
        # A second optimizer resumes from the state of the first one.
        optimizer = made(groups, lr=0.01, fused=True)
        optimizer.load_state_dict(state)
        for grad in grads[3:]:
            optimizer.zero_grad()
            assert decayed.grad is None
            decayed.grad, other.grad = grad.clone(), 2 * grad
            optimizer.step()
        found.append((decayed, other, optimizer.state_dict()))
    (decayed, other, state), (own_decayed, own_other, own_state) = found
    assert torch.equal(own_decayed, decayed)
    assert torch.equal(own_other, other)
    assert not torch.equal(decayed, other)
    assert own_state["param_groups"] == state["param_groups"]
    for index, expected in state["state"].items():
        assert own_state["state"][index].keys() == expected.keys()
        for name, value in expected.items():
            assert torch.equal(own_state["state"][index][name], value)


def test_a_step_keeps_no_graph(randn) -> None:
    parameter = torch.nn.Parameter(randn(3))
    parameter.grad = randn(3)
    Adam([parameter], fused=True).step()
    assert torch.is_grad_enabled()
    assert parameter.grad_fn is None


def test_training_imports_no_compiler(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _TRAIN, tmp_path / "run"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
