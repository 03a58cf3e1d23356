"""`alfa train`: experiments, results, and seeds."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import alfa.training
from alfa.cli.train import train
from alfa.config import compose
from alfa.methods import METHODS
from alfa.runs import Run


@pytest.fixture
def asked(monkeypatch) -> list[tuple]:
    """Record the experiments and folders instead of training."""
    asked = []

    def train_run(run, **options):
        asked.append((run.experiment, run.path))
        raise KeyboardInterrupt

    monkeypatch.setattr(alfa.training, "train_run", train_run)
    return asked


def test_json_says_how_memory_was_used(alfa, tmp_path, settings) -> None:
    command = ["train", "sinusoid", "--out", tmp_path / "run", *settings, "--json"]
    answer = alfa(*command, "--set", "engine.tasks_at_once=2")
    assert answer.code == 0
    assert json.loads(answer.out)["engine"] == {
        "memory": "store",
        "tasks_at_once": 2,
        "processes": 1,
    }


def test_plain_lines_say_which_part_was_chosen(alfa, tmp_path, settings) -> None:
    command = ["train", "sinusoid", "--out", tmp_path / "run", *settings]
    answer = alfa(*command, "--set", "engine.tasks_at_once=2")
    told = "run: memory: store (chosen), 2 tasks at once (requested); needs about 0.0 GB"
    assert answer.err.startswith(told)


# --- the target


@pytest.mark.parametrize(
    ("words", "choices", "folder"),
    [
        (["strokes-demo"], {}, "strokes-demo"),
        (["varied", "--method", "proto-maml"], {"method": "proto-maml"}, "varied-proto-maml"),
        (
            ["cifar-fs", "--method", "maml", "--backbone", "resnet12", "--way", "3", "--shot", "1"],
            {"method": "maml", "backbone": "resnet12", "way": 3, "shot": 1},
            "cifar-fs-maml-resnet12-3way-1shot",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_target_and_choices_compose_an_experiment(
    alfa, asked, tmp_path, monkeypatch, words, choices, folder
) -> None:
    monkeypatch.chdir(tmp_path)
    assert alfa("train", *words, "--set", "outer.num_iterations=3", "--seed", "4").code == 130
    overrides = ["outer.num_iterations=3", "seed=4"]
    assert asked == [
        (compose(words[0], **choices, overrides=overrides), Path("runs") / folder),
    ]


def test_choices_change_an_experiment_of_a_file(alfa, asked, tmp_path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('[tasks]\nname = "images"\n[model]\nname = "conv4"\nfilters = 8\n')
    out = ["--out", tmp_path / "run"]
    choices = ["--method", "alfa+proto-maml", "--backbone", "resnet12", "--shot", "2"]
    assert alfa("train", file, *choices, *out).code == 130
    assert alfa("train", file, *out).code == 130
    changed, plain = (experiment for experiment, _ in asked)
    assert (changed.init.name, changed.rule.name) == ("prototype-head", "alfa")
    assert (changed.model.name, changed.tasks.options["shot"]) == ("resnet12", 2)
    assert (plain.init.name, plain.rule.name, plain.model.name) == ("learned", "sgd", "conv4")
    assert plain.model.options["filters"] == 8


def test_a_dataset_is_preferred_to_a_folder_of_its_name(
    alfa, refused, asked, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "strokes").mkdir()
    assert alfa("train", "strokes").code == 130
    assert asked[0][0] == compose("strokes")
    assert "found no folder of class folders under" in refused("train", "./strokes")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["strokes-dem"], "there is no dataset 'strokes-dem'; known: cifar-fs, cub, "),
        (["strokes-dem"], "Did you mean 'strokes-demo'?"),
        (["folder"], "there is no dataset 'folder'"),
        (["images"], "there is no dataset 'images'"),
        (["nowhere/pets"], "nowhere/pets does not exist; give the folder or the archive"),
        (["nowhere.zip"], "nowhere.zip does not exist; give the folder or the archive"),
        (["strokes", "--method", "mamal"], "Did you mean 'maml'?"),
        (["strokes", "--backbone", "conv5"], "Did you mean 'conv4'?"),
        (["sinusoid", "--way", "3"], "tasks.way is not a known key"),
        (["strokes-demo", "--resume", "run"], "from the run; omit TARGET."),
        (["--resume", "run", "--method", "maml", "--shot", "1"], "omit --method and --shot."),
        (["--resume", "run", "--seeds", "2"], "omit --seeds."),
        (["strokes", "--on-problem", "skip"], "--on-problem applies only to a folder of images"),
        (["strokes", "--on-problem", "ignore"], "is 'ignore', which is not one of 'stop'"),
    ],
)
def test_a_target_or_choice_that_does_not_fit_is_refused(
    refused, tmp_path, monkeypatch, words, told
) -> None:
    monkeypatch.chdir(tmp_path)
    assert told in refused("train", *words)
    assert not list(tmp_path.iterdir())


def test_the_help_lists_the_methods() -> None:
    assert set(METHODS) <= set(re.findall(r"`([\w+-]+)`", train.__doc__))


# --- several seeds


@pytest.fixture(scope="module")
def group(tmp_path_factory, settings) -> Path:
    """A folder with runs of two seeds."""
    from alfa.cli.main import main

    path = tmp_path_factory.mktemp("seeds") / "group"
    words = ["train", "sinusoid", "--seed", "3", "--seeds", "2", "--out", str(path), *settings]
    with pytest.raises(SystemExit) as caught:
        main([*words, "--json"])
    assert caught.value.code == 0
    return path


def test_each_seed_is_an_ordinary_run(alfa, group: Path, settings, tmp_path) -> None:
    assert sorted(path.name for path in group.iterdir()) == ["seed-3", "seed-4"]
    words = ["train", "sinusoid", "--seed", "4", "--out", tmp_path / "run", *settings, "--json"]
    alone = json.loads(alfa(*words).out)
    assert Run.open(group / "seed-4").result["test"] == alone["test"]


def test_complete_seeds_are_skipped_and_the_statistics_are_printed(
    alfa, group: Path, settings, tmp_path
) -> None:
    path = Path(shutil.copytree(group, tmp_path / "group"))
    words = ["train", "sinusoid", "--seed", "3", "--seeds", "3", "--out", path, *settings]
    before = (path / "seed-3/result.json").stat().st_mtime_ns
    answer = alfa(*words)
    assert answer.code == 0, answer.err
    assert "seed-3: already complete\nseed-4: already complete\nseed-5: memory" in answer.err
    assert (path / "seed-3/result.json").stat().st_mtime_ns == before
    content = json.loads(alfa(*words, "--json").out)
    losses = [content["runs"][f"seed-{seed}"]["test"]["loss"] for seed in (3, 4, 5)]
    assert content["seeds"]["mean"] == pytest.approx(sum(losses) / 3)
    assert content["seeds"]["num_runs"] == 3
    mean, std, interval = (content["seeds"][key] for key in ("mean", "std", "interval"))
    told = f"over 3 seeds: loss {mean:.4f} +- {interval:.4f}, std {std:.4f} (95 % interval"
    assert told in answer.out
    assert "seed-5" in answer.out


def test_seeds_that_are_not_complete_are_resumed_if_asked(
    alfa, refused, group: Path, settings, tmp_path
) -> None:
    path = Path(shutil.copytree(group, tmp_path / "group"))
    words = ["train", "sinusoid", "--seed", "3", "--seeds", "2", "--out", path, *settings]
    words += ["--set", "outer.num_iterations=25", "--json"]
    assert "seed-3 is not empty; continue it with --resume" in refused(*words)
    content = json.loads(alfa(*words, "--or-resume").out)
    assert [run["num_iterations"] for run in content["runs"].values()] == [25, 25]
    other = [*words, "--set", "inner.num_steps=2", "--or-resume"]
    assert "belongs to another experiment" in refused(*other)


def test_stopped_seeds_say_how_to_continue(alfa, asked, tmp_path) -> None:
    answer = alfa("train", "sinusoid", "--seeds", "2", "--out", tmp_path / "group")
    assert answer.code == 130
    assert answer.err == "alfa: stopped; run the same command with --or-resume to continue.\n"
    assert [path.name for _, path in asked] == ["seed-0"]


def test_seeds_need_one_process_and_a_folder_of_their_own(refused, trained, monkeypatch) -> None:
    words = ["train", "sinusoid", "--seeds", "2", "--out", trained]
    assert "is a run; choose another folder for --seeds" in refused(*words)
    assert "in one process" in refused(*words, "--processes", "2")
    assert "in one process" in refused(*words, "--max-restarts", "1")
    environment = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "1"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert "in one process" in refused(*words)
