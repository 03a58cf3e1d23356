"""Generated images and tasks are the same in every process."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import hashlib
from alfa.data import FewShot, Strokes, Varied

def digests():
    images = Strokes(num_classes=60, num_examples=8, seed=3).images()
    found = {"strokes": images.images.tobytes()}
    tasks = {
        "few-shot": FewShot(images, way=4, shot=2, num_query=3),
        "augmented": FewShot(images, way=4, shot=2, num_query=3, augment=True),
        "varied": Varied([images]),
    }
    for name, drawn in tasks.items():
        for split in images.splits:
            groups = drawn.groups(11, num_tasks=2, split=split, seed=6)
            parts = ("support_x", "support_y", "query_x", "query_y")
            found[name, split] = b"".join(
                getattr(group.episode, part).numpy().tobytes() for group in groups for part in parts
            )
    return {key: hashlib.sha256(content).hexdigest() for key, content in found.items()}
"""


def test_another_process_draws_the_same() -> None:
    command = [sys.executable, "-c", f"{CODE}\nprint(digests())"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    scope: dict = {}
    exec(CODE, scope)
    here = scope["digests"]()
    # Only training images are augmented.
    assert len(set(here.values())) == 8
    assert done.stdout == f"{here}\n"
