"""`alfa export`: from a folder of images to a file that runs without torch."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from alfa import FewShotClassifier
from alfa.cli import export as command
from alfa.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "export.md"
# A different size per class, and names with special characters.
CLASSES = {"alef": (16, 16), "bet": (40, 25), 'naïve, "猫"': (9, 70)}


@pytest.fixture(scope="module")
def support(characters, tmp_path_factory: pytest.TempPathFactory) -> Path:
    images, labels = characters
    folder = tmp_path_factory.mktemp("support")
    for (name, size), label in zip(CLASSES.items(), ("alef", "bet", "gimel"), strict=True):
        (folder / name).mkdir()
        for number, image in enumerate(images[labels == label][:3]):
            Image.fromarray(image).resize(size).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def written(characters_run: Path, support: Path, tmp_path_factory) -> tuple[Path, dict]:
    """An exported file, and the JSON output."""
    path = tmp_path_factory.mktemp("written") / "letters.onnx"
    words = ["export", characters_run, "--support", support, "--to", path, "--json"]
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command.typer, "echo", lines.append)
        with pytest.raises(SystemExit) as caught:
            main([str(word) for word in words])
    assert caught.value.code == 0
    return path, json.loads("".join(lines))


@pytest.fixture
def refused_export(refused, characters_run: Path, support: Path, tmp_path: Path) -> Callable:
    """Run a command that must fail without writing anything."""

    def run(*words: str | Path, run: Path = characters_run, **changes: Path) -> str:
        places = {"support": support, "to": tmp_path / "model.onnx", **changes}
        where = [word for name, place in places.items() for word in (f"--{name}", place)]
        message = refused("export", run, *where, *words)
        assert not (tmp_path / "model.onnx").exists()
        return message

    return run


def test_the_file_and_what_is_told_of_it(written, characters_run: Path, support: Path) -> None:
    path, told = written
    assert told["path"] == str(path)
    assert told["classes"] == list(CLASSES)
    assert told["opset"] == 18
    assert told["input_shape"] == [1, 16, 16]
    assert told["num_checked"] == 9 + 24
    assert told["max_difference"] < 1e-5
    assert told["left_out"] == told["notes"] == []
    files = sorted(support.rglob("*.png"))
    clf = FewShotClassifier(characters_run).fit(files, [file.parent.name for file in files])
    model = onnxruntime.InferenceSession(path)
    for file in files:
        image = np.asarray(Image.open(file).convert("RGB"))
        found, familiarity = model.run(None, {"images": image[None]})
        assert familiarity == pytest.approx(clf.assess([file]).familiarity, abs=1e-5)
        np.testing.assert_allclose(found, clf.predict_proba([file]), atol=1e-5)


def test_the_example_needs_no_torch(written, support: Path, characters_run: Path) -> None:
    """Run the example of the documentation and the help without torch and alfa."""
    path, _ = written
    example = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(), re.S | re.M)[0]
    lines = [line for line in example.splitlines() if line]
    assert len(lines) == 5
    assert textwrap.indent("\n".join(lines), "        ") in str(command.export.__doc__)
    scan = support / "bet" / "0.png"
    example = example.replace("letters.onnx", str(path)).replace("scan.png", str(scan))
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules.update(torch=None, alfa=None)\n{example}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    files = sorted(support.rglob("*.png"))
    clf = FewShotClassifier(characters_run).fit(files, [file.parent.name for file in files])
    assert done.stdout == f"{clf.predict([scan])[0]}\n"


def test_what_is_printed(
    alfa, characters_run: Path, support: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Here:
        """Replace the export, which another test covers."""

        def __call__(self, classifier, path, *, check_on):
            from alfa.export import Exported

            images = list(check_on)
            # The files, in their original sizes.
            assert images == sorted(support.rglob("*.png"))
            classes = tuple(classifier.classes_.tolist())
            return Exported(bytes(120_000), classes, (1, 16, 16), len(images), 3.14e-6)

    monkeypatch.setattr("alfa.export.export_onnx", Here())
    path = tmp_path / "model.onnx"
    options = ("--num-steps", "1", "--checkpoint", "ensemble", "--head", "zero", "--threads", "1")
    answer = alfa("export", characters_run, "--support", support, "--to", path, *options)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == [
        '3 classes: alef, bet, naïve, "猫"',
        "input images have any size; the model resizes them to 16 x 16 in grayscale",
        "maximum difference from torch's probabilities: 3.1e-06 over 9 images",
        "",
        f"written: {path} (opset 18, 0.12 MB)",
    ]


def test_what_cannot_serve_is_refused(
    refused_export, support: Path, curves_run: Path, tmp_path: Path, monkeypatch
) -> None:
    gone = tmp_path / "gone"
    assert "must end in .onnx" in refused_export(to=tmp_path / "model.pt")
    (tmp_path / "folder.onnx").mkdir()
    with monkeypatch.context() as patch:
        # The command checks the output before it reads images.
        patch.setattr("alfa.data.photos.load_photos", None)
        assert "folder.onnx: Is a directory." in refused_export(to=tmp_path / "folder.onnx")
    assert f"{gone} is not a folder; pass a folder of class folders" in refused_export(support=gone)
    assert "was not trained on image classification" in refused_export(run=curves_run)
    assert f"{gone} is not a run: it does not exist" in refused_export(run=gone)
    assert "`--head` is 'prototyp'" in refused_export("--head", "prototyp")
    assert "Did you mean 'last'" in refused_export("--checkpoint", "lats")
    bad = tmp_path / "bad"
    (bad / "cat").mkdir(parents=True)
    (bad / "cat" / "1.png").write_bytes(b"")
    Image.new("L", (8, 8)).save(bad / "cat" / "2.png")
    told = f"{bad}/cat/1.png: is an empty file; fix it, or skip it with"
    assert told in refused_export(support=bad)
    deep = tmp_path / "deep"
    shutil.copytree(support, deep / "letters")
    told = f"{deep} has only the class letters, but at least 2 are required; pass the folder that"
    assert told in refused_export(support=deep)
    monkeypatch.setattr("alfa.export._onnx.importlib.util.find_spec", lambda name: None)
    message = refused_export()
    assert "pip install 'alfa[export]'" in message
