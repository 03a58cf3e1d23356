"""Pretrained backbones: fixed networks that map photos to features."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor, nn

from alfa.backbones._wheels import WheelFile
from alfa.errors import ConfigError, check_choice, did_you_mean

Resample = Literal["bilinear", "bicubic"]
"""A filter that resizes."""


@dataclass(frozen=True)
class Preprocessing:
    """How photos become inputs of a backbone: as in its training.

    Attributes:
        size: the side of the square input, in pixels.
        resize: the length of the shorter side before the center crop, in pixels.
        resample: the filter that resizes.
        mean: channel means, for values from 0 to 1.
        std: channel standard deviations, likewise.

    Raises:
        ConfigError: a value is invalid.
    """

    size: int = 224
    resize: int = 256
    resample: Resample = "bilinear"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"`size` must be at least 1, got {self.size}.")
        if self.resize < self.size:
            raise ConfigError(
                f"`resize` must be at least `size`, which is {self.size}, got {self.resize}."
            )
        check_choice("resample", self.resample, get_args(Resample))
        if len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0:
            raise ConfigError(
                "`mean` must be three numbers, and `std` three positive numbers, got "
                f"{self.mean} and {self.std}."
            )


@dataclass(frozen=True)
class BackboneCard:
    """Facts about a pretrained backbone, available without its weights.

    Attributes:
        name: the name that experiments use.
        title: the name in the literature.
        source: the origin of the weights.
        license: the license of the weights, as an SPDX identifier.
        num_parameters: the number of parameters without the classifier.
        num_features: the number of features.
        top_1: the published top-1 accuracy on ImageNet in percent.
        preprocessing: how photos become inputs.
        weights: the file with the weights.

    Examples:
        >>> from alfa.backbones import backbone_cards
        >>> card = backbone_cards()[0]
        >>> card.name, card.num_features, card.license
        ('efficientnet-lite0', 1280, 'Apache-2.0')
    """

    name: str
    title: str
    source: str
    license: str
    num_parameters: int
    num_features: int
    top_1: float
    preprocessing: Preprocessing
    weights: WheelFile

    @property
    def is_installed(self) -> bool:
        """Whether the package with the weights is installed."""
        return self.weights.find() is not None

    @property
    def install(self) -> str:
        """The command that installs the weights."""
        return self.weights.install


@dataclass(frozen=True, eq=False)
class Backbone:
    """A pretrained network that maps photos to features.

    Attributes:
        name: the name that experiments use.
        network: maps normalized images ``[image, 3, size, size]`` to ``[image, feature]``.
        num_features: the number of features.
        preprocessing: how photos become inputs.
        infer: a faster function with the outputs of `network` but without gradients; None to use
            `network`.
    """

    name: str
    network: nn.Module
    num_features: int
    preprocessing: Preprocessing
    infer: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        self.network.eval().requires_grad_(False)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Identifies the weights and the preprocessing."""
        digest = hashlib.sha256(repr(self.preprocessing).encode())
        for name, tensor in self.network.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]

    @torch.no_grad()
    def features(self, levels: np.ndarray) -> np.ndarray:
        """Compute the features ``[image, feature]`` of images, float32.

        Args:
            levels: cropped images, ``[image, channel, size, size]``, with values from 0 to 255.
        """
        shape = (3, self.preprocessing.size, self.preprocessing.size)
        if levels.shape[1:] != shape:
            raise ConfigError(
                f"`levels` must have the shape [image, {', '.join(map(str, shape))}] for the "
                f"backbone {self.name!r}, got {list(levels.shape)}."
            )
        found = np.empty((len(levels), self.num_features), np.float32)
        infer = self.infer or self.network
        # One at a time: the rounding of a convolution depends on the size of the batch, but the
        # features of a photo must not.
        for number in range(len(levels)):
            found[number] = infer(self.normalized(levels[number : number + 1]))[0]
        return found

    def normalized(self, levels: np.ndarray) -> Tensor:
        """Convert levels from 0 to 255 to inputs of the network."""
        mean, std = (
            torch.tensor(x).view(3, 1, 1) for x in (self.preprocessing.mean, self.preprocessing.std)
        )
        x = torch.from_numpy(np.asarray(levels, np.float32))
        return (x / 255 - mean) / std


Opener = Callable[[], Backbone]
F = TypeVar("F", bound=Callable[..., Backbone])

BACKBONES: dict[str, Opener] = {}
"""The function that opens each backbone, by name."""

CARDS: dict[str, BackboneCard] = {}
"""Facts about backbones, by name."""

FAMILIES: dict[str, Callable[[str], Backbone]] = {}
"""The function that opens any backbone of a family, by the prefix of its names.

``"timm"``, for example, opens ``"timm:resnet50"``.
"""


def register_backbone(name: str, *, card: BackboneCard | None = None) -> Callable[[F], F]:
    """Register the decorated function, which returns a `Backbone`, as `name`.

    Args:
        name: the name that experiments use.
        card: facts for lists of backbones.

    Raises:
        ConfigError: another backbone has this name.
    """

    def decorate(opener: F) -> F:
        # A reloaded module may register its backbones again.
        if name in BACKBONES and _origin(BACKBONES[name]) != _origin(opener):
            raise ConfigError(
                f"the pretrained backbone {name!r} already exists; choose another name."
            )
        BACKBONES[name] = opener
        if card is not None:
            CARDS[name] = card
        _opened.cache_clear()
        return opener

    return decorate


def register_family(prefix: str) -> Callable[[F], F]:
    """Register the decorated function, which opens all backbones whose names have this prefix."""

    def decorate(opener: F) -> F:
        FAMILIES[prefix] = opener
        _opened.cache_clear()
        return opener

    return decorate


def backbone_cards() -> list[BackboneCard]:
    """Return the cards of all backbones that have one, whether they are installed or not."""
    return list(CARDS.values())


def is_backbone(name: str) -> bool:
    """Return whether `open_backbone` knows a name."""
    return name in BACKBONES or (name.partition(":")[0] in FAMILIES and ":" in name)


def open_backbone(name: str) -> Backbone:
    """Open a pretrained backbone by name; the last four stay in memory.

    Raises:
        ConfigError: the name is unknown, or the package with the weights is not installed.
        DamagedError: the file with the weights is not the expected one.
    """
    if not is_backbone(name):
        families = [f"{prefix}:NAME" for prefix in FAMILIES]
        raise ConfigError(
            f"unknown pretrained backbone {name!r}; known: {', '.join([*BACKBONES, *families])}."
            f"{did_you_mean(name, BACKBONES)}"
        )
    return _opened(name)


def _origin(opener: Opener) -> tuple[str, str]:
    """Return the module and the name of a function."""
    function = opener.func if isinstance(opener, functools.partial) else opener
    return function.__module__, function.__qualname__


@functools.lru_cache(maxsize=4)
def _opened(name: str) -> Backbone:
    if name in BACKBONES:
        return BACKBONES[name]()
    prefix, _, rest = name.partition(":")
    return FAMILIES[prefix](rest)
