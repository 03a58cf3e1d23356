"""Fixtures: plain networks with batch norm, and installed wheels with random weights."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from alfa.backbones import BACKBONES, BackboneCard, _base, backbone_cards

# Google's definition of EfficientNet: repeats, kernel, stride, expansion, inputs, and outputs.
_LITE_BLOCKS = (
    *("r1_k3_s1_e1_i32_o16", "r2_k3_s2_e6_i16_o24", "r2_k5_s2_e6_i24_o40", "r3_k3_s2_e6_i40_o80"),
    *("r3_k5_s1_e6_i80_o112", "r4_k5_s2_e6_i112_o192", "r1_k3_s1_e6_i192_o320"),
)
_LITE_SCALES = {"lite0": (1.0, 1.0), "lite1": (1.0, 1.1), "lite2": (1.1, 1.2)}
# The MobileNetV2 paper's table 2: expansion, outputs, repeats, stride.
_MOBILENET_BLOCKS = (
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)


class Same(nn.Conv2d):
    """A convolution with TensorFlow's padding."""

    def forward(self, x: Tensor) -> Tensor:
        pads: list[int] = []
        for side in reversed(x.shape[2:]):
            kernel, stride = self.kernel_size[0], self.stride[0]
            total = max(0, (math.ceil(side / stride) - 1) * stride + kernel - side)
            pads += [total // 2, total - total // 2]
        return super().forward(F.pad(x, pads))


class LiteBlock(nn.Module):
    def __init__(self, num_in: int, num_out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = num_in * expansion
        if expansion > 1:
            self._expand_conv = Same(num_in, width, 1, bias=False)
            self._bn0 = nn.BatchNorm2d(width, eps=1e-3)
        self._depthwise_conv = Same(width, width, kernel, stride, groups=width, bias=False)
        self._bn1 = nn.BatchNorm2d(width, eps=1e-3)
        self._project_conv = Same(width, num_out, 1, bias=False)
        self._bn2 = nn.BatchNorm2d(num_out, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu6(self._bn0(self._expand_conv(x))) if hasattr(self, "_expand_conv") else x
        y = F.relu6(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        return x + y if x.shape == y.shape else y


class Lite(nn.Module):
    """EfficientNet-Lite with batch norm and a classifier, and the names of the published files."""

    def __init__(self, width: float, depth: float) -> None:
        super().__init__()
        self._conv_stem = Same(3, 32, 3, 2, bias=False)
        self._bn0 = nn.BatchNorm2d(32, eps=1e-3)
        blocks = []
        for number, text in enumerate(_LITE_BLOCKS):
            repeats, kernel, stride, expansion, num_in, num_out = (
                int(word[1:]) for word in text.split("_")
            )
            if number not in (0, len(_LITE_BLOCKS) - 1):
                repeats = math.ceil(depth * repeats)
            num_in = 32 if number == 0 else _rounded(width * num_in)
            num_out = _rounded(width * num_out)
            blocks.append(LiteBlock(num_in, num_out, kernel, stride, expansion))
            blocks += [LiteBlock(num_out, num_out, kernel, 1, expansion) for _ in range(1, repeats)]
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = Same(num_out, 1280, 1, bias=False)
        self._bn1 = nn.BatchNorm2d(1280, eps=1e-3)
        self._fc = nn.Linear(1280, 1000)

    def features_of(self, x: Tensor) -> Tensor:
        x = F.relu6(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        return F.relu6(self._bn1(self._conv_head(x))).mean((2, 3))

    @property
    def classifier_of(self) -> nn.Linear:
        return self._fc


def _rounded(width: float) -> int:
    """Return the multiple of 8 that EfficientNet uses for a scaled width."""
    found = max(8, int(width + 4) // 8 * 8)
    return found + 8 if found < 0.9 * width else found


class ConvNormReLU6(nn.Sequential):
    def __init__(self, num_in: int, num_out: int, kernel: int, stride: int = 1, groups: int = 1):
        conv = nn.Conv2d(num_in, num_out, kernel, stride, kernel // 2, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(num_out), nn.ReLU6())


class MobileNetBlock(nn.Module):
    def __init__(self, num_in: int, num_out: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = num_in * expansion
        layers = [ConvNormReLU6(num_in, width, 1)] if expansion > 1 else []
        layers.append(ConvNormReLU6(width, width, 3, stride, groups=width))
        project = nn.Conv2d(width, num_out, 1, bias=False)
        self.conv = nn.Sequential(*layers, project, nn.BatchNorm2d(num_out))

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return x + y if x.shape == y.shape else y


class MobileNetV2(nn.Module):
    """MobileNetV2 with batch norm and a classifier, and torchvision's names."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [ConvNormReLU6(3, 32, 3, 2)]
        num_in = 32
        for expansion, num_out, repeats, stride in _MOBILENET_BLOCKS:
            for place in range(repeats):
                first = stride if place == 0 else 1
                layers.append(MobileNetBlock(num_in, num_out, first, expansion))
                num_in = num_out
        self.features = nn.Sequential(*layers, ConvNormReLU6(num_in, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def features_of(self, x: Tensor) -> Tensor:
        return self.features(x).mean((2, 3))

    @property
    def classifier_of(self) -> nn.Linear:
        return self.classifier[1]


Plain = Lite | MobileNetV2


@pytest.fixture
def plain() -> Callable[[str], Plain]:
    """Creates the plain network of a backbone by name, with random weights and statistics."""

    def make(name: str) -> Plain:
        kind = name.removeprefix("efficientnet-")
        network = Lite(*_LITE_SCALES[kind]) if kind in _LITE_SCALES else MobileNetV2()
        norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
        for norm in norms:
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, 0.5, 0.5)
            norm.momentum = 1.0
        # Statistics of activations, without which rounding errors would grow from layer to layer.
        with torch.no_grad():
            network.train().features_of(torch.randn(4, 3, 64, 64))
        return network.eval().requires_grad_(False)

    return make


@pytest.fixture
def install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[BackboneCard, dict[str, Tensor]], Path]:
    """Installs a wheel with given weights, whose code must not run, and returns their path."""

    def write(card: BackboneCard, state: dict[str, Tensor]) -> Path:
        package = tmp_path / "site" / card.weights.package
        path = package / card.weights.path
        path.parent.mkdir(parents=True)
        (package / "__init__.py").write_text("raise AssertionError('this code must not run')")
        torch.save(state, path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        monkeypatch.setitem(card.weights.__dict__, "sha256", digest)
        monkeypatch.syspath_prepend(tmp_path / "site")
        return path

    return write


@pytest.fixture
def card(request: pytest.FixtureRequest) -> BackboneCard:
    """The card of the backbone that a test names as its parameter."""
    return next(card for card in backbone_cards() if card.name == request.param)


@pytest.fixture(autouse=True)
def same_backbones() -> Iterator[None]:
    """Forget the backbones that a test registers or opens."""
    tables = (BACKBONES, _base.CARDS, _base.FAMILIES)
    before = [dict(table) for table in tables]
    _base._opened.cache_clear()
    yield
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.update(content)
    _base._opened.cache_clear()
