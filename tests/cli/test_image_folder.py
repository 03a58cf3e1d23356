"""`alfa train FOLDER`: from a folder of images to a run."""

from __future__ import annotations

import json
import os
import shutil
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import alfa.cli.launch as alfa_launch
import alfa.training as alfa_train
from alfa import FewShotClassifier
from alfa.config import load_experiment
from alfa.runs import Run

TINY = {
    "model.filters": 4,
    "model.num_blocks": 2,
    "inner.num_steps": 1,
    "outer.num_iterations": 2,
    "outer.validate_every": 1,
    "outer.num_val_tasks": 2,
    "test.num_tasks": 3,
}
SETTINGS = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]


def draw(
    folder: Path,
    num_classes: int = 8,
    num_images: int = 4,
    *,
    grey: bool = False,
    side: int = 12,
) -> Path:
    """Draw noise with a bright spot, whose position depends on the class."""
    rng = np.random.default_rng(num_classes)
    for number in range(num_classes):
        place = folder / f"class-{number}"
        place.mkdir(parents=True)
        for image in range(num_images):
            pixels = rng.integers(0, 120, (side, side) if grey else (side, side, 3), np.uint8)
            pixels[number : number + 3, 2:5] = 250
            Image.fromarray(pixels).save(place / f"{image}.png")
    return folder


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight classes of four images; do not change them."""
    return draw(tmp_path_factory.mktemp("own") / "my pets")


@pytest.fixture
def pets(drawn: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(drawn, tmp_path / "my pets"))


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty data folder."""
    monkeypatch.setenv("ALFA_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Record the experiments instead of training them."""
    kept: list[dict[str, object]] = []

    def train_run(run, **options):
        kept.append({"experiment": run.experiment, "path": run.path})
        raise KeyboardInterrupt

    monkeypatch.setattr(alfa_train, "train_run", train_run)
    return kept


def stores(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "stores").iterdir())


# --- a run


def test_a_folder_becomes_an_ordinary_run(alfa, pets: Path, root: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    answer = alfa("train", pets, "--out", run, *SETTINGS, "--seed", "3")
    assert answer.code == 0, answer.err
    config = tomllib.loads((run / "config.toml").read_text())
    assert config["tasks"] == {
        "name": "images",
        "dataset": stores(root)[0].removesuffix("-32"),
        "size": 32,
        "way": 2,
        "shot": 2,
        "num_query": 2,
        "augment": False,
    }
    assert config["seed"] == 3
    assert "accuracy" in answer.out
    told = answer.err.splitlines()
    assert told[0] == (
        "my-pets: 8 classes of 4 images (32 images): 4 for training, 2 for validation, and 2 for "
        "test"
    )
    assert "meta-training on 4 classes hardly pays off, because it needs 20 or more" in told[1]
    assert "tasks: 2 classes with 2 support and 2 query images each" in told[2]
    assert f"looking for images in {pets}" in told[3]
    assert ": 32 of 32 images" in told[4]
    found = json.loads(alfa("evaluate", run, "--json").out)
    assert found["accuracy"] == Run(run).result["test"]["accuracy"]


def test_a_run_goes_on_to_the_same_numbers(alfa, pets: Path, root: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert alfa("train", pets, "--out", one, *SETTINGS, "--json").code == 0
    half = ["--set", "outer.num_iterations=1"]
    assert alfa("train", pets, "--out", two, *SETTINGS, *half, "--json").code == 0
    # The folder itself is no longer needed.
    shutil.rmtree(pets)
    answer = alfa("train", "--resume", two, "--set", "outer.num_iterations=2", "--json")
    assert answer.code == 0, answer.err
    assert Run(one).result["test"] == Run(two).result["test"]


def test_json_and_nothing_else_and_a_classifier_opens_the_run(
    alfa, pets: Path, root: Path, tmp_path: Path
) -> None:
    answer = alfa("train", pets, "--out", tmp_path / "run", *SETTINGS, "--json")
    assert (answer.code, answer.err) == (0, "")
    assert json.loads(answer.out)["num_iterations"] == 2
    # Without the training images, and with more classes than in the tasks.
    shutil.rmtree(root)
    files = sorted(pets.rglob("*.png"))
    labels = [path.parent.name for path in files]
    clf = FewShotClassifier(tmp_path / "run").fit(files, labels)
    assert clf.is_inductive
    assert clf.signature_.input_shape == (3, 32, 32)
    assert clf.predict_proba(files[:3]).shape == (3, 8)
    # The position of the bright spot separates the classes, even for these weights.
    assert clf.accuracy_.accuracy > 0.5


def test_a_run_that_is_there_goes_on_if_so_wished(alfa, pets: Path, tmp_path: Path) -> None:
    command = ["train", pets, "--out", tmp_path / "run", *SETTINGS, "--json"]
    before = alfa(*command)
    assert before.code == 0
    assert alfa(*command, "--or-resume").code == 0


def test_choices_change_the_experiment(alfa, pets, untrained, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert alfa("train", pets, "--method", "maml", "--shot", "1", "--backbone", "resnet12").code
    experiment, path = untrained[0]["experiment"], untrained[0]["path"]
    assert (experiment.init.name, experiment.rule.name) == ("learned", "sgd")
    assert (experiment.model.name, experiment.tasks.options["shot"]) == ("resnet12", 1)
    assert path == Path("runs/my-pets-maml-resnet12-1shot")


def test_seeds_share_the_prepared_images(alfa, pets, root, tmp_path) -> None:
    words = ["train", pets, "--out", tmp_path / "group", *SETTINGS, "--seeds", "2", "--json"]
    answer = alfa(*words)
    assert answer.code == 0, answer.err
    assert set(json.loads(answer.out)["runs"]) == {"seed-0", "seed-1"}
    assert len(stores(root)) == 1
    assert alfa(*words).code == 0


# --- preparation


def test_what_is_prepared_is_used_again(alfa, pets, root, untrained, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert alfa("train", pets).code == 130
    before = (root / "stores" / stores(root)[0] / "index.json").stat().st_mtime_ns
    answer = alfa("train", pets)
    assert f"my-pets: already prepared: {root / 'stores' / stores(root)[0]}\n" in answer.err
    assert "looking for images" not in answer.err
    assert (root / "stores" / stores(root)[0] / "index.json").stat().st_mtime_ns == before
    assert [kept["path"] for kept in untrained] == [Path("runs/my-pets")] * 2
    assert untrained[0]["experiment"] == untrained[1]["experiment"]


def test_what_is_damaged_is_prepared_anew(alfa, pets, root, untrained, tmp_path) -> None:
    command = ["train", pets, "--out", tmp_path / "run"]
    assert alfa(*command).code == 130
    store = root / "stores" / stores(root)[0]
    whole = (store / "images.npy").read_bytes()
    (store / "images.npy").write_bytes(whole[: len(whole) // 2])
    answer = alfa(*command)
    assert answer.code == 130
    assert "already prepared" not in answer.err
    assert f"{store} is damaged; preparing it again" in answer.err
    assert (store / "images.npy").read_bytes() == whole


def test_what_was_unpacked_by_one_that_was_killed_goes(
    alfa, pets, root, untrained, tmp_path
) -> None:
    old, new = root / ".unpacked-1", root / ".unpacked-2"
    # From a container, or another machine with the same disk.
    same = root / f".unpacked-{os.getpid()}"
    for folder in (old, new, same):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"x")
    yesterday = time.time() - 25 * 3600
    os.utime(old, (yesterday, yesterday))
    assert alfa("train", pets, "--out", tmp_path / "run").code == 130
    assert not old.exists()
    assert all((folder / "file").exists() for folder in (new, same))


def test_other_images_are_another_dataset(alfa, pets, root, untrained, tmp_path) -> None:
    other = draw(tmp_path / "other" / "my pets", num_images=5)
    for path in (pets, other):
        assert alfa("train", path, "--out", tmp_path / "run").code == 130
    (pets / "class-0/0.png").unlink()
    alfa("train", pets, "--out", tmp_path / "run")
    assert len(stores(root)) == 3
    assert all(name.startswith("my-pets-") for name in stores(root))


def test_grey_images_stay_grey(alfa, root, untrained, tmp_path) -> None:
    path = draw(tmp_path / "signs", grey=True)
    alfa("train", path, "--out", tmp_path / "run")
    index = json.loads((root / "stores" / stores(root)[0] / "index.json").read_text())
    assert (index["num_channels"], index["size"], index["changed"]) == (1, 32, [])


def test_large_images_take_longer_which_is_told(alfa, root, untrained, tmp_path) -> None:
    path = draw(tmp_path / "photos", num_images=2, side=60)
    answer = alfa("train", path, "--backbone", "conv4", "--out", tmp_path / "run")
    assert (
        "of 84 x 84 x 3; change settings with --set; tasks.size=32 trains six times as fast"
        in answer.err
    )
    assert stores(root)[0].endswith("-84")


def test_images_are_prepared_in_the_size_that_is_asked_for(
    alfa, pets, root, untrained, tmp_path
) -> None:
    alfa("train", pets, "--out", tmp_path / "run", "--set", "tasks.size=20")
    assert stores(root)[0].endswith("-20")
    assert untrained[0]["experiment"].tasks.options["size"] == 20


def test_an_archive_is_taken_and_leaves_nothing_unpacked(
    alfa, drawn, root, untrained, tmp_path
) -> None:
    archive = tmp_path / "pets.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for image in sorted(drawn.rglob("*.png")):
            file.write(image, image.relative_to(drawn.parent))
    answers = [alfa("train", archive, "--out", tmp_path / "run") for _ in range(2)]
    assert [answer.code for answer in answers] == [130, 130]
    assert "already prepared" in answers[1].err
    assert len(stores(root)) == 1
    assert [path.name for path in root.iterdir()] == ["stores"]


def test_unequal_classes_are_told_of(alfa, root, untrained, tmp_path) -> None:
    path = draw(tmp_path / "pets", num_classes=9, num_images=10)
    draw(tmp_path / "few", num_classes=1, num_images=3)
    (tmp_path / "few/class-0").rename(path / "class-9")
    answer = alfa("train", path, "--out", tmp_path / "run")
    assert "pets: skipped 1 class with fewer than 10 images: class-9\n" in answer.err
    options = untrained[0]["experiment"].tasks.options
    assert (options["way"], options["shot"], options["num_query"]) == (2, 5, 5)


def test_images_that_cannot_be_used_stop_it_or_are_left_out(
    alfa, refused, pets, root, untrained, tmp_path
) -> None:
    (pets / "class-3/1.png").write_text("rubbish")
    command = ["train", pets, "--out", tmp_path / "run", "--json"]
    message = refused(*command)
    assert "class-3/1.png: is not an image, or its format is not supported" in message
    assert "skip it with `--on-problem skip`" in message
    assert alfa(*command, "--on-problem", "skip").code == 130
    options = untrained[0]["experiment"].tasks.options
    assert (options["shot"], options["num_query"]) == (1, 2)


def test_what_is_trained_without_the_images_that_were_left_out_is_told(
    alfa, pets, root, untrained, tmp_path
) -> None:
    for name in ("class-3/1.png", "class-3/2.png"):
        (pets / name).write_text("rubbish")
    command = ["train", pets, "--out", tmp_path / "run", "--on-problem", "skip"]
    for again in range(2):
        told = alfa(*command).err
        planned, left = (
            told.index("8 classes of 4 images"),
            told.index("without the skipped images"),
        )
        assert planned < left
        assert (
            "my-pets: without the skipped images, 8 classes of 2 to 4 images (30 images): 4 for "
            "training, 2 for validation, and 2 for test\n"
        ) in told[left - 20 :]
        assert "classes with 1 support and 1 query images each" in told[left:]
        assert ("already prepared" in told) == bool(again)
    options = untrained[0]["experiment"].tasks.options
    assert (options["shot"], options["num_query"]) == (1, 1)


def test_what_is_told_is_told_once_where_nothing_was_left_out(
    alfa, pets, untrained, tmp_path
) -> None:
    answer = alfa("train", pets, "--out", tmp_path / "run", "--on-problem", "skip")
    assert answer.err.count("2 query images each") == 1
    assert "left out" not in answer.err


def test_a_class_of_which_one_image_can_be_used_is_refused_by_name(
    alfa, pets, untrained, tmp_path
) -> None:
    for number in range(3):
        (pets / "class-3" / f"{number}.png").write_text("rubbish")
    answer = alfa("train", pets, "--out", tmp_path / "run", "--on-problem", "skip")
    assert answer.code == 2
    last = answer.err.splitlines()[-1]
    assert "1 class with fewer than 2 usable images: " in last
    assert "/class-3. Repair the images" in last
    assert not untrained
    assert not (tmp_path / "run").exists()


def test_folders_inside_class_folders_are_told_of(alfa, pets, untrained, tmp_path) -> None:
    (pets / "class-2" / "more").mkdir()
    (pets / "class-2" / "0.png").rename(pets / "class-2" / "more" / "0.png")
    answer = alfa("train", pets, "--out", tmp_path / "run")
    assert "skipped folders inside 1 class" in answer.err
    assert "class-2 (more)" in answer.err


# --- several processes


def test_several_processes_are_given_the_experiment_in_a_file(
    alfa, pets, tmp_path, monkeypatch
) -> None:
    seen = []

    def launch(words, **options):
        seen.append((words, load_experiment(words[1])))

    monkeypatch.setattr(alfa_launch, "launch", launch)
    command = ["train", pets, "--out", tmp_path / "run", "--processes", "2", "--seed", "5"]
    assert alfa(*command).code == 0
    (words, experiment) = seen[0]
    assert words[2:4] == ["--out", str(tmp_path / "run")]
    assert experiment.seed == 5
    assert experiment.tasks.options["dataset"].startswith("my-pets-")
    assert not Path(words[1]).exists()


def test_torchrun_is_refused(refused, pets, root, monkeypatch) -> None:
    for key, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "here"}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("MASTER_PORT", "1")
    assert "only one process can prepare a folder of images; use --processes" in refused(
        "train", pets
    )
    assert not root.exists()


# --- errors


def _too_few(pets: Path) -> None:
    for number in range(3):
        shutil.rmtree(pets / f"class-{number}")


def _no_classes(pets: Path) -> None:
    shutil.rmtree(pets)
    pets.mkdir()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_too_few, "has 5 classes with at least 2 images, but needs 6"),
        (_no_classes, "found no folder of class folders under"),
        (shutil.rmtree, "does not exist; give the folder or the archive"),
    ],
)
def test_a_folder_that_cannot_serve_is_refused(
    refused, pets: Path, root: Path, tmp_path: Path, change: Callable[[Path], None], told: str
) -> None:
    change(pets)
    message = refused("train", pets, "--out", tmp_path / "run")
    assert told in message
    assert str(pets) in message
    assert not root.exists()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        (["--resume", "runs/old"], "--resume reads the experiment and folder from the run; omit"),
        (["--set", "outer.num_tasks=0"], "outer.num_tasks is 0, but must be greater than or"),
        (
            ["--set", "tasks.dataset=cub"],
            "tasks.dataset is 'cub', but the images come from a folder",
        ),
        (["--set", "tasks.shots=1"], "Did you mean 'shot'?"),
        (["--on-problem", "ignore"], "`--on-problem` is 'ignore', which is not one of 'stop'"),
    ],
)
def test_wrong_options_are_refused(refused, pets, root, tmp_path, extra, told) -> None:
    out = [] if "--resume" in extra else ["--out", tmp_path / "run"]
    assert told in refused("train", *extra, pets, *out, "--json")
    assert not root.exists()
    assert not (tmp_path / "run").exists()


def test_a_run_that_is_there_is_refused_before_anything_is_prepared(
    refused, pets, root, tmp_path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/notes.txt").touch()
    assert "is not empty" in refused("train", pets, "--out", tmp_path / "run")
    assert not root.exists()
