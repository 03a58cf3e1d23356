"""Run folders: who may write into them, and what they know of their tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from alfa.data import Signature
from alfa.errors import BusyError, CheckpointError
from alfa.train import Run, train


@pytest.fixture
def busy(tmp_path):
    """A run folder that another process has locked."""
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from alfa.train import Run\n"
        "with Run(Path(sys.argv[1])).lock():\n"
        "    print('locked', flush=True)\n"
        "    time.sleep(600)\n"
    )
    path = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield path, process
        process.kill()


def test_a_folder_that_another_process_uses_is_refused(busy, tiny) -> None:
    path, process = busy
    assert Run(path).is_busy
    with pytest.raises(BusyError, match="is in use by another process; wait until"):
        train(tiny(), path)
    assert os.listdir(path) == [".lock"]
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not Run(path).is_busy
    train(tiny("outer.num_iterations=1"), path)
    assert not Run(path).is_busy


def test_a_result_that_is_nested_too_deep_is_damaged(tmp_path) -> None:
    run = Run(tmp_path)
    run.result.write_text('{"test":' * 5000)
    with pytest.raises(CheckpointError, match=r"result\.json is damaged"):
        run.read_result()


@pytest.mark.parametrize(
    "change",
    [
        {"test": {"loss": None}},
        {"test": {"loss": 0.1, "accuracy": "high"}},
        {"ensemble": {"loss": []}},
        {"num_iterations": None},
        {"seconds": "5"},
        {"config": {"seed": "x"}},
    ],
)
def test_a_result_with_values_of_another_kind_is_damaged(tmp_path, change) -> None:
    run = Run(tmp_path)
    whole = {"test": {"loss": 0.1}, "num_iterations": 5, "num_meta_parameters": 3, "seconds": 1}
    whole["config"] = {"seed": 0}
    run.write_result(whole)
    found = run.read_result()
    assert found is not None
    assert found["test"].pop("num_tasks") == 1
    assert {key: value for key, value in found.pop("test").items() if value is not None} == {
        "loss": 0.1,
        "num_models": 1,
    }
    assert found == {key: value for key, value in whole.items() if key != "test"}
    run.write_result({**whole, **change})
    with pytest.raises(CheckpointError, match=r"result\.json is damaged"):
        run.read_result()


def test_what_a_result_leaves_out_is_filled_in(tmp_path) -> None:
    run = Run(tmp_path)
    whole = {"test": {"loss": 0.1}, "num_iterations": 5, "num_meta_parameters": 3, "seconds": 1}
    run.write_result({**whole, "ensemble": None, "config": {"outer": {}}})
    found = run.read_result()
    assert found is not None
    assert "ensemble" not in found
    assert found["config"] == {"outer": {}, "seed": 0}


@pytest.mark.parametrize("value", ['"high"', "[]", "1" * 400], ids=["text", "list", "digits"])
def test_a_record_whose_figures_are_none_does_not_count(tmp_path, value) -> None:
    run = Run(tmp_path)
    lines = ['{"iteration": 5, "val_loss": 1, "val_accuracy": null}']
    lines += [f'{{"iteration": 10, "val_loss": {value}}}', '{"iteration": 15, "val_loss": NaN}']
    run.metrics.write_text("".join(f"{line}\n" for line in lines))
    assert [record["iteration"] for record in run.read_metrics()] == [5, 15]


def test_a_folder_is_busy_while_it_is_trained_in(tiny, tmp_path) -> None:
    run = Run(tmp_path / "run")
    assert not run.is_busy
    seen = []
    train(tiny("outer.num_iterations=1"), run.path, on_progress=lambda _: seen.append(run.is_busy))
    assert seen
    assert all(seen)
    assert not run.is_busy


def test_a_run_knows_its_signature(tiny, tmp_path) -> None:
    experiment = tiny("outer.num_iterations=1")
    train(experiment, tmp_path / "run")
    run = Run(tmp_path / "run")
    expected = Signature((1,), 1, "mse")
    assert run.signature(experiment) == expected
    run.signature_file.unlink()
    assert run.signature(experiment) == expected


@pytest.mark.parametrize("content", [b"", b"{}", b'{"input_shape": "wide"}', b"\xff"])
def test_a_damaged_signature_is_named(tiny, tmp_path, content: bytes) -> None:
    run = Run(tmp_path)
    run.signature_file.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"signature\.json is damaged; remove it"):
        run.signature(tiny())


def test_a_folder_may_be_named_by_text(tmp_path: Path) -> None:
    assert Run(str(tmp_path / "run")).path == tmp_path / "run"
    assert Run(str(tmp_path / "run")).metrics == tmp_path / "run" / "metrics.jsonl"
