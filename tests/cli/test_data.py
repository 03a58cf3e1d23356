"""`alfa data`: output and errors."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from alfa.data.sources import SOURCES, ManualDownload, RemoteFile, register_source
from alfa.data.sources._base import Item, Listing, Source, Workspace
from alfa.errors import DataError


class Pets(Source):
    """Folders ``train/<class>/*``."""

    title = "Some pets"
    size = 6
    published: ClassVar = {"train": (2, 10), "test": (1, 5)}

    def __init__(self, *, seed: int = 0, split: str = "folders") -> None:
        self.seed, self.split = seed, split

    def find(self, path: Path, *, work: Workspace) -> Listing:
        if not (path / "train").is_dir():
            raise DataError(f"there are no pets in {path}.")
        return Listing(
            {
                "train": {
                    folder.name: [
                        Item(f"{folder.name}/{file.name}", file.read_bytes)
                        for file in sorted(folder.iterdir())
                    ]
                    for folder in sorted((path / "train").iterdir())
                }
            }
        )


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch) -> Iterator[Path]:
    """An empty data folder, and a dataset that only the test registers."""
    monkeypatch.setenv("ALFA_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(SOURCES, "_parts", dict(SOURCES._parts))
    register_source("pets")(Pets)
    return tmp_path / "data"


@pytest.fixture
def pets(root: Path) -> Path:
    """Images in the default folder of `prepare`."""
    for number, name in enumerate(("cat", "dog")):
        folder = root / "raw/pets/train" / name
        folder.mkdir(parents=True)
        for image in range(5):
            rng = np.random.default_rng(10 * number + image)
            file = io.BytesIO()
            Image.fromarray(rng.integers(0, 256, (6, 6, 3), np.uint8)).save(file, "PNG")
            (folder / f"{image}.png").write_bytes(file.getvalue())
    return root / "raw/pets"


# --- prepare


def test_prepare_prints_the_counts_beside_the_published(alfa, pets: Path, root: Path) -> None:
    answer = alfa("data", "prepare", "pets")
    assert answer.code == 0
    rows = [line.split() for line in answer.out.splitlines()]
    assert ["train", "2", "10", "2", "10"] in rows
    assert ["test", "0", "0", "1", "5"] in rows
    assert f"prepared: {root / 'stores/pets-6'}" in answer.out
    first, last = answer.err.splitlines()
    assert first == f"pets: looking for images in {pets}"
    assert last.startswith("pets: 10 of 10 images, ")


def test_prepare_prints_json_and_nothing_else(alfa, pets: Path, root: Path) -> None:
    answer = alfa("data", "prepare", "pets", pets, "--size", "4", "--name", "mine", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert json.loads(answer.out) == {
        "dataset": "mine",
        "path": str(root / "stores/mine-4"),
        "size": 4,
        "num_channels": 3,
        "splits": {"train": {"classes": 2, "images": 10}},
        "published": {
            "train": {"classes": 2, "images": 10},
            "test": {"classes": 1, "images": 5},
        },
        "left_out": [],
        "changed": [],
        "notes": [f"looking for images in {pets}"],
    }


def test_prepare_says_that_nothing_was_to_be_done(alfa, pets: Path) -> None:
    assert alfa("data", "prepare", "pets").code == 0
    answer = alfa("data", "prepare", "pets")
    assert answer.code == 0
    assert "already has images of the same names; --force replaces it" in answer.err
    assert "--force replaces it" not in alfa("data", "prepare", "pets", "--force").err


def test_problems_are_listed_below_one_line(alfa, pets: Path, root: Path) -> None:
    (pets / "train/cat/1.png").write_text("rubbish")
    (pets / "train/owl").mkdir()
    answer = alfa("data", "prepare", "pets", "--json")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.splitlines() == [
        "alfa: pets was not prepared because of 2 problems; fix them, or skip them with "
        f"`--on-problem skip`. All are listed in {root / 'reports/pets-6.txt'}:",
        "  - train/owl: the class has no images",
        "  - cat/1.png: is not an image, or its format is not supported",
    ]
    assert not (root / "stores/pets-6").exists()


def test_what_is_left_out_is_printed(alfa, pets: Path) -> None:
    for number in range(5):
        (pets / f"train/cat/{number}.png").write_text("rubbish")
    (pets / "train/dog/1.png").write_text("[bold]rubbish")
    answer = alfa("data", "prepare", "pets", "--on-problem", "skip")
    assert answer.code == 0
    assert "skipped: 7" in answer.out
    assert "  - cat/0.png: is not an image" in answer.out
    assert "  and 2 more in index.json" in answer.out


def test_options_of_a_dataset_are_set(alfa, pets: Path, monkeypatch) -> None:
    made: list[Pets] = []
    monkeypatch.setattr(Pets, "find", lambda self, path, work: made.append(self) or Listing({}))
    alfa("data", "prepare", "pets", "--set", "seed=7", "--set", "split=ratio")
    assert (made[0].seed, made[0].split) == (7, "ratio")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--set", "seed"], "--set must be KEY=VALUE, such as split=ratio, got 'seed'."),
        (
            ["--set", "sed=1"],
            "pets has no option 'sed'; its options are seed, split. Did you mean 'seed'?",
        ),
        (["--set", "seed=many"], "--set seed=many: seed must be a valid integer"),
        (
            ["--on-problem", "ignore"],
            "`on_problem` is 'ignore', which is not one of 'stop', 'skip'",
        ),
        (["--name", "../up"], "`name` must contain only letters"),
        (["--size", "0"], "--size"),
        (["--workers", "0"], "--workers"),
    ],
)
def test_wrong_options_are_refused(refused, pets: Path, root: Path, arguments, told) -> None:
    assert told in refused("data", "prepare", "pets", *arguments)
    assert not (root / "stores").exists()


def test_an_unknown_dataset_is_refused(refused) -> None:
    for command in ("prepare", "download"):
        assert "Did you mean 'pets'?" in refused("data", command, "pet")


def test_a_dataset_that_is_not_there_is_refused(refused, root: Path, tmp_path: Path) -> None:
    message = refused("data", "prepare", "pets")
    assert f"{root / 'raw/pets'} does not exist; run `alfa data prepare pets PATH`." in message
    message = refused("data", "prepare", "omniglot")
    assert (
        f"{root / 'raw/omniglot'} does not exist; run `alfa data download omniglot`, or" in message
    )
    message = refused("data", "prepare", "pets", tmp_path, "--json")
    assert f"there are no pets in {tmp_path}" in message


def test_an_interrupt_is_told_in_one_line(alfa, pets: Path, monkeypatch) -> None:
    def interrupt(self, path: Path, *, work: Workspace) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Pets, "find", interrupt)
    answer = alfa("data", "prepare", "pets", "--json")
    told = "alfa: stopped; run the same command again to continue.\n"
    assert (answer.code, answer.out, answer.err) == (130, "", told)


# --- verify


def test_verify_prints_the_counts_and_that_all_is_well(alfa, pets: Path) -> None:
    alfa("data", "prepare", "pets")
    answer = alfa("data", "verify", "pets")
    assert answer.code == 0
    assert ["train", "2", "10", "2", "10"] in [line.split() for line in answer.out.splitlines()]
    assert answer.out.endswith("all 2 checksums are correct\n")
    as_json = json.loads(alfa("data", "verify", "pets", "--size", "6", "--json").out)
    assert as_json["faults"] == []
    assert as_json["splits"] == {"train": {"classes": 2, "images": 10}}


def test_verify_names_what_is_damaged(alfa, pets: Path, root: Path) -> None:
    alfa("data", "prepare", "pets")
    path = root / "stores/pets-6/images.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    answer = alfa("data", "verify", "pets")
    assert (answer.code, answer.out) == (2, "")
    assert "is damaged; run `alfa data prepare pets --size 6 --force`:" in answer.err
    assert answer.err.endswith("  - train/dog: the checksum of the pixels is wrong.\n")
    as_json = alfa("data", "verify", "pets", "--json")
    assert as_json.code == 2
    assert json.loads(as_json.out)["faults"] == ["train/dog: the checksum of the pixels is wrong."]


def test_verify_of_what_is_not_prepared_is_refused(refused) -> None:
    assert "pets is not prepared under" in refused("data", "verify", "pets")


# --- list


def test_list_shows_what_is_known_and_what_is_prepared(alfa, pets: Path, root: Path) -> None:
    alfa("data", "prepare", "pets")
    alfa("data", "prepare", "pets", "--name", "mine")
    rows = {row["name"]: row for row in json.loads(alfa("data", "list", "--json").out)}
    assert rows["pets"] == {
        "name": "pets",
        "title": "Some pets",
        "size": 6,
        "published": {
            "train": {"classes": 2, "images": 10},
            "test": {"classes": 1, "images": 5},
        },
        "get": "your own",
        "addresses": [],
        "prepared": [{"size": 6, "path": str(root / "stores/pets-6")}],
    }
    assert rows["mine"]["prepared"] == [{"size": 6, "path": str(root / "stores/mine-6")}]
    assert rows["strokes"]["get"] == "generated"
    answer = alfa("data", "list")
    assert (answer.code, answer.err) == (0, "")
    assert "Some pets" in answer.out
    assert str(root) in answer.out


# --- download


def _files(tmp_path: Path, content: bytes) -> tuple[RemoteFile, ...]:
    (tmp_path / "published.zip").write_bytes(content)
    checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
    url = (tmp_path / "published.zip").as_uri()
    return (RemoteFile(url, "pets.zip", len(content), checksum, "https://example.org"),)


def test_download_puts_the_files_where_prepare_looks(
    alfa, root: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(Pets, "downloads", _files(tmp_path, b"content"))
    answer = alfa("data", "download", "pets")
    file = root / "raw/pets/pets.zip"
    assert (answer.code, answer.out) == (
        0,
        f"downloaded: {file}\nnext: alfa data prepare pets\n",
    )
    assert file.read_bytes() == b"content"
    assert "pets: pets.zip, 0.0 of 0.0 MB" in answer.err
    answer = alfa("data", "download", "pets", "--to", tmp_path / "here")
    assert answer.out.endswith(f"next: alfa data prepare pets {tmp_path / 'here'}\n")
    listed = {row["name"]: row for row in json.loads(alfa("data", "list", "--json").out)}
    assert listed["pets"]["get"] == "download (untried)"


def test_what_must_be_fetched_by_hand_is_told(refused, root: Path, monkeypatch) -> None:
    manual = ManualDownload("a form must be filled in", "pets.zip", "https://example.org")
    monkeypatch.setattr(Pets, "manual_download", manual)
    assert refused("data", "download", "pets") == (
        "alfa: pets must be downloaded manually: a form must be filled in. Download pets.zip from "
        f"https://example.org, put it into {root / 'raw/pets'}, and run `alfa data prepare pets`.\n"
    )


# --- help


@pytest.mark.parametrize("command", ["list", "prepare", "verify", "download"])
def test_every_command_has_help_with_examples(alfa, command: str) -> None:
    answer = alfa("data", command, "--help")
    assert answer.code == 0
    assert "Examples:" in answer.out


def test_without_a_command_it_helps(alfa) -> None:
    answer = alfa("data")
    assert "prepare" in answer.out + answer.err
    assert "Traceback" not in answer.err


def test_help_does_not_import_torch() -> None:
    code = """
import sys
from alfa.cli.main import main
try:
    main(["data", "prepare", "--help"])
finally:
    print("heavy:", *sorted({"torch", "numpy", "PIL"} & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "heavy:"
