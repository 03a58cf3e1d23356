"""Run folders: locks, files, and tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from alfa import ALFA, MLP, SGD, Conv4, LearnedInit, Learner, Sinusoids, cross_entropy, mse
from alfa.data import FewShot, Signature, Strokes
from alfa.errors import BusyError, CheckpointError, ConfigError, DataError
from alfa.evaluation import evaluate, evaluate_run
from alfa.runs import Run
from alfa.training import train_run


@pytest.fixture
def busy(tmp_path):
    """A run folder that another process has locked."""
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from alfa.runs import Run\n"
        "with Run(Path(sys.argv[1])).files.lock():\n"
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
    assert Run(path).files.is_busy
    with pytest.raises(BusyError, match="is in use by another process; wait until"):
        train_run(Run.new(path, tiny()))
    assert os.listdir(path) == [".lock"]
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not Run(path).files.is_busy
    train_run(Run.new(path, tiny("outer.num_iterations=1")))
    assert not Run(path).files.is_busy


WHOLE = {
    "test": {
        "loss": 0.1,
        "interval": None,
        "accuracy": None,
        "accuracy_interval": None,
        "num_tasks": 600,
        "num_models": 1,
    },
    "best_iteration": 5,
    "val_loss": 0.2,
    "num_iterations": 5,
    "num_meta_parameters": 3,
    "seconds": 1,
    "config": {"seed": 0},
}


def test_a_result_is_read_as_it_was_written(tmp_path) -> None:
    Run(tmp_path).files.write_result({**WHOLE, "note": "mine"})
    assert Run(tmp_path).result == {**WHOLE, "note": "mine"}


def test_a_result_that_is_nested_too_deep_is_damaged(tmp_path) -> None:
    run = Run(tmp_path)
    run.files.result.write_text('{"test":' * 5000)
    with pytest.raises(CheckpointError, match=r"result\.json is damaged"):
        _ = run.result


@pytest.mark.parametrize(
    "change",
    [
        {"test": {**WHOLE["test"], "loss": None}},
        {"test": {**WHOLE["test"], "accuracy": "high"}},
        {"ensemble": {"loss": []}},
        {"num_iterations": None},
        {"seconds": "5"},
        {"config": {"seed": "x"}},
        {"config": {}},
    ],
)
def test_a_result_with_values_of_another_kind_is_damaged(tmp_path, change) -> None:
    run = Run(tmp_path)
    run.files.write_result({**WHOLE, **change})
    with pytest.raises(CheckpointError, match=r"result\.json is damaged"):
        _ = run.result


@pytest.mark.parametrize("value", ['"high"', "[]", "1" * 400], ids=["text", "list", "digits"])
def test_a_record_whose_figures_are_none_does_not_count(tmp_path, value) -> None:
    run = Run(tmp_path)
    lines = ['{"iteration": 5, "val_loss": 1, "val_accuracy": null}']
    lines += [f'{{"iteration": 10, "val_loss": {value}}}', '{"iteration": 15, "val_loss": NaN}']
    run.files.metrics.write_text("".join(f"{line}\n" for line in lines))
    assert [record["iteration"] for record in run.metrics] == [5, 15]


def test_a_folder_is_busy_while_it_is_trained_in(tiny, tmp_path) -> None:
    run = Run(tmp_path / "run")
    assert not run.files.is_busy
    seen = []
    train_run(
        Run.new(run.path, tiny("outer.num_iterations=1")),
        on_progress=lambda _: seen.append(run.files.is_busy),
    )
    assert seen
    assert all(seen)
    assert not run.files.is_busy


def test_a_run_knows_its_signature(tiny, tmp_path) -> None:
    train_run(Run.new(tmp_path / "run", tiny("outer.num_iterations=1")))
    assert Run.open(tmp_path / "run").signature == Signature((1,), 1, "mse")


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"input_shape": "wide"}', b"\xff"])
def test_a_damaged_signature_is_named(tmp_path, content: bytes | None) -> None:
    run = Run(tmp_path)
    if content is not None:
        run.files.signature.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"signature\.json is missing or damaged; restore"):
        _ = run.signature


def test_a_folder_may_be_named_by_text(tmp_path: Path) -> None:
    assert Run(str(tmp_path / "run")).path == tmp_path / "run"


@pytest.mark.parametrize(
    ("make", "missing"),
    [
        (lambda path: None, "it does not exist"),
        (Path.mkdir, r"it has no config\.toml"),
        (Path.touch, "it is a file"),
    ],
)
def test_only_a_run_can_be_opened(tmp_path, make, missing) -> None:
    make(tmp_path / "other")
    with pytest.raises(CheckpointError, match=f"other is not a run: {missing}; give a folder"):
        Run.open(tmp_path / "other")


def test_every_file_is_read_once(tiny, tmp_path, monkeypatch) -> None:
    train_run(Run.new(tmp_path / "run", tiny("outer.num_iterations=1")))
    read: list[str] = []
    for name in ("read_bytes", "read_text"):
        real = getattr(Path, name)

        def reading(self: Path, *args: str, real=real, **named: str) -> object:
            read.append(self.name)
            return real(self, *args, **named)

        monkeypatch.setattr(Path, name, reading)
    run = Run.open(tmp_path / "run")
    for _ in range(2):
        assert run.experiment.seed == 0
        assert run.fingerprint == run.experiment.fingerprint()
        assert run.signature.loss == "mse"
        assert len(run.metrics) == 1
        assert run.result is not None
        assert run.tasks(["tasks.num_query=3"]).num_query == 3
    assert sorted(read) == ["config.toml", "metrics.jsonl", "result.json", "signature.json"]


def make_learner(*, hidden: int = 8, rule: type = ALFA) -> Learner:
    model = MLP((1,), 1, hidden=[hidden], generator=torch.Generator().manual_seed(3))
    init = LearnedInit(model, adapt=["linear2.*"])
    return Learner(model, init=init, rule=rule(init.layers, num_steps=2), loss=mse, num_steps=2)


def test_a_custom_training_loop_can_save_a_run(tmp_path) -> None:
    learner, tasks = make_learner(), Sinusoids(num_support=7)
    optimizer = torch.optim.SGD(learner.meta_parameters(), lr=0.01)
    learner(tasks.episode(0, num_tasks=2)).query_losses.mean().backward()
    optimizer.step()
    records = [{"iteration": 1, "val_loss": 0.5}]
    Run.save(tmp_path / "run", learner, tasks, metrics=records, num_iterations=1, seed=4)
    run = Run.open(tmp_path / "run")
    assert (run.metrics, run.result, run.experiment.seed) == (records, None, 4)
    assert run.experiment.init.options["adapt"] == ["linear2.*"]
    assert run.tasks().num_support == 7
    expected = evaluate(learner, tasks, num_tasks=5, seed=1)
    assert evaluate(run.learner(), run.tasks(), num_tasks=5, seed=1) == expected
    assert evaluate_run(run, num_tasks=5, seed=1) == expected


def test_saving_again_replaces_the_weights_of_the_same_parts_only(tmp_path) -> None:
    learner, tasks = make_learner(), Sinusoids()
    Run.save(tmp_path / "run", learner, tasks)
    with torch.no_grad():
        for parameter in learner.meta_parameters():
            parameter.add_(1.0)
    Run.save(tmp_path / "run", learner, tasks)
    saved = Run.open(tmp_path / "run").learner()
    assert all(map(torch.equal, saved.meta_parameters(), learner.meta_parameters()))
    with pytest.raises(CheckpointError, match="run holds a run with another configuration; choose"):
        Run.save(tmp_path / "run", make_learner(hidden=9), tasks)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(CheckpointError, match="mine is not empty; choose another folder"):
        Run.save(tmp_path / "mine", learner, tasks)


def test_tasks_that_exist_only_in_the_program_are_named(tmp_path) -> None:
    images = Strokes(num_classes=20, num_examples=8).images()
    tasks = FewShot(images, way=3, shot=1, num_query=4)
    model = Conv4(images.shape, 3, filters=4)
    init = LearnedInit(model)
    learner = Learner(model, init=init, rule=SGD(init.layers), loss=cross_entropy, num_steps=1)
    Run.save(tmp_path / "run", learner, tasks)
    run = Run.open(tmp_path / "run")
    with pytest.raises(DataError, match=r"\(FewShot\) exist only in the program that trained it"):
        run.tasks()
    elsewhere = run.tasks(run.dataset_overrides("strokes"))
    assert (elsewhere.way, elsewhere.shot, elsewhere.num_query) == (3, 1, 4)


def test_a_part_that_is_not_registered_cannot_be_saved(tmp_path) -> None:
    class Own(ALFA):
        pass

    with pytest.raises(ConfigError, match=r"the rule Own is not registered.* @register_rule"):
        Run.save(tmp_path / "run", make_learner(rule=Own), Sinusoids())
    assert not (tmp_path / "run").exists()
