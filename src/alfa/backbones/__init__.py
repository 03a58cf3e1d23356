"""Pretrained backbones, which map photos to features."""

# These modules register their backbones.
from alfa.backbones import _efficientnet_lite as _efficientnet_lite
from alfa.backbones import _mobilenet_v2 as _mobilenet_v2
from alfa.backbones import _timm as _timm
from alfa.backbones._base import (
    BACKBONES,
    Backbone,
    BackboneCard,
    Preprocessing,
    backbone_cards,
    is_backbone,
    open_backbone,
    register_backbone,
    register_family,
)
from alfa.backbones._body import LAST_BLOCK_SHAPE, last_block
from alfa.backbones._cache import EmbeddingCache
from alfa.backbones._mixed import MIXED_GROUPS
from alfa.backbones._module import register_module

__all__ = [
    "BACKBONES",
    "LAST_BLOCK_SHAPE",
    "MIXED_GROUPS",
    "Backbone",
    "BackboneCard",
    "EmbeddingCache",
    "Preprocessing",
    "backbone_cards",
    "is_backbone",
    "last_block",
    "open_backbone",
    "register_backbone",
    "register_family",
    "register_module",
]
