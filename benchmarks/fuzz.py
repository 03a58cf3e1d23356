"""Commands with randomly corrupted files.

    python benchmarks/fuzz.py run COUNT [KIND...]   COUNT inputs of each kind (default: all kinds)
    python benchmarks/fuzz.py report                writes docs/results/fuzzing.md

A command must succeed or report one clear error. It fails if it raises another exception, takes
longer than 20 seconds, crashes, or writes a file outside its folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import tomli_w
import torch
from _common import table, write_part
from PIL import Image

from alfa._io import write_atomic
from alfa.cli.main import main
from alfa.config import compose, to_dict
from alfa.paper import TABLES, Cell

RESULTS = Path("docs/results/fuzzing.json")
PAGE = Path("docs/results/fuzzing.md")
LONGEST = 20.0
# Words that parsers may misread.
WORDS = (
    *("0", "-1", "1", "99999999999999999999", "1e999", "nan", "inf", "true", "null", "none", '""'),
    *("[]", "{}", "[[[[[[", "../../x", "/etc/passwd", "\\", "\x00", "\n", '"', "'", "=", "#", ","),
    *("%s%n", "\u202e", "\U0001f4a9", "a" * 5000, "-", ".", "~", "*", "con", "\ud7ff", "1_0"),
    # Deeper than a recursive parser can read.
    *("[" * 5000, '{"a":' * 5000, "{a=" * 5000),
)


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Return the content with one to six random changes."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 6)):
        size = len(changed)
        place = rng.randrange(size + 1)
        piece = changed[place : place + rng.randint(1, 1 + size // 8)]
        kind = rng.randrange(8)
        if kind == 0 and place < size:
            changed[place] ^= 1 << rng.randrange(8)
        elif kind == 1 and place < size:
            changed[place] = rng.randrange(256)
        elif kind == 2:
            del changed[place : place + len(piece)]
        elif kind == 3:
            changed[place:place] = piece
        elif kind == 4:
            other = rng.randrange(size + 1)
            changed[other : other + len(piece)] = piece
        elif kind == 5 and rng.random() < 0.3:
            del changed[place:]
        elif kind == 6:
            changed[place:place] = rng.choice(WORDS).encode("utf-8", "surrogatepass")
        else:
            _replace_token(changed, rng)
    return bytes(changed)


def _replace_token(changed: bytearray, rng: random.Random) -> None:
    """Replace a random word by another one."""
    separators = set(b" \n\t,:=[]{}\"'")
    places = [i for i, byte in enumerate(changed[:20_000]) if byte in separators]
    if len(places) < 2:
        return
    number = rng.randrange(len(places) - 1)
    word = rng.choice(WORDS).encode("utf-8", "surrogatepass")
    changed[places[number] + 1 : places[number + 1]] = word


class Kind:
    """A kind of input: valid files to corrupt, and the commands that read them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.make()

    def make(self) -> None:
        """Create the valid files."""

    def once(self, rng: random.Random) -> list[str]:
        """Corrupt a file and return the command that reads it."""
        raise NotImplementedError


class Configs(Kind):
    """Experiments."""

    def make(self) -> None:
        names = ("cifar-fs", "sinusoid", "strokes-demo", "varied")
        self.whole = [tomli_w.dumps(to_dict(compose(name))).encode() for name in names]

    def once(self, rng: random.Random) -> list[str]:
        path = self.folder / "experiment.toml"
        path.write_bytes(mutated(rng.choice(self.whole), rng))
        # The output folder exists but contains no valid run, so nothing is trained.
        blocked = self.folder / "used"
        blocked.mkdir(exist_ok=True)
        (blocked / "config.toml").touch()
        return ["train", str(path), "--out", str(blocked)]


class RunFolders(Kind):
    """Run folders: configuration, metrics, result, and signature."""

    names: tuple[str, ...] = ("config.toml", "metrics.jsonl", "result.json", "signature.json")

    def make(self) -> None:
        self.run = self.folder / "run"
        # A cell of the paper, so that reports contain its table and its learning curve.
        cell = TABLES["table8"].entries["alfa+maml", "5s-2x40"]
        assert isinstance(cell, Cell)
        config = self.folder / "cell.toml"
        config.write_text(tomli_w.dumps(to_dict(cell.experiment)))
        small = ("outer.num_iterations=4", "test.num_tasks=2", "test.ensemble=2")
        words = [word for setting in small for word in ("--set", setting)]
        called(["train", str(config), "--out", str(self.run), *words])
        metrics = self.run / "metrics.jsonl"
        first = {**json.loads(metrics.read_text()), "iteration": 2}
        metrics.write_text(f"{json.dumps(first)}\n{metrics.read_text()}")
        self.files = [file for name in self.names for file in self.run.glob(name)]
        self.whole = {file: file.read_bytes() for file in self.files}

    def once(self, rng: random.Random) -> list[str]:
        for file, content in self.whole.items():
            file.write_bytes(content)
        file = rng.choice(self.files)
        file.write_bytes(mutated(self.whole[file], rng))
        commands = [
            ["evaluate", str(self.run), "--num-tasks", "2"],
            ["evaluate", str(self.run), "--num-tasks", "2", "--checkpoint", "ensemble"],
            ["report", str(self.run), "--out", str(self.folder / "report.html")],
            ["compare", str(self.run), str(self.run), "--num-tasks", "2"],
            ["train", "--resume", str(self.run), "--set", "outer.num_iterations=4"],
        ]
        return rng.choice(commands)


class Checkpoints(RunFolders):
    """Checkpoints."""

    names = ("checkpoints/*.safetensors",)


class SplitFiles(Kind):
    """Split files of an image folder."""

    def make(self) -> None:
        rng = np.random.default_rng(0)
        for name in "abcdef":
            for number in range(2):
                file = self.folder / "raw" / name / f"{number}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).save(file)
        splits = {"train": ["a", "b"], "val": ["c", "d"], "test": ["e", "f"]}
        rows = [f"{name},{split}" for split, names in splits.items() for name in names]
        self.whole = {
            "json": json.dumps(splits, indent=1).encode(),
            "csv": "\n".join(["class,split", *rows]).encode(),
        }

    def once(self, rng: random.Random) -> list[str]:
        ending = rng.choice(list(self.whole))
        file = self.folder / f"splits.{ending}"
        file.write_bytes(mutated(self.whole[ending], rng))
        raw, setting = str(self.folder / "raw"), f"split_file={file}"
        words = ["data", "prepare", "folder", raw, "--set", "split=file", "--set", setting]
        return [*words, "--name", "fuzzed", "--size", "8", "--force", "--workers", "1"]


class Images(SplitFiles):
    """Images in a folder."""

    def make(self) -> None:
        super().make()
        file = self.folder / "splits.json"
        file.write_bytes(self.whole["json"])
        pixels = np.random.default_rng(0).integers(0, 255, (24, 20, 3), np.uint8)
        self.images: list[bytes] = []
        for form, mode in (
            *(("PNG", "RGB"), ("PNG", "P"), ("PNG", "LA"), ("JPEG", "RGB"), ("JPEG", "CMYK")),
            *(("GIF", "P"), ("BMP", "RGB"), ("WEBP", "RGB"), ("TIFF", "RGB"), ("PPM", "RGB")),
        ):
            kept = io.BytesIO()
            Image.fromarray(pixels).convert(mode).save(kept, form)
            self.images.append(kept.getvalue())

    def once(self, rng: random.Random) -> list[str]:
        file = self.folder / "raw" / "a" / "0.png"
        file.write_bytes(mutated(rng.choice(self.images), rng))
        raw, setting = str(self.folder / "raw"), f"split_file={self.folder / 'splits.json'}"
        words = ["data", "prepare", "folder", raw, "--set", "split=file", "--set", setting]
        words += ["--on-problem", rng.choice(["stop", "skip"])]
        return [*words, "--name", "fuzzed", "--size", "8", "--force", "--workers", "1"]


class Archives(SplitFiles):
    """Archives of an image folder."""

    def make(self) -> None:
        super().make()
        raw = self.folder / "raw"
        self.archives: dict[str, bytes] = {}
        for ending, mode in (("tar", "w"), ("tar.gz", "w:gz"), ("tar.xz", "w:xz")):
            kept = io.BytesIO()
            with tarfile.open(fileobj=kept, mode=mode) as tar:  # type: ignore[call-overload]
                tar.add(raw, "pets")
            self.archives[ending] = kept.getvalue()
        kept = io.BytesIO()
        with zipfile.ZipFile(kept, "w", zipfile.ZIP_DEFLATED) as file:
            for path in raw.rglob("*.png"):
                file.write(path, f"pets/{path.relative_to(raw)}")
        self.archives["zip"] = kept.getvalue()

    def once(self, rng: random.Random) -> list[str]:
        ending = rng.choice(list(self.archives))
        place = self.folder / "archives"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        file = place / f"pets.{ending}"
        file.write_bytes(mutated(self.archives[ending], rng))
        words = ["data", "prepare", "folder", str(file), "--set", "split=ratio"]
        return [*words, "--name", "fuzzed", "--size", "8", "--force", "--workers", "1"]


class Stores(SplitFiles):
    """Prepared datasets."""

    def make(self) -> None:
        super().make()
        file = self.folder / "splits.json"
        file.write_bytes(self.whole["json"])
        words = ["data", "prepare", "folder", str(self.folder / "raw"), "--set", "split=file"]
        words += ["--set", f"split_file={file}", "--name", "fuzzed", "--size", "8"]
        called([*words, "--workers", "1"])
        files = [f for f in Path(os.environ["ALFA_DATA"]).rglob("*") if f.is_file()]
        self.stored = {f: f.read_bytes() for f in files if f.suffix in (".json", ".npy", ".txt")}

    def once(self, rng: random.Random) -> list[str]:
        for file, content in self.stored.items():
            file.write_bytes(content)
        file = rng.choice(list(self.stored))
        file.write_bytes(mutated(self.stored[file], rng))
        picture = str(self.folder / "episode.png")
        return rng.choice(
            [
                ["data", "list"],
                ["data", "verify", "fuzzed"],
                ["data", "show", "fuzzed", "--way", "2", "--shot", "1", "--out", picture],
            ]
        )


KINDS: tuple[type[Kind], ...] = (
    *(Configs, RunFolders, Checkpoints, SplitFiles, Archives, Images, Stores),
)


class _TooLongError(BaseException):
    """A command exceeded the time limit."""


def called(words: list[str]) -> tuple[int, str, str]:
    """Run a command in this process; return its exit code, output, and errors."""
    out, err = io.StringIO(), io.StringIO()

    def too_long(number: int, frame: FrameType | None) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    code: object = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(words)
    except SystemExit as error:
        code = error.code
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return int(str(code or 0)), out.getvalue(), err.getvalue()


def fault_of(words: list[str]) -> str | None:
    """Run a command; return its fault, or None if it behaves as required."""
    try:
        code, _, errors = called(words)
    except _TooLongError:
        return f"took longer than {LONGEST:.0f} seconds"
    except BaseException:
        return traceback.format_exc()
    if "Traceback" in errors:
        return errors
    if code == 0 or (code == 1 and words[:2] == ["data", "verify"]):
        return None
    if code != 2:
        return f"ended with exit code {code}: {errors}"
    sentences = [line for line in errors.splitlines() if line.startswith("alfa: ")]
    return None if sentences else f"printed no error of alfa: {errors!r}"


def tried(kind: type[Kind], seeds: range) -> Iterator[tuple[int, str | None]]:
    """Yield the fault of each input, or None."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        outer = Path(name)
        folder = outer / "inside" / "work"
        folder.mkdir(parents=True)
        os.environ["ALFA_DATA"] = str(folder / "data")
        os.chdir(folder)
        inputs = kind(folder)
        for seed in seeds:
            fault = fault_of(inputs.once(random.Random(f"{kind.__name__} {seed}")))
            outside = {p.name for p in outer.iterdir()} | {p.name for p in folder.parent.iterdir()}
            if fault is None and outside != {"inside", "work"}:
                fault = f"wrote {sorted(outside - {'inside', 'work'})} outside its folder"
            yield seed, fault


def in_child(work: Callable[[], None]) -> int:
    """Call a function in a forked process; return the exit status."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def run(count: int, *names: str) -> None:
    known_names = [kind.__name__ for kind in KINDS]
    if unknown := set(names) - set(known_names):
        sys.exit(f"Unknown kind {', '.join(sorted(unknown))}; known: {', '.join(known_names)}.")
    for kind in (kind for kind in KINDS if not names or kind.__name__ in names):
        began, faults = time.perf_counter(), 0
        for first in range(0, count, 250):
            seeds = range(first, min(first + 250, count))
            with tempfile.NamedTemporaryFile("r+") as log:

                def work(kind: type[Kind] = kind, seeds: range = seeds, to: str = log.name) -> None:
                    with open(to, "w") as file:
                        for seed, fault in tried(kind, seeds):
                            print(json.dumps([seed, fault]), file=file, flush=True)

                status = in_child(work)
                lines = [json.loads(line) for line in log.read().splitlines()]
            for seed, fault in lines:
                if fault is not None:
                    faults += 1
                    print(f"{kind.__name__} {seed}: {fault}", flush=True)
            if status != 0 or len(lines) != len(seeds):
                faults += 1
                print(
                    f"{kind.__name__}: its process died after {len(lines)} of {len(seeds)} inputs"
                )
        seconds = time.perf_counter() - began
        doc = (kind.__doc__ or "").strip().rstrip(".").lower()
        found = {**known(), kind.__name__: {"title": doc, "inputs": count, "faults": faults}}
        write_atomic(RESULTS, (json.dumps(found, indent=1) + "\n").encode())
        print(f"{kind.__name__}: {count} inputs, {faults} faults, {seconds:.0f} s", flush=True)


def known() -> dict[str, dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def report() -> None:
    found = known()
    rows = [[row["title"], f"{row['inputs']:,}", str(row["faults"])] for row in found.values()]
    total = [sum(row[key] for row in found.values()) for key in ("inputs", "faults")]
    rows.append(["**total**", f"**{total[0]:,}**", f"**{total[1]}**"])
    write_part(PAGE, "fuzz.py", table(["corrupted files", "inputs", "faults"], rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"] and len(sys.argv) > 2:
        run(int(sys.argv[2]), *sys.argv[3:])
    elif sys.argv[1:] == ["report"]:
        report()
    else:
        sys.exit(__doc__)
