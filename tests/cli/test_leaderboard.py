"""`alfa compare --rank`, `alfa pretrain`, and other commands on tasks of varying size."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import alfa.training as alfa_train
from alfa.config import parse_experiment
from alfa.data import Store
from alfa.runs import Run
from alfa.training import train_run

CONFIG = """
[tasks]
name = "meta-dataset"
dataset = "spots"
size = 8
min_way = 2
max_way = 4
max_query = 2
max_support = 12
[model]
name = "conv4"
filters = 4
num_blocks = 2
[init]
name = "prototype-head"
[rule]
name = "sgd"
[inner]
num_steps = 1
order = "first"
batch_norm = "inductive"
[outer]
num_iterations = 2
num_tasks = 2
validate_every = 2
num_val_tasks = 2
[test]
num_tasks = 3
ensemble = 1
"""


@pytest.fixture
def config(spots, tmp_path):
    path = tmp_path / "varied.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def trained_runs(spots_folder, tmp_path_factory) -> Path:
    """A folder with two runs; do not change them."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALFA_DATA", str(spots_folder))
        for name, rate in (("one", 0.01), ("two", 0.5)):
            content = tomllib.loads(CONFIG)
            content["rule"]["learning_rate"] = rate
            train_run(Run.new(folder / name, parse_experiment(content)))
    return folder


@pytest.fixture
def runs(trained_runs: Path, spots, tmp_path) -> list[Path]:
    """Two runs that a test may change."""
    return [Path(shutil.copytree(trained_runs / n, tmp_path / n)) for n in ("one", "two")]


def test_runs_are_ranked_on_every_source(alfa, runs) -> None:
    words = ("--sources", "spots,strokes", "--num-tasks", "4")
    answer = alfa("compare", "--rank", *runs, *words, "--json")
    assert answer.code == 0, answer.err
    first, second = json.loads(answer.out)
    assert set(first["sources"]) == {"spots", "strokes"}
    # With so few tasks, no difference is significant.
    assert (first["average_rank"], second["average_rank"]) == (1.5, 1.5)
    for row in (first, second):
        for found in row["sources"].values():
            assert found["num_tasks"] == 4
            assert found["rank"] == 1.5
    shown = alfa("compare", "--rank", *runs, *words)
    assert shown.code == 0
    assert "average rank" in shown.out
    assert f"{100 * first['sources']['spots']['accuracy']:.2f}" in shown.out
    assert "share a rank if their difference is within the interval" in shown.out


def test_what_was_tested_is_not_tested_again(alfa, runs, monkeypatch) -> None:
    words = ("--sources", "spots", "--num-tasks", "4", "--json")
    before = alfa("compare", "--rank", *runs, *words).out
    monkeypatch.setattr(
        "alfa.evaluation._evaluate_run.evaluate_run", lambda *a, **o: pytest.fail("tested")
    )
    assert alfa("compare", "--rank", *runs, *words).out == before


def test_wrong_sources_are_refused(refused, runs) -> None:
    words = ("compare", "--rank", *runs, "--sources")
    assert "must list distinct datasets" in refused(*words, "a,a")
    assert "must list distinct datasets" in refused(*words, ",")
    assert "nowhere is not prepared" in refused(*words, "nowhere")


def test_options_that_ranking_does_not_take_are_refused(refused, runs) -> None:
    assert "--rank and --sources require each other" in refused("compare", *runs, "--rank")
    assert "require each other" in refused("compare", *runs, "--sources", "spots")
    words = ("compare", *runs, "--rank", "--sources", "spots")
    told = refused(*words, "--shot", "1", "--split", "val")
    assert "--rank does not support --shot and --split; omit them." in told


def test_a_group_of_seeds_has_one_rank(alfa, runs, tmp_path) -> None:
    for number, run in enumerate(runs):
        shutil.copytree(run, tmp_path / "group" / f"seed-{number}")
    words = ("--rank", "--sources", "spots", "--num-tasks", "4", "--json")
    first, second, mean = json.loads(alfa("compare", *runs, tmp_path / "group", *words).out)
    accuracies = [row["sources"]["spots"]["accuracy"] for row in (first, second, mean)]
    assert accuracies[2] == pytest.approx(sum(accuracies[:2]) / 2)
    assert mean["average_rank"] == 2


def test_a_run_is_evaluated_and_compared_on_another_source(alfa, runs) -> None:
    words = ("--dataset", "strokes", "--num-tasks", "3", "--json")
    found = json.loads(alfa("evaluate", runs[0], *words).out)
    assert found["tasks"]["dataset"] == ["strokes"]
    first, _ = json.loads(alfa("compare", *runs, *words).out)
    assert first["accuracy"] == found["accuracy"]


def test_pictures_of_tasks_of_any_size(alfa, runs, spots, tmp_path) -> None:
    for words in (
        ("data", "show", "spots", "--varied", "--split", "train"),
        ("data", "show", runs[0]),
        ("plot", "rates", runs[0], "--num-tasks", "5"),
    ):
        out = tmp_path / f"{len(words)}.png"
        answer = alfa(*words, "--out", out)
        assert answer.code == 0, answer.err
        assert out.read_bytes().startswith(b"\x89PNG")


# Backbones


def test_a_backbone_is_pretrained_and_begun_with(alfa, config, tmp_path) -> None:
    out = tmp_path / "pretrained"
    words = ("pretrain", config, "--out", out, "--epochs", "2", "--batch-size", "9")
    answer = alfa(*words)
    assert answer.code == 0, answer.err
    assert "6 classes of 54 images" in answer.out
    assert f"model.weights={out}/backbone.safetensors" in answer.out
    assert "epoch" not in answer.err
    assert "12 of 12 batches" in answer.err
    again = json.loads(alfa(*words, "--json").out)
    assert len(again["epochs"]) == 2
    path = tmp_path / "run"
    weights = f"model.weights={out / 'backbone.safetensors'}"
    answer = alfa("train", config, "--out", path, "--set", weights, "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["config"]["model"]["weights"].endswith("backbone.safetensors")


def test_a_pretraining_that_is_stopped_keeps_its_state(alfa, config, tmp_path, monkeypatch) -> None:
    out, real = tmp_path / "pretrained", alfa_train.pretrain_run
    words = ("pretrain", config, "--out", out, "--epochs", "2", "--batch-size", "9")

    def stopped(*given, **options):
        os.kill(os.getpid(), signal.SIGTERM)
        return real(*given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(alfa_train, "pretrain_run", stopped)
        answer = alfa(*words)
    assert answer.code == 143
    assert "stopped; run the same command again to resume." in answer.err
    assert (out / "state.safetensors").is_file()
    assert "2 of 12 batches" in alfa(*words).err


def test_wrong_options_of_pretraining_are_refused(refused, config, tmp_path) -> None:
    out = ("--out", tmp_path / "out")
    assert "must be above 0" in refused("pretrain", config, *out, "--learning-rate", "0")
    assert "have no images" in refused("pretrain", "sinusoid", *out)
    assert "the weights file nowhere.safetensors does not exist" in refused(
        "train", config, *out, "--set", "model.weights=nowhere.safetensors"
    )
    assert not (tmp_path / "out").exists()


def test_runs_with_other_tasks_are_not_ranked(alfa, refused, runs, config, tmp_path) -> None:
    other = tmp_path / "other"
    assert alfa("train", config, "--out", other, "--set", "tasks.max_way=3", "--json").code == 0
    told = refused("compare", "--rank", runs[0], other, "--sources", "spots")
    assert "tasks.max_way is 4 and 3" in told


# Datasets that are prepared in several sizes


@pytest.fixture
def prepare_larger(spots, tmp_path, monkeypatch):
    """Prepare the dataset in size 12 as well, with renamed images."""
    root = tmp_path / "data"
    shutil.copytree(spots, root)
    monkeypatch.setenv("ALFA_DATA", str(root))
    small = Store.open(root / "stores" / "spots-8")

    def prepare(change=lambda split, name: name) -> None:
        larger = root / "stores" / "spots-12"
        larger.mkdir(exist_ok=True)
        np.save(larger / "images.npy", np.zeros((len(small.images), 3, 12, 12), np.uint8))
        classes = [replace(c, checksum="of other pixels") for c in small.index.classes]
        index = replace(small.index, size=12, classes=classes)
        (larger / "index.json").write_text(index.to_json())
        splits = [c.split for c in small.index.classes for _ in range(c.count)]
        names = [f"{number}.png" for number in range(len(splits))]
        (small.path / "items.txt").write_text("".join(f"{name}\n" for name in names))
        changed = map(change, splits, names)
        (larger / "items.txt").write_text("".join(f"{name}\n" for name in changed))

    return prepare


@pytest.fixture
def of_two_sizes(alfa, runs, config, tmp_path):
    """A run on images of 8 x 8, and a run on images of 12 x 12."""
    path = tmp_path / "larger"
    assert alfa("train", config, "--out", path, "--set", "tasks.size=12", "--json").code == 0
    return runs[0], path


@pytest.mark.parametrize(
    "words",
    [("compare", "--rank", "--sources", "strokes,spots"), ("compare",)],
    ids=["rank", "compare"],
)
def test_runs_that_open_other_images_are_refused(
    alfa, refused, of_two_sizes, prepare_larger, words
) -> None:
    command, *options = words
    options += ["--num-tasks", "2"]
    # With one prepared size, both runs resize the same images.
    assert alfa(command, *of_two_sizes, *options).code == 0
    prepare_larger()
    assert alfa(command, *of_two_sizes, *options).code == 0
    # The training images may differ.
    prepare_larger(lambda split, name: f"new-{name}" if split == "train" else name)
    assert alfa(command, *of_two_sizes, *options).code == 0
    prepare_larger(lambda split, name: f"new-{name}" if split == "test" else name)
    told = refused(command, *of_two_sizes, *options)
    assert "would be tested on different images of spots (tasks.size is 8 and 12, and" in told
    assert "prepare both sizes from the same files" in told
    assert ("--size" in told) == ("--rank" in words)


def test_one_size_for_all_is_the_same_images_for_all(alfa, of_two_sizes, prepare_larger) -> None:
    prepare_larger(lambda split, name: f"new-{name}")
    words = ("--sources", "spots", "--num-tasks", "2", "--size", "8")
    assert alfa("compare", "--rank", *of_two_sizes, *words).code == 0
