"""`alfa adapt`: from folders of images to a table and a page of predictions."""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import alfa.cli.adapt as alfa_adapt
import alfa.report.predictions as alfa_predictions
from alfa import FewShotClassifier
from alfa.assessment import share_interval
from alfa.config import parse_experiment
from alfa.data import Strokes, photos
from alfa.estimator._base import FewShotEstimator
from alfa.models import MODELS, register_model
from alfa.runs import Run


class Page(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def save(folder: Path, images: np.ndarray, names: list[str] | None = None) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in names or [f"{n}.png" for n in range(len(images))]]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    return paths


@pytest.fixture
def folders(characters, tmp_path: Path) -> tuple[Path, Path]:
    """Three support images and three query images for each of three classes."""
    images, labels = characters
    for name in ("alef", "bet", "gimel"):
        own = images[labels == name]
        save(tmp_path / "support" / name, own[:3])
        save(tmp_path / "asked" / name, own[3:])
    return tmp_path / "support", tmp_path / "asked"


@pytest.fixture
def adapt(alfa, characters_run: Path, folders, tmp_path: Path) -> Callable:
    support, asked = folders

    def run(*words: str | Path, predict: Path = asked, out: str = "out"):
        where = ("--support", support, "--predict", predict, "--out", tmp_path / out)
        return alfa("adapt", characters_run, *where, *words)

    return run


@pytest.fixture
def refused_adapt(refused, characters_run: Path, folders, tmp_path: Path) -> Callable:
    """Run a command that must fail without writing anything."""
    support, asked = folders

    def run(*words: str | Path, run: Path = characters_run, **changes: Path) -> str:
        places = {"support": support, "predict": asked, "out": tmp_path / "out", **changes}
        where = [word for name, place in places.items() for word in (f"--{name}", place)]
        message = refused("adapt", run, *where, *words)
        assert not (tmp_path / "out").exists()
        return message

    return run


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_it_predicts_what_the_classifier_does(
    adapt, folders, characters_run: Path, tmp_path: Path
) -> None:
    answer = adapt()
    assert answer.code == 0, answer.err
    assert answer.err == ""
    support, asked = folders
    learned, files = sorted(support.rglob("*.png")), sorted(asked.rglob("*.png"))
    clf = FewShotClassifier(characters_run).fit(learned, [path.parent.name for path in learned])
    expected = clf.predict_proba(files)
    found = rows(tmp_path / "out" / "predictions.csv")
    assert [row["file"] for row in found] == [str(path) for path in files]
    assert [row["label"] for row in found] == clf.predict(files).tolist()
    columns = [f"probability of {name}" for name in clf.classes_]
    assert list(found[0]) == ["file", "label", *columns]
    # All digits.
    assert [[float(row[c]) for c in columns] for row in found] == expected.tolist()
    both = clf.accuracies(files, [path.parent.name for path in files])
    lines = answer.out.splitlines()
    assert lines[0].split() == ["class", "support", "predicted", "right"]
    assert lines[1].split()[:2] == ["alef", "3"]
    for name, accuracy in both.items():
        low, high = (100 * end for end in share_interval(accuracy, 9))
        text = f"{100 * accuracy:.1f} %, between {int(low)} and {math.ceil(high)} %, on 9 images"
        assert f"{name} accuracy: {text}" in lines
    assert lines[-2:] == [f"written: {tmp_path}/out/predictions.{kind}" for kind in ("html", "csv")]


def test_a_model_whose_training_goes_on_is_said_to_be_one(
    alfa, adapt, characters_run: Path, folders, tmp_path: Path
) -> None:
    told = "training is not complete; results are preliminary"
    assert told not in adapt().err
    run = Path(shutil.copytree(characters_run, tmp_path / "run"))
    (run / "result.json").unlink()
    support, asked = folders
    where = ("--support", support, "--predict", asked, "--out", tmp_path / "again")
    for words in (["adapt", run, *where], ["evaluate", run, "--num-tasks", "2"]):
        answer = alfa(*words)
        assert answer.code == 0
        assert f"run: {told}" in answer.err


def test_the_figures_as_json(adapt, tmp_path: Path) -> None:
    answer = adapt("--json", "--num-steps", "2", "--checkpoint", "ensemble", "--head", "zero")
    assert answer.err == ""
    content = json.loads(answer.out)
    chosen = [content[key] for key in ("num_steps", "checkpoint", "head", "transductive")]
    assert chosen == [2, "ensemble", "zero", False]
    assert list(content["accuracies"]) == ["inductive", "transductive"]
    classes = content["classes"].values()
    assert sum(c["predicted"] for c in classes) == len(content["predictions"]) == 9
    right = sum(c["right"] for c in classes)
    assert right / 9 == pytest.approx(content["accuracies"]["inductive"])
    assert content["csv"] == str(tmp_path / "out" / "predictions.csv")
    found = rows(tmp_path / "out" / "predictions.csv")
    assert [p["label"] for p in content["predictions"]] == [row["label"] for row in found]
    assert content["left_out"] == []
    assert content["notes"] == []
    estimate = content["estimated_accuracy"]
    assert estimate["num_photos"] == 9
    assert 0 <= estimate["low"] <= estimate["accuracy"] <= estimate["high"] <= 1
    assert content["num_none"] == sum(p["label"] == "none of these" for p in content["predictions"])


def test_what_is_not_learned_is_told_and_kept(
    alfa, characters_run, folders, tmp_path: Path
) -> None:
    support, asked = folders
    words = ("--support", support, "--predict", asked, "--predict", support, "--head", "zero")
    answer = alfa("adapt", characters_run, *words, "--num-steps", "0", "--out", tmp_path / "out")
    assert answer.code == 0
    told = "after 0 steps the support loss is 1.1, no better than chance (1.1)"
    page = (tmp_path / "out" / "predictions.html").read_text()
    assert told in answer.out
    assert told in page
    both = "9 of the images to classify are also in the support set"
    assert both in answer.out
    assert both in page
    # The accuracy is at chance.
    assert "estimated accuracy on new images: about 33 %, between " in answer.out


def test_one_image_has_no_others_to_be_normalised_with(
    alfa, characters_run, folders, tmp_path: Path
) -> None:
    support, asked = folders
    (tmp_path / "one" / "bet").mkdir(parents=True)
    shutil.copy(next((asked / "bet").iterdir()), tmp_path / "one" / "bet")
    words = ("--support", support, "--predict", tmp_path / "one", "--out", tmp_path / "out")
    content = json.loads(alfa("adapt", characters_run, *words, "--json").out)
    assert content["num_known"] == 1
    assert list(content["accuracies"]) == ["inductive"]


def test_the_page_shows_every_picture_and_marks_what_is_wrong(adapt, tmp_path: Path) -> None:
    content = json.loads(adapt("--json").out)
    page = Page(tmp_path / "out" / "predictions.html")
    pictures = page.all("img")
    assert len(pictures) == 18
    assert all(str(p["src"]).startswith("data:image/png;base64,") for p in pictures)
    cards = [attributes for attributes in page.all("li") if "data-kind" in attributes]
    wrong = [p for p in content["predictions"] if p["label"] != p["true"]]
    assert [card["data-kind"] for card in cards].count("wrong") == len(wrong)
    assert page.text.count("wrong; correct: ") == len(wrong)
    # Sorted by class, and then by file.
    places = [(int(str(card["data-class"])), int(str(card["data-number"]))) for card in cards]
    assert places == sorted(places)
    assert "alfa adapt" in page.text


def test_transductive_predictions_are_normalised_together(
    adapt, folders, characters_run: Path, tmp_path: Path
) -> None:
    assert adapt("--transductive", "--json").code == 0
    support, asked = folders
    learned, files = sorted(support.rglob("*.png")), sorted(asked.rglob("*.png"))
    clf = FewShotClassifier(characters_run, transductive=True)
    clf.fit(learned, [path.parent.name for path in learned])
    found = rows(tmp_path / "out" / "predictions.csv")
    expected = clf.predict_proba(files)[:, 0]
    assert [float(row["probability of alef"]) for row in found] == expected.tolist()


def test_images_without_a_class_have_no_accuracy(adapt, folders, tmp_path: Path) -> None:
    _, asked = folders
    answer = adapt(predict=asked / "alef")
    assert answer.code == 0
    assert answer.out.split()[:3] == ["class", "support", "predicted"]
    assert answer.out.count("accuracy") == answer.out.count("estimated accuracy on new images") == 1
    assert "right" not in answer.out
    page = Page(tmp_path / "out" / "predictions.html")
    assert {card.get("data-kind") for card in page.all("li")} == {None, "unknown"}


def test_only_folders_of_known_classes_tell_the_truth(adapt, folders) -> None:
    _, asked = folders
    (asked / "bet").rename(asked / "else")
    (asked / "gimel" / "deep").mkdir()
    (asked / "gimel" / "0.png").rename(asked / "gimel" / "deep" / "0.png")
    content = json.loads(adapt("--json").out)
    true = {Path(p["file"]).parent.name: p["true"] for p in content["predictions"]}
    assert true == {"alef": "alef", "else": None, "gimel": "gimel", "deep": "gimel"}
    assert content["num_known"] == 6


def test_single_files_and_one_image_of_each_class(
    alfa, characters_run: Path, folders, tmp_path: Path
) -> None:
    support, asked = folders
    for path in support.glob("*/[12].png"):
        path.unlink()
    files = [asked / "alef" / "0.png", asked / "bet" / "1.png"]
    words = [word for file in files for word in ("--predict", file)]
    place = ("--support", support, "--out", tmp_path / "out")
    answer = alfa("adapt", characters_run, *place, *words)
    assert (answer.code, answer.err) == (0, "")
    found = rows(tmp_path / "out" / "predictions.csv")
    assert [row["file"] for row in found] == [str(file) for file in files]


class Pooled(nn.Module):
    """A custom network whose batch norm sees a single value per image."""

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, *, twice: bool = False
    ) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(input_shape[0], 6, 3), nn.BatchNorm1d(6)
        self.head = nn.Linear(6, num_outputs)
        self.twice = twice

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.conv(x).relu().mean((2, 3)))
        return self.head(self.norm(x.relu()) if self.twice else x)


@pytest.fixture
def pooled_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    monkeypatch.setattr(MODELS, "_parts", dict(MODELS._parts))
    register_model("pooled")(Pooled)

    def make(**options: bool) -> Path:
        content = {
            "tasks": {"name": "images", "dataset": "strokes", "size": 16, "num_query": 2},
            "model": {"name": "pooled", **options},
            "rule": {"name": "sgd"},
        }
        path = tmp_path / "pooled"
        learner, tasks, _ = Run.new(path, parse_experiment(content)).build("cpu")
        return Run.save(path, learner, tasks).path

    return make


def test_a_single_image_of_a_known_class_has_an_inductive_accuracy(
    alfa, folders, pooled_run, tmp_path: Path
) -> None:
    support, asked = folders
    for path in [*asked.glob("alef/[12].png"), *asked.glob("[bg]*/*.png")]:
        path.unlink()
    words = ("--support", support, "--predict", asked, "--out", tmp_path / "out", "--json")
    answer = alfa("adapt", pooled_run(), *words)
    assert (answer.code, answer.err) == (0, "")
    content = json.loads(answer.out)
    hit = content["predictions"][0]["label"] == "alef"
    assert content["accuracies"] == {"inductive": float(hit)}


@pytest.mark.filterwarnings("default::alfa.errors.AlfaWarning")
def test_images_that_depend_on_each_other_have_a_transductive_accuracy_alone(
    alfa, folders, pooled_run, tmp_path: Path
) -> None:
    support, asked = folders
    words = ("--support", support, "--predict", asked, "--out", tmp_path / "out", "--json")
    answer = alfa("adapt", pooled_run(twice=True), *words)
    assert answer.code == 0
    content = json.loads(answer.out)
    # The warning is part of the result.
    assert "depend on the other examples in the batch" in content["notes"][0]
    assert "depend on the other examples" in (tmp_path / "out" / "predictions.html").read_text()
    right = sum(of_class["right"] for of_class in content["classes"].values())
    assert content["accuracies"] == {"transductive": right / 9}


def test_of_many_images_only_some_are_normalised_together(
    adapt, folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every group contains all classes, and no image is predicted separately again."""
    monkeypatch.setattr(alfa_adapt, "_MAX_TOGETHER", 4)
    seen: list[tuple[int, bool]] = []
    outputs, predict, told = FewShotEstimator._outputs, FewShotClassifier.predict, []

    def spy(self, x, *, transductive=False):
        seen.append((len(x), transductive))
        return outputs(self, x, transductive=transductive)

    def listen(self, X):  # noqa: N803
        told.append(list(predict(self, X)))
        return told[-1]

    monkeypatch.setattr(FewShotEstimator, "_outputs", spy)
    monkeypatch.setattr(FewShotClassifier, "predict", listen)
    found = json.loads(adapt("--json").out)["accuracies"]
    assert sum(count for count, together in seen if not together) == 9
    assert [count for count, together in seen if together] == [3, 3, 3]
    right = sum(
        labels[n] == name for labels in told for n, name in enumerate(("alef", "bet", "gimel"))
    )
    assert found["transductive"] == pytest.approx(right / 9)


def test_the_accuracy_of_groups_counts_every_image_once(
    adapt, folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alfa_adapt, "_MAX_TOGETHER", 5)
    # Every second of nine images that are sorted by class.
    parts = iter([["alef", "alef", "bet", "gimel", "gimel"], ["gimel", "bet", "alef", "alef"]])

    def predict(self, X):  # noqa: N803
        labels = next(parts)
        assert len(X) == len(labels)
        return labels

    monkeypatch.setattr(FewShotClassifier, "predict", predict)
    assert json.loads(adapt("--json").out)["accuracies"]["transductive"] == pytest.approx(6 / 9)


def test_pictures_are_made_of_what_the_page_shows(
    adapt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    small = photos.thumbnail
    monkeypatch.setattr(
        photos,
        "thumbnail",
        lambda *args, **options: made.append(1) or small(*args, **options),
    )
    monkeypatch.setattr(alfa_predictions, "MOST_SHOWN", 4)
    monkeypatch.setattr(alfa_predictions, "MOST_OF_CLASS", 2)
    assert adapt().code == 0
    assert len(made) == 4 + 3 * 2
    pictures = Page(tmp_path / "out" / "predictions.html").all("img")
    assert len(pictures) == 10
    assert all(len(str(picture["src"])) > 50 for picture in pictures)
    assert len(rows(tmp_path / "out" / "predictions.csv")) == 9


NAMES = ('a, "b"', "<script>alert(1)<script>", "naïve 猫 [bold]x")


def test_any_names(alfa, characters, characters_run: Path, tmp_path: Path) -> None:
    images, labels = characters
    files = ["a,b.png", '"; x.png', "<img src=x onerror=alert(1)>.png"]
    for name, label in zip(NAMES, ("alef", "bet", "gimel"), strict=True):
        save(tmp_path / "support" / name, images[labels == label][:3])
        save(tmp_path / "asked" / name, images[labels == label][3:], files)
    words = ("--support", tmp_path / "support", "--predict", tmp_path / "asked")
    answer = alfa("adapt", characters_run, *words, "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    names = sorted(NAMES)
    assert all(name in answer.out for name in names)
    found = rows(tmp_path / "out" / "predictions.csv")
    assert list(found[0])[2:] == [f"probability of {name}" for name in names]
    assert all(Path(row["file"]).is_file() for row in found)
    assert {row["label"] for row in found} <= set(names)
    page = Page(tmp_path / "out" / "predictions.html")
    # Only our script, and no image or handler from the file names.
    assert len(page.all("script")) == 1
    assert not any(key.startswith("on") for _, attributes in page.tags for key in attributes)
    assert all(str(p["src"]).startswith("data:image/") for p in page.all("img"))
    assert names[0] in page.text


def test_a_file_is_no_formula_and_a_label_is_not_changed(
    alfa, characters, characters_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    images, labels = characters
    save(Path("support/=1+2"), images[labels == "alef"])
    save(Path("support/plain"), images[labels == "bet"])
    save(Path(), images[:1], ["=cmd.png"])
    answer = alfa("adapt", characters_run, "--support", "support", "--predict", "=cmd.png")
    assert answer.code == 0, answer.err
    assert "  - =1+2: spreadsheets interpret the name of this class as a formula" in answer.out
    header, line = Path("predictions/predictions.csv").read_text().splitlines()
    assert header == "file,label,probability of =1+2,probability of plain"
    assert line.startswith("./=cmd.png,")
    assert Path(line.partition(",")[0]).samefile("=cmd.png")
    assert line.split(",")[1] in ("=1+2", "plain")


def test_names_that_are_no_text(alfa, folders, characters_run: Path, tmp_path: Path) -> None:
    support, asked = folders
    odd = b"\xff\n.png"
    try:
        (asked / "alef" / "0.png").rename(asked / "alef" / odd.decode("utf-8", "surrogateescape"))
    except OSError:
        pytest.skip("this system has no such names")
    words = ("--support", support, "--predict", asked, "--out", tmp_path / "out")
    assert alfa("adapt", characters_run, *words).code == 0
    found = rows(tmp_path / "out" / "predictions.csv")
    assert any(row["file"].endswith("\\udcff\n.png") for row in found)
    assert "\\udcff\\n.png" in Page(tmp_path / "out" / "predictions.html").text


def test_all_images_that_cannot_be_read_are_named_before_anything_is_written(
    adapt, folders, tmp_path: Path
) -> None:
    support, asked = folders
    (support / "alef" / "0.png").write_bytes(b"")
    (asked / "bet" / "1.png").write_text("no image")
    answer = adapt()
    assert (answer.code, answer.out) == (2, "")
    first, *rest = answer.err.splitlines()
    assert first == (
        "alfa: nothing was written because of 2 problems; fix them, or skip them with "
        "`--on-problem skip`:"
    )
    assert rest == [
        f"  - {support}/alef/0.png: is an empty file",
        f"  - {asked}/bet/1.png: is not an image, or its format is not supported",
    ]
    assert not (tmp_path / "out").exists()


def test_images_that_cannot_be_read_can_be_left_out(adapt, folders, tmp_path: Path) -> None:
    support, asked = folders
    (support / "alef" / "0.png").write_bytes(b"")
    (asked / "bet" / "1.png").write_text("no image")
    answer = adapt("--on-problem", "skip")
    assert answer.code == 0
    assert f"skipped: 2\n  - {support}/alef/0.png: is an empty file\n" in answer.out
    assert len(rows(tmp_path / "out" / "predictions.csv")) == 8
    page = Page(tmp_path / "out" / "predictions.html").text
    assert f"skipped: {asked}/bet/1.png: is not an image" in page


def test_one_image_that_cannot_be_read_is_one_sentence(refused_adapt, folders) -> None:
    support, _ = folders
    (support / "alef" / "0.png").write_bytes(b"")
    assert refused_adapt() == (
        f"alfa: {support}/alef/0.png: is an empty file; fix it, or skip it with "
        "`--on-problem skip`.\n"
    )


def test_few_notes_are_printed_and_all_are_in_the_json(adapt, folders) -> None:
    support, asked = folders
    for folder in [*support.iterdir(), *asked.iterdir()]:
        (folder / "notes.txt").write_text("x")
    out = adapt().out
    assert "notes: 6\n" in out
    assert out.count("skipped files that are not images: notes.txt") == 5
    assert "  and 1 more in the output of --json" in out
    assert len(json.loads(adapt("--json", "--force").out)["notes"]) == 6


def test_a_folder_that_is_not_empty_is_kept(adapt, refused, tmp_path: Path) -> None:
    assert adapt("--num-steps", "0").code == 0
    out = tmp_path / "out"
    (out / "mine.txt").write_text("mine")
    before = (out / "predictions.csv").read_bytes()
    answer = adapt()
    assert answer.code == 2
    assert answer.err == (
        f"alfa: {out} is not empty; change --out, or replace predictions with --force.\n"
    )
    assert (out / "predictions.csv").read_bytes() == before
    assert adapt("--force").code == 0
    assert (out / "predictions.csv").read_bytes() != before
    assert sorted(path.name for path in out.iterdir()) == [
        *("mine.txt", "predictions.csv", "predictions.html")
    ]
    assert "must be a folder, but" in adapt(out="out/mine.txt").err


def test_where_nothing_can_be_written_is_told_before_the_work(
    adapt, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("alfa.data.photos.load_photos", None)
    (tmp_path / "file").write_text("mine")
    answer = adapt(out="file/deep/out")
    assert (answer.code, answer.err) == (
        2,
        f"alfa: cannot access {tmp_path / 'file'}: Not a directory.\n",
    )
    (tmp_path / "out/predictions.csv").mkdir(parents=True)
    assert "predictions.csv: Is a directory." in adapt("--force").err


def test_what_cannot_serve_is_refused(refused_adapt, curves_run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    gone = tmp_path / "gone"
    assert "empty has no class folders with images" in refused_adapt(support=tmp_path / "empty")
    assert f"{gone} is not a folder; pass a folder of class folders" in refused_adapt(support=gone)
    assert f"there is no file or folder {gone}." in refused_adapt(predict=gone)
    assert f"there are no images in {tmp_path}/empty" in refused_adapt(predict=tmp_path / "empty")
    assert "was not trained on image classification" in refused_adapt(run=curves_run)
    assert f"{gone} is not a run: it does not exist" in refused_adapt(run=gone)
    assert "`--head` is 'prototyp'" in refused_adapt("--head", "prototyp")
    assert "Did you mean 'last'" in refused_adapt("--checkpoint", "lats")
    assert "Did you mean 'skip'" in refused_adapt("--on-problem", "skp")
    assert "--device is 'gpu'" in refused_adapt("--device", "gpu")
    assert "--num-steps" in refused_adapt("--num-steps", "-1")


def test_a_single_class_is_refused(refused_adapt, folders, tmp_path: Path) -> None:
    deep = tmp_path / "deep"
    shutil.copytree(folders[0], deep / "letters")
    told = f"{deep} has only the class letters, but at least 2 are required; pass the folder that"
    assert told in refused_adapt(support=deep)


def test_a_run_whose_tasks_do_not_say_how_images_are_normalised_is_refused(
    refused_adapt, characters_run: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(characters_run, tmp_path / "run"))
    signature = json.loads((run / "signature.json").read_text())
    (run / "signature.json").write_text(json.dumps({**signature, "mean": [], "std": []}))
    assert "cannot classify image files: image files need 1 or 3 channels" in refused_adapt(run=run)


def test_more_classes_than_the_last_layer_has(alfa, refused, linear_run, tmp_path: Path) -> None:
    images = Strokes(num_classes=6, num_examples=2, size=16).images().images[:, 0]
    for number in range(6):
        save(tmp_path / "support" / f"{number}", images[2 * number : 2 * number + 2])
    words = ("--support", tmp_path / "support", "--predict", tmp_path / "support" / "0")
    words = (*words, "--out", tmp_path / "out")
    message = refused("adapt", linear_run, *words)
    assert "has 5 outputs, too few for 6 classes" in message
    assert not (tmp_path / "out").exists()
    assert alfa("adapt", linear_run, *words, "--head", "prototype").code == 0
