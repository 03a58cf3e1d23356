"""Pretrained backbones, which map photos to features."""

from alfa.backbones._base import (
    BACKBONES,
    Backbone,
    Preprocessing,
    is_backbone,
    open_backbone,
    register_backbone,
    register_family,
)

__all__ = [
    "BACKBONES",
    "Backbone",
    "Preprocessing",
    "is_backbone",
    "open_backbone",
    "register_backbone",
    "register_family",
]
