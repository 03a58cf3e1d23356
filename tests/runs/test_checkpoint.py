"""Checkpoints: exact, checked, and never half-written."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from alfa.build._build import build_learner, build_tasks
from alfa.errors import CheckpointError, DamagedError
from alfa.runs import Checkpoint


def _trained_pair(seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01, fused=True)
    for _ in range(3):
        optimizer.zero_grad()
        module(torch.randn(5, 3)).square().mean().backward()
        optimizer.step()
    return module, optimizer


def _same_state(a: torch.optim.Optimizer, b: torch.optim.Optimizer) -> bool:
    first, second = a.state_dict()["state"], b.state_dict()["state"]
    return first.keys() == second.keys() and all(
        torch.equal(value, second[index][key])
        for index, state in first.items()
        for key, value in state.items()
    )


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    module, optimizer = _trained_pair()
    path = tmp_path / "last.safetensors"
    Checkpoint.of(module, optimizer, fingerprint="f", progress={"iteration": 3}).save(path)
    return path


def test_roundtrip_restores_weights_optimizer_and_progress(saved: Path) -> None:
    module, optimizer = _trained_pair()
    other, other_optimizer = _trained_pair(seed=1)
    assert not _same_state(optimizer, other_optimizer)

    checkpoint = Checkpoint.load(saved, fingerprint="f")
    checkpoint.restore(other, other_optimizer)

    assert checkpoint.progress == {"iteration": 3}
    assert all(torch.equal(v, other.state_dict()[k]) for k, v in module.state_dict().items())
    assert _same_state(optimizer, other_optimizer)


def test_restored_optimizer_takes_the_same_next_step(saved: Path) -> None:
    module, optimizer = _trained_pair()
    other, other_optimizer = _trained_pair(seed=1)
    Checkpoint.load(saved, fingerprint="f").restore(other, other_optimizer)
    for model, steps in ((module, optimizer), (other, other_optimizer)):
        steps.zero_grad()
        model(torch.ones(2, 3)).square().mean().backward()
        steps.step()
    assert all(torch.equal(v, other.state_dict()[k]) for k, v in module.state_dict().items())


def test_without_an_optimizer_only_the_learner_is_kept(tmp_path: Path) -> None:
    module, _ = _trained_pair()
    checkpoint = Checkpoint.of(module, None, fingerprint="f", progress={})
    assert {key.split(".")[0] for key in checkpoint.tensors} == {"learner"}


def test_a_learner_roundtrips_with_its_rule_and_init(tiny, tmp_path: Path) -> None:
    experiment = tiny("init.name=attenuated", "rule.per_parameter_decay=true")
    tasks = build_tasks(experiment)
    learner = build_learner(experiment, tasks)
    path = tmp_path / "c.safetensors"
    Checkpoint.of(learner, None, fingerprint="f", progress={}).save(path)
    other = build_learner(
        tiny("init.name=attenuated", "rule.per_parameter_decay=true", "seed=1"), tasks
    )
    assert not torch.equal(other.model.linear1.weight, learner.model.linear1.weight)

    Checkpoint.load(path, fingerprint="f").restore(other)

    assert all(torch.equal(v, other.state_dict()[k]) for k, v in learner.state_dict().items())


def test_the_file_holds_no_pickle(saved: Path) -> None:
    content = saved.read_bytes()
    header = content[8 : 8 + int.from_bytes(content[:8], "little")]
    assert header.decode("utf-8").lstrip().startswith("{")
    assert not content.startswith((b"\x80", b"PK"))
    assert b"torch._utils" not in content


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"gone\.safetensors does not exist: the checkpoint was"
    ):
        Checkpoint.load(tmp_path / "gone.safetensors", fingerprint="f")


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:5],
        lambda content: content[:100],
        lambda content: content[:-1],
        lambda content: content + b"more",
        lambda content: bytes(range(256)) * 8,
        lambda content: b"\x00" * len(content),
    ],
    ids=["empty", "in-length", "in-header", "in-tensors", "too-long", "random", "zeros"],
)
def test_a_damaged_file_is_refused_in_one_sentence(saved: Path, damage) -> None:
    saved.write_bytes(damage(saved.read_bytes()))
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.load(saved, fingerprint="f")
    message = str(caught.value)
    assert f"the checkpoint {saved} is damaged or not from alfa" in message
    assert "\n" not in message


def test_every_changed_byte_is_noticed(saved: Path) -> None:
    whole = saved.read_bytes()
    expected = Checkpoint.load(saved, fingerprint="f")
    rng = random.Random(0)
    begin = whole.index(b"__metadata__")
    bits = [8 * place + bit for place in range(begin, len(whole)) for bit in range(8)]
    said = bits[: 8 * (whole.index(b'"},', begin) - begin)]
    for place in [*range(16 * 8), *said, *rng.sample(bits, 200)]:
        changed = bytearray(whole)
        changed[place // 8] ^= 1 << place % 8
        try:
            found = Checkpoint.from_bytes(bytes(changed), fingerprint="f", source="here")
        # Always DamagedError, so that the previous checkpoint is tried.
        except DamagedError:
            continue
        # The remaining bits are padding of the header.
        assert found.progress == expected.progress
        assert all(found.tensors[k].equal(v) for k, v in expected.tensors.items())


def test_a_checksum_is_compared_whatever_the_format(saved: Path) -> None:
    content = saved.read_bytes()
    assert content.count(b'"format":"3"') == 1
    for other in (b"1", b"4"):
        saved.write_bytes(content.replace(b'"format":"3"', b'"format":"%s"' % other))
        with pytest.raises(DamagedError, match="its checksum does not match its content"):
            Checkpoint.load(saved, fingerprint="f")


def _foreign_states() -> dict[str, dict[str, torch.Tensor | None]]:
    """Changes to the tensors of a checkpoint; None removes one."""
    first = torch.ones(4, 3)
    changes: dict[str, dict[str, torch.Tensor | None]] = {
        f"{name} of {what}": {f"optimizer.0.{name}": tensor}
        for name in ("exp_avg", "exp_avg_sq")
        for what, tensor in {
            "one value": torch.ones(()),
            "another shape": torch.ones(3, 4),
            "whole numbers": first.long(),
        }.items()
    }
    return changes | {
        "a step for each value": {"optimizer.0.step": first},
        "a part too many": {"optimizer.0.max_exp_avg_sq": first},
        "a part too few": {"optimizer.0.exp_avg": None},
        "no such parameter": {
            f"optimizer.9.{k}": first.clone() for k in ("step", "exp_avg", "exp_avg_sq")
        },
        "a parameter before the first": {"optimizer.-1.step": torch.ones(())},
        "weights that would be stretched": {"learner.0.weight": torch.ones(1, 1)},
        "weights of another type": {"learner.0.weight": first.bool()},
        "weights too many": {"learner.2.weight": first},
        "weights too few": {"learner.0.weight": None},
        "something else": {"other.weight": first},
    }


@pytest.mark.parametrize("what", _foreign_states())
def test_what_does_not_fit_is_refused_before_anything_is_changed(saved: Path, what: str) -> None:
    kept = Checkpoint.load(saved, fingerprint="f")
    changed = {**kept.tensors, **_foreign_states()[what]}
    tensors = {key: tensor for key, tensor in changed.items() if tensor is not None}
    # The forged file has a valid checksum.
    Checkpoint(tensors, "f", {}).save(saved)
    module, optimizer = _trained_pair(seed=1)
    before = {key: tensor.clone() for key, tensor in module.state_dict().items()}

    with pytest.raises(DamagedError, match=r"last\.safetensors is damaged: it") as caught:
        Checkpoint.load(saved, fingerprint="f").restore(module, optimizer)

    assert "\n" not in str(caught.value)
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())


def test_a_run_may_go_on_in_doubles(saved: Path) -> None:
    module, optimizer = _trained_pair()
    other = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)).double()
    other_optimizer = torch.optim.Adam(other.parameters(), lr=0.01, fused=True)
    Checkpoint.load(saved, fingerprint="f").restore(other, other_optimizer)
    for model, steps in ((module, optimizer), (other, other_optimizer)):
        steps.zero_grad()
        model(torch.ones(2, 3, dtype=next(model.parameters()).dtype)).square().mean().backward()
        steps.step()
    for key, value in module.state_dict().items():
        torch.testing.assert_close(other.state_dict()[key].float(), value)


def test_a_file_without_a_checksum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    metadata = {"format": "3", "fingerprint": "f", "progress": "{}"}
    save_file({"learner.weight": torch.ones(2)}, path, metadata=metadata)
    with pytest.raises(DamagedError, match="sha256"):
        Checkpoint.load(path, fingerprint="f")


def test_the_file_before_is_kept_under_another_name(saved: Path) -> None:
    before, other = saved.read_bytes(), saved.with_name("previous.safetensors")
    module, _ = _trained_pair(seed=1)
    Checkpoint.of(module, None, fingerprint="f", progress={}).save(saved, previous=other)
    assert other.read_bytes() == before
    assert Checkpoint.load(saved, fingerprint="f").progress == {}


def test_safetensors_of_another_program_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"weight": torch.zeros(2)}, path)
    with pytest.raises(CheckpointError, match="not from alfa"):
        Checkpoint.load(path, fingerprint="f")


def test_another_experiments_checkpoint_is_refused(saved: Path) -> None:
    with pytest.raises(CheckpointError, match=r"belongs to another experiment.*\bf\b.*\bother\b"):
        Checkpoint.load(saved, fingerprint="other")


@pytest.mark.parametrize("function", ["replace", "fsync", "chmod"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_save_leaves_the_old_file_and_nothing_else(
    saved: Path, monkeypatch: pytest.MonkeyPatch, function: str, error: BaseException
) -> None:
    before = saved.read_bytes()
    module, _ = _trained_pair(seed=1)

    def fail(*args: object, **kwargs: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        with pytest.raises(type(error)):
            Checkpoint.of(module, None, fingerprint="f", progress={}).save(saved)

    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


def test_a_checkpoint_is_as_readable_as_any_other_file(saved: Path) -> None:
    plain = saved.with_name("plain")
    plain.write_text("x")
    assert saved.stat().st_mode == plain.stat().st_mode


def test_a_buffer_that_was_expanded_is_put_back() -> None:
    module = nn.Linear(2, 1)
    module.register_buffer("shift", torch.zeros(3, 1).expand(3, 4))
    content = Checkpoint.of(module, None, fingerprint="f", progress={}).to_bytes()
    with torch.no_grad():
        module.weight.zero_()
    Checkpoint.from_bytes(content, fingerprint="f", source="it").restore(module)
    assert bool(module.weight.any())
