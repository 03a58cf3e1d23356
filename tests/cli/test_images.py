"""Training and testing on images from the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from alfa.cli.main import main

SMALL = {
    "model.filters": 4,
    "model.num_blocks": 2,
    "inner.num_steps": 2,
    "outer.num_iterations": 3,
    "outer.validate_every": 1,
    "outer.num_val_tasks": 3,
    "test.num_tasks": 4,
    "test.ensemble": 2,
    "tasks.way": 3,
    "tasks.shot": 2,
    "tasks.num_query": 3,
    "tasks.dataset": "spots",
}
SETTINGS = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def spots_run(spots_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run on images; do not change it."""
    path = tmp_path_factory.mktemp("spots") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALFA_DATA", str(spots_folder))
        with pytest.raises(SystemExit) as caught:
            main(["train", "strokes", "--out", str(path), *SETTINGS, "--json"])
    assert caught.value.code == 0
    return path


@pytest.fixture
def run(spots_run: Path, spots) -> Path:
    return spots_run


@pytest.fixture
def copied_run(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


def test_train_prints_the_accuracies(alfa, spots, tmp_path) -> None:
    answer = alfa("train", "strokes", "--out", tmp_path / "run", *SETTINGS)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    for found in (result["test"], result["ensemble"]):
        text = f"{100 * found['accuracy']:.2f} +- {100 * found['accuracy_interval']:.2f} %"
        assert text in answer.out
    assert "validation accuracy" in answer.err


def test_evaluate_takes_the_ensemble(alfa, run) -> None:
    answer = alfa("evaluate", run, "--checkpoint", "ensemble", "--json")
    found = json.loads(answer.out)
    expected = json.loads((run / "result.json").read_text())["ensemble"]
    assert found["num_models"] == 2
    assert found["accuracy"] == expected["accuracy"]
    assert found["checkpoint"] == "ensemble"
    assert "2 models" in alfa("evaluate", run, "--checkpoint", "ensemble").out


def test_evaluate_takes_tasks_of_another_kind(alfa, run) -> None:
    words = ["--way", "2", "--shot", "3", "--num-query", "4", "--num-steps", "1"]
    found = json.loads(alfa("evaluate", run, *words, "--json").out)
    assert found["num_steps"] == 1
    assert found["tasks"] == {
        "name": "images",
        "dataset": "spots",
        "augment": False,
        "way": 2,
        "shot": 3,
        "num_query": 4,
    }


def test_evaluate_takes_another_dataset(alfa, run) -> None:
    found = json.loads(
        alfa("evaluate", run, "--dataset", "strokes", "--num-tasks", "2", "--json").out
    )
    assert found["tasks"]["dataset"] == "strokes"
    assert 0 <= found["accuracy"] <= 1


def test_evaluate_takes_a_dataset_in_one_of_its_sizes(alfa, refused, run) -> None:
    words = ("evaluate", run, "--dataset", "spots", "--num-tasks", "2", "--size")
    assert json.loads(alfa(*words, "8", "--json").out)["tasks"]["size"] == 8
    assert "16" in refused(*words, "16")
    assert "--size requires --dataset" in refused("evaluate", run, "--size", "8")


def test_compare_takes_tasks_of_another_kind(alfa, run) -> None:
    words = ["--way", "2", "--shot", "3", "--num-query", "4", "--num-tasks", "2"]
    one = json.loads(alfa("evaluate", run, *words, "--json").out)
    rows = json.loads(alfa("compare", run, run, *words, "--json").out)
    assert [row["accuracy"] for row in rows] == [one["accuracy"]] * 2


@pytest.mark.parametrize("name", ["102", "none", "true"])
def test_a_dataset_may_be_called_like_a_value(refused, run, name) -> None:
    assert f"{name} is not prepared" in refused("evaluate", run, "--dataset", name)


def test_a_dataset_that_is_not_prepared_is_named(refused, run) -> None:
    assert "spotz is not prepared" in refused("evaluate", run, "--dataset", "spotz")


def test_more_classes_than_outputs_are_refused(refused, run) -> None:
    assert "with 3 outputs, but these tasks have (3, 8, 8) with 4" in refused(
        "evaluate", run, "--way", "4"
    )


def test_show_draws_an_episode(alfa, spots, tmp_path) -> None:
    words = ["--way", "3", "--shot", "2", "--num-query", "4", "--out", tmp_path / "sheet.png"]
    answer = alfa("data", "show", "spots", *words)
    assert (answer.code, answer.out) == (0, f"written: {tmp_path / 'sheet.png'}\n")
    with Image.open(tmp_path / "sheet.png") as picture:
        assert min(picture.size) > 100


def test_show_writes_png_alone(refused, spots, tmp_path) -> None:
    told = refused("data", "show", "spots", "--out", tmp_path / "sheet.jpg")
    assert "--out must end in .png, got" in told
    assert not (tmp_path / "sheet.jpg").exists()


def test_sizes_that_are_drawn_cannot_be_given(refused, tmp_path) -> None:
    words = ("data", "show", "strokes", "--varied", "--way", "3", "--num-query", "2")
    assert "cannot be combined with --way and --num-query" in refused(*words)


def test_show_of_too_small_classes_is_refused(refused, spots, tmp_path) -> None:
    message = refused("data", "show", "spots", "--way", "3", "--out", tmp_path / "sheet.png")
    assert "fewer than 20 images (`shot` + `num_query`): test-0 (9)" in message
    assert not (tmp_path / "sheet.png").exists()


def test_a_run_is_tested_elsewhere_without_the_images_it_was_trained_on(
    alfa, run, tmp_path, monkeypatch
) -> None:
    words = ("evaluate", run, "--dataset", "strokes", "--num-tasks", "2", "--json")
    before = alfa(*words).out
    monkeypatch.setenv("ALFA_DATA", str(tmp_path / "nothing"))
    assert alfa(*words).out == before


@pytest.mark.parametrize("content", [None, "", "{}", '{"input_shape": "wide"}'])
def test_a_missing_or_damaged_signature_is_a_sentence(
    refused, copied_run, content: str | None
) -> None:
    signature = copied_run / "signature.json"
    signature.unlink() if content is None else signature.write_text(content)
    assert "signature.json is missing or damaged" in refused("evaluate", copied_run)
