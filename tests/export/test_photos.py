"""The exported photo classifier contains the backbone, the head, and the threshold."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from alfa import FewShotClassifier
from alfa.backbones import backbone_cards
from alfa.backbones._mixed import EdgeHistograms
from alfa.export import export_onnx


def test_edges_of_photos_of_one_color_are_zero(tmp_path: Path) -> None:
    example = (torch.rand(1, 3, 56, 56),)
    # Versions of torch warn of their own internals.
    with warnings.catch_warnings(action="ignore"):
        program = torch.onnx.export(EdgeHistograms(56).eval(), example, dynamo=True, verbose=False)
    assert program is not None
    program.save(tmp_path / "edges.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "edges.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: np.ones((1, 3, 56, 56), "f4")})
    assert np.array_equal(found, np.zeros_like(found))


def test_onnxruntime_alone_reproduces_the_classifier(tmp_path: Path) -> None:
    missing = [card for card in backbone_cards()[:1] if not card.is_installed]
    if missing:
        pytest.skip(f"the weights are not installed: {missing[0].install}")
    rng = np.random.default_rng(0)
    stripes = np.zeros((2, 90, 120, 3), np.uint8)
    stripes[0, ::8], stripes[1, :, ::8] = 255, 255
    photos = [s // 2 + rng.integers(0, 128, s.shape, np.uint8) for s in stripes for _ in range(4)]
    clf = FewShotClassifier().fit(photos, ["rows"] * 4 + ["columns"] * 4)
    exported = export_onnx(clf, tmp_path / "photos.onnx")
    session = onnxruntime.InferenceSession(exported.path)
    known = session.get_modelmeta().custom_metadata_map
    new = [stripes[0], stripes[1], np.full((90, 120, 3), 255, np.uint8)]
    expected = clf.assess(new)
    found, familiarity = session.run(None, {"images": np.stack(new)})
    np.testing.assert_allclose(found, expected.probabilities, atol=1e-5)
    np.testing.assert_allclose(familiarity, expected.familiarity, atol=1e-5)
    labels = np.array(json.loads(known["classes"]))[found.argmax(1)]
    assert labels.tolist() == expected.labels.tolist()
    assert labels[:2].tolist() == ["rows", "columns"]
    is_none = familiarity < json.loads(known["threshold"])
    assert is_none.tolist() == expected.is_none.tolist()
