"""The memory probe counts tensors that exist at the same time, each of them once."""

from __future__ import annotations

import torch

from alfa.evaluation._memory_probe import MemoryProbe

KB = 250  # values


def test_what_lives_at_once_is_counted_together():
    with MemoryProbe() as peak:
        one, other = torch.zeros(3 * KB), torch.zeros(2 * KB)
        assert peak.bytes == 5000
        del one, other
        torch.zeros(4 * KB)
    assert peak.bytes == 5000


def test_a_view_is_not_counted_twice():
    with MemoryProbe() as peak:
        torch.zeros(4, KB).T[1:].add_(1)
    assert peak.bytes == 4000


def test_what_autograd_keeps_is_counted():
    x = torch.ones(KB, requires_grad=True)
    with MemoryProbe() as peak:
        y = x.sin().sin().sin()
        assert peak.bytes == 3000
        torch.autograd.grad(y.sum(), x)
    assert peak.bytes > 4000


def test_what_has_no_storage_is_passed_over():
    with MemoryProbe() as peak:
        torch.sparse_coo_tensor([[0]], [1.0], [9], check_invariants=True).coalesce()
    assert peak.bytes < 1000
