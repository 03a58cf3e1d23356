"""Write the run folder of the pretrained model `photos`, whose head needs no training.

python tools/photos_model.py
"""

from pathlib import Path

from alfa.backbones import MIXED_GROUPS as GROUPS
from alfa.backbones import open_backbone
from alfa.build import build_learner
from alfa.config import compose
from alfa.data import Signature
from alfa.runs import Checkpoint, Run, TrainingProgress

BACKBONE = "efficientnet-lite0-mixed"
# The features have their powers and norms, and the head determines the ratios of their groups.
OVERRIDES = ["model.power=1.0", "head.name=kernel-ridge", f"head.groups={list(GROUPS)}"]
PATH = Path("src/alfa/runs/models/photos")


def main() -> None:
    # No dataset is opened, so its name only describes the model.
    overrides = [*OVERRIDES, "tasks.dataset=photos", "outer.num_iterations=1"]
    experiment = compose(
        "cifar-fs", method="balanced-ridge", backbone=BACKBONE, overrides=overrides
    )
    size = open_backbone(BACKBONE).num_features
    signature = Signature((size,), 5, "cross_entropy", backbone=BACKBONE)
    run = Run.new(PATH, experiment)
    run.create(signature)
    Checkpoint.of(
        build_learner(experiment, signature),
        None,
        fingerprint=run.fingerprint,
        progress=TrainingProgress(iteration=1).model_dump(mode="json"),
    ).save(run.files.checkpoint("best"))


if __name__ == "__main__":
    main()
