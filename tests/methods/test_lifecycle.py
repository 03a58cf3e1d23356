"""Every method from training to serving, on tiny images."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import numpy as np
import pytest
import tomli_w
import torch
from PIL import Image
from starlette.testclient import TestClient

from alfa.cli.main import main
from alfa.config import Experiment, compose, to_dict
from alfa.errors import ConfigError
from alfa.methods import METHODS
from alfa.models import HEADS
from alfa.runs import Run
from alfa.serve import create_app
from alfa.training import train_run

SMALL = (
    "tasks.size=16",
    "tasks.way=3",
    "tasks.shot=2",
    "tasks.num_query=2",
    "model.filters=4",
    "model.num_blocks=2",
    "model.num_pools=1",
    "outer.num_iterations=3",
    "outer.num_tasks=2",
    "outer.validate_every=1",
    "outer.num_val_tasks=2",
    "test.num_tasks=4",
    "test.ensemble=1",
)
SHORT_PRETRAINING = (
    "pretraining.num_epochs=1",
    "pretraining.max_batches=2",
    "pretraining.batch_size=4",
    "pretraining.decay_epochs=[]",
)
# These heads compare the queries of a task with each other.
TRANSDUCTIVE = {"tpn"}


def small(name: str) -> Experiment:
    """Return a small experiment of a method."""
    experiment, more = compose("strokes", method=name), []
    if experiment.pretraining is not None:
        more += SHORT_PRETRAINING
    if experiment.head is not None and "filters" in HEADS.options(experiment.head.name):
        more.append("head.filters=4")
    if experiment.inner.num_test_steps is not None:
        more.append(f"inner.num_test_steps={experiment.inner.num_steps}")
    return compose("strokes", method=name, overrides=[*SMALL, *more])


@pytest.fixture(scope="module")
def processes() -> Iterator[ForkServerContext]:
    """Processes that start with imported modules and generated images."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["preloaded_training"])
    with pytest.MonkeyPatch.context() as patch:
        folders = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        patch.setenv("PYTHONPATH", os.pathsep.join(folders))
        yield context


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two images of each of three classes."""
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for number in range(6):
        path = folder / f"class {number % 3}" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (16, 16), np.uint8)).save(path)
    return folder


@pytest.fixture
def alfa(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., str]]:
    """Run a command in this process, and return its errors; restore the number of threads."""
    num_threads = torch.get_num_threads()

    def run(*words: str | Path) -> str:
        with pytest.raises(SystemExit) as caught:
            main([str(word) for word in words])
        errors = capsys.readouterr().err
        assert (caught.value.code == 0) == (not errors.startswith("alfa: ")), errors
        return errors

    yield run
    torch.set_num_threads(num_threads)


@pytest.mark.filterwarnings("ignore:the support loss is", "ignore:.* no better than chance")
@pytest.mark.parametrize("name", METHODS)
def test_a_method_completes_every_command(
    name: str, processes: ForkServerContext, pictures: Path, tmp_path: Path, alfa
) -> None:
    config, path = tmp_path / "experiment.toml", tmp_path / "run"
    experiment = small(name)
    config.write_text(tomli_w.dumps(to_dict(experiment)))
    train = ["train", str(config), "--out", str(path), "--or-resume", "--threads", "1"]

    process = processes.Process(target=main, args=(train,))
    process.start()
    metrics = path / "metrics.jsonl"
    while process.is_alive() and not metrics.exists():
        time.sleep(0.002)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (path / "result.json").exists()
    alfa(*train)
    whole = train_run(Run.new(tmp_path / "whole", experiment))
    # Another process may round differently.
    assert Run(path).result["test"]["loss"] == pytest.approx(whole["test"]["loss"], rel=1e-3)
    for ours, theirs in zip(Run(path).metrics, Run(tmp_path / "whole").metrics, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3)

    alfa("evaluate", path)
    alfa("compare", path, tmp_path / "whole")
    out, onnx = tmp_path / "out", tmp_path / "model.onnx"
    adapt = ("adapt", path, "--support", pictures, "--predict", pictures, "--out", out)
    export = ("export", path, "--support", pictures, "--to", onnx)
    if name in TRANSDUCTIVE:
        for words in (adapt, export):
            assert "classifies the queries of a task together" in alfa(*words)
        assert not out.exists()
        assert not onnx.exists()
        with pytest.raises(ConfigError, match="classifies the queries of a task together"):
            create_app(path)
        return
    alfa(*adapt)
    assert (out / "predictions.csv").is_file()
    alfa(*export)
    assert onnx.is_file()
    with TestClient(create_app(path, hosts=["testserver"])) as web:
        session = web.post("/api/v1/sessions").raise_for_status().headers["location"]
        for folder in sorted(pictures.iterdir()):
            made = web.post(f"{session}/classes", json={"name": folder.name}).json()
            files = [("files", (file.name, file.read_bytes())) for file in folder.iterdir()]
            class_id = made["classes"][-1]["id"]
            web.post(f"{session}/classes/{class_id}/examples", files=files).raise_for_status()
        web.post(f"{session}/learn").raise_for_status()
        (found,) = web.post(f"{session}/predict", files=files[:1]).json()["predictions"]
    assert sum(each["probability"] for each in found["probabilities"]) == pytest.approx(1)
