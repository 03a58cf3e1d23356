"""A command that runs out of memory reports it in one sentence."""

from __future__ import annotations

import pytest
import torch

from alfa.cli.main import main


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
    ],
    ids=["numpy", "cpu", "cuda"],
)
def test_a_lack_of_memory_is_a_sentence(refused, tmp_path, monkeypatch, error) -> None:
    def train(*arguments, **options) -> None:
        raise error

    monkeypatch.setattr("alfa.training.train_run", train)
    told = refused("train", "sinusoid", "--method", "maml", "--out", tmp_path / "run")
    assert "out of memory; reduce the size" in told
    assert "`--set engine.memory=recompute`" in told


def test_no_option_is_advised_that_a_command_does_not_have(refused, tmp_path, monkeypatch) -> None:
    def open_run(path) -> None:
        raise MemoryError

    monkeypatch.setattr("alfa.runs.Run.open", open_run)
    told = refused("adapt", tmp_path, "--support", tmp_path, "--predict", tmp_path, "--force")
    assert "out of memory; reduce the size" in told
    assert "--set" not in told


def test_other_errors_of_torch_are_not_hidden(alfa, tmp_path, monkeypatch) -> None:
    def train(*arguments, **options) -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr("alfa.training.train_run", train)
    with pytest.raises(RuntimeError, match="shapes"):
        main(["train", "sinusoid", "--method", "maml", "--out", str(tmp_path / "run")])
