"""ONNX export of an adapted classifier, with a comparison of both models before writing."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import itertools
import json
import logging
import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import alfa
from alfa._io import write_atomic
from alfa.data import decode, suppress_pillow_warnings
from alfa.data.photos import printable, read_photo
from alfa.errors import AlfaError, ConfigError, DataError
from alfa.estimator import FewShotClassifier, embedding

if TYPE_CHECKING:
    from onnx import ModelProto

# The oldest version that torch's exporter writes without conversion.
OPSET = 18
# The largest difference between probabilities that rounding explains.
TOLERANCE = 1e-4
_REQUIRED = ("onnx", "onnxruntime", "onnxscript")
_TRY_OTHER_VERSIONS = "try another version of torch, onnxscript, or onnxruntime"


@dataclass(frozen=True)
class Exported:
    """An exported model.

    Attributes:
        content: bytes of the file.
        classes: labels in the order of the probabilities.
        input_shape: channel, height, and width to which the model resizes images.
        num_checked: number of images in the comparison with the classifier.
        max_difference: largest difference between probabilities in this comparison.
        opset: version of the ONNX operations.
        path: the file; None if it was not written.
    """

    content: bytes = field(repr=False)
    classes: tuple[Any, ...]
    input_shape: tuple[int, int, int]
    num_checked: int
    max_difference: float
    opset: int = OPSET
    path: Path | None = None


def export_onnx(
    classifier: FewShotClassifier, path: Path | str, *, check_on: Iterable[Any] = ()
) -> Exported:
    """Write a fitted classifier to an ONNX file that resizes and normalizes its inputs.

    The input ``images`` is uint8 ``[batch, height, width, channel]`` with 1 or 3 channels and any
    height and width; the model resizes images to the same pixels as alfa. The caller handles
    transparency and EXIF orientation. The outputs are ``probabilities``, float32 ``[batch,
    class]``, calibrated, and ``familiarity``, float32 ``[batch]``. The metadata contains, as JSON,
    ``classes`` (the labels), ``threshold`` (an image of lower familiarity belongs to none of the
    classes; null if unknown), and ``input_shape``, and ``alfa_version``.

    Args:
        classifier: fitted classifier.
        path: the file; an existing file is replaced.
        check_on: images on which both models are compared in addition to random images: file
            names, PIL images, or uint8 ``[height, width, channel]`` of any size, read one by one.

    Raises:
        ConfigError: if the extra `export` is not installed, or the classifier is transductive or
            has labels that are neither strings nor numbers.
        AlfaError: if the probabilities of both models differ; no file is written.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from alfa import FewShotClassifier
        >>> from alfa.data import Strokes
        >>> from alfa.export import export_onnx
        >>> from alfa.testing import small_run
        >>> folder = Path(tempfile.mkdtemp())
        >>> images = Strokes(num_classes=2, num_examples=5).images().images[:, 0]
        >>> clf = FewShotClassifier(small_run(folder)).fit(images, ["alef"] * 5 + ["bet"] * 5)
        >>> exported = export_onnx(clf, folder / "model.onnx")
        >>> exported.classes, exported.opset, exported.max_difference < 1e-4
        (('alef', 'bet'), 18, True)
    """
    exported = make_onnx(classifier, check_on=check_on)
    write_atomic(Path(path), exported.content)
    return replace(exported, path=Path(path))


def make_onnx(classifier: FewShotClassifier, *, check_on: Iterable[Any] = ()) -> Exported:
    """Export as `export_onnx` does, but write no file."""
    check_installed()
    if not classifier.is_inductive:
        raise ConfigError(
            "a transductive classifier cannot be exported; fit one with transductive=False on a "
            "run whose model uses each batch-norm layer once."
        )
    labels = tuple(classifier.classes_.tolist())
    if not all(isinstance(label, (str, int, float)) for label in labels):
        kind = type(labels[0]).__name__
        raise ConfigError(f"labels must be strings or numbers for the export, got {kind}.")
    shape = classifier.image_format_.shape
    content = _build(classifier, labels, shape).SerializeToString()
    batches = itertools.chain(_random_batches(shape), map(_as_batch, check_on))
    num_checked, difference = _compare(classifier, content, batches)
    # A small temperature amplifies the rounding of the logits.
    tolerance = TOLERANCE * max(1.0, 1 / classifier.temperature_)
    # This comparison raises for NaN, too.
    if not difference <= tolerance:
        raise AlfaError(
            f"probabilities of the exported model and of torch differ by up to {difference:.2g}, "
            f"more than {tolerance:.2g}, so no file was written; {_TRY_OTHER_VERSIONS}."
        )
    return Exported(content, labels, shape, num_checked, difference)


def check_installed() -> None:
    """Raise if a package for the export is not installed."""
    missing = [name for name in _REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the export needs {' and '.join(missing)}; run `pip install 'alfa[export]'`."
        )


class _Classifier(nn.Module):
    """The adapted model, from levels between 0 and 255 to probabilities and familiarity."""

    means: Tensor

    def __init__(self, classifier: FewShotClassifier) -> None:
        super().__init__()
        self.inputs = copy.deepcopy(classifier.image_format_.input_module())
        self.model = copy.deepcopy(classifier.model_)
        self._num_classes = len(classifier.classes_)
        self._temperature = classifier.temperature_
        self.register_buffer("means", classifier.class_means_.clone())
        # Few runtimes support doubles.
        self.to("cpu", torch.float32).eval()

    def forward(self, levels: Tensor) -> tuple[Tensor, Tensor]:
        x = self.inputs(levels)
        logits = self.model(x)[:, : self._num_classes]
        # Runtimes compute the layers that both outputs share only once.
        similarities = embedding(self.model, x) @ self.means.mT
        return (logits / self._temperature).softmax(1), similarities.amax(1)


def _build(
    classifier: FewShotClassifier, labels: tuple[Any, ...], shape: tuple[int, int, int]
) -> ModelProto:
    """Combine resizing, network, and metadata."""
    import onnx

    from alfa.export._resize import resize_model

    network = _export_network(_Classifier(classifier), shape)
    resizing = resize_model(classifier.image_format_, ir_version=network.ir_version)
    with _explained("torch exported an invalid ONNX model"):
        io_map = [(resizing.graph.output[0].name, "levels")]
        model = onnx.compose.merge_models(resizing, network, io_map=io_map)
        # Each part declares the opset, and the resizing also the domain of its inlined functions.
        del model.opset_import[:]
        model.opset_import.append(onnx.helper.make_opsetid("", OPSET))
        model.producer_name, model.producer_version = "alfa", alfa.__version__
        model.doc_string, model.graph.doc_string, model.graph.name = "", "", "alfa"
        metadata = {
            "classes": json.dumps(labels),
            "input_shape": json.dumps(shape),
            "threshold": json.dumps(classifier.threshold_ if _rejects(classifier) else None),
        }
        onnx.helper.set_model_props(model, {"alfa_version": alfa.__version__, **metadata})
        onnx.checker.check_model(model, full_check=True)
    return model


def _rejects(classifier: FewShotClassifier) -> bool:
    return math.isfinite(classifier.threshold_)


def _export_network(network: nn.Module, shape: tuple[int, int, int]) -> ModelProto:
    """Export silently with torch, and remove the file paths and stack traces that it adds."""
    # From a single image, the exporter would infer a constant batch size of 1.
    example = torch.zeros(2, *shape)
    explained = _explained("torch cannot export the model to ONNX", "use a model from alfa")
    disabled_logs = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with explained, warnings.catch_warnings(action="ignore"):
            program = torch.onnx.export(
                network,
                (example,),
                input_names=["levels"],
                output_names=["probabilities", "familiarity"],
                dynamic_shapes={"levels": {0: torch.export.Dim("batch")}},
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
    finally:
        logging.disable(disabled_logs)
    assert program is not None
    model: ModelProto = program.model_proto
    graph = model.graph
    del graph.value_info[:]
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
    for node in graph.node:
        node.doc_string = ""
    return model


@contextlib.contextmanager
def _explained(problem: str, advice: str = _TRY_OTHER_VERSIONS) -> Iterator[None]:
    """Convert any error of torch or ONNX to an `AlfaError` of one line."""
    try:
        yield
    except (AlfaError, MemoryError):
        raise
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise AlfaError(f"{problem} ({reason}); {advice}.") from error


def _compare(
    classifier: FewShotClassifier, content: bytes, batches: Iterable[np.ndarray]
) -> tuple[int, float]:
    """Return the number of images and the largest difference between probabilities."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    problem = "onnxruntime cannot run the exported model"
    with _explained(problem):
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    count, worst = 0, 0.0
    # One batch at a time, because photos in their original sizes need much memory.
    for batch in batches:
        with _explained(problem):
            found = session.run(["probabilities", "familiarity"], {"images": batch})
        expected = classifier.assess(list(batch))
        pairs = zip(found, (expected.probabilities, expected.familiarity), strict=True)
        count += len(batch)
        for ours, theirs in pairs:
            # Unlike `max`, this propagates NaN.
            worst = float(np.maximum(worst, np.abs(ours - theirs).max()))
    return count, worst


def _as_batch(image: Any) -> np.ndarray:
    """Read an image of `check_on`."""
    if isinstance(image, (str, PathLike)):
        path = Path(image)
        try:
            with suppress_pillow_warnings():
                pixels, _ = decode(read_photo(path), size=None, num_channels=3)
        except DataError as error:
            raise DataError(f"{printable(str(path))} {error}.") from None
        return pixels.transpose(1, 2, 0)[None]
    if isinstance(image, Image.Image):
        return np.asarray(image.convert("RGB"))[None]
    kind = type(image).__name__
    if isinstance(image, np.ndarray):
        if image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] in (1, 3):
            return image[None]
        kind = f"{image.dtype} {list(image.shape)}"
    raise DataError(
        "`check_on` must contain file names, PIL images, or uint8 [height, width, channel] with 1 "
        f"or 3 channels, got {kind}."
    )


def _random_batches(shape: tuple[int, int, int]) -> Iterator[np.ndarray]:
    """Generate gray and color noise of the model's size, and of larger and smaller sizes."""
    _, height, width = shape
    rng = np.random.default_rng(0)
    sizes = ((height, width), (2 * height + 3, width // 2 + 1), (height // 3 + 1, 3 * width + 1))
    for rows, columns in sizes:
        for num_channels in (1, 3):
            yield rng.integers(0, 256, (4, rows, columns, num_channels), dtype=np.uint8)
