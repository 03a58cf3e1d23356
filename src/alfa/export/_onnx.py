"""Export of an adapted classifier as an ONNX file, compared with the original before writing."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import itertools
import json
import logging
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
from alfa.data import Signature, decode, scale_and_shift, suppress_pillow_warnings
from alfa.data.photos import printable, read_photo
from alfa.errors import AlfaError, ConfigError, DataError
from alfa.estimator import FewShotClassifier
from alfa.export._resize import resize_graph

if TYPE_CHECKING:
    from onnx import ModelProto

# The oldest version that torch's exporter writes without conversion.
OPSET = 18
# The largest difference between probabilities that rounding explains.
TOLERANCE = 1e-4
_NEEDED = ("onnx", "onnxruntime", "onnxscript")
_TRY_OTHER_VERSIONS = "another version of torch, onnxscript or onnxruntime may do better"


@dataclass(frozen=True)
class Exported:
    """An exported model.

    Attributes:
        content: the bytes of the file.
        classes: the labels, in the order of the probabilities.
        input_shape: channel, height and width that images are brought to inside.
        num_checked: images that were given to both models.
        max_difference: the largest between their probabilities.
        opset: the version of ONNX's operations that it uses.
        path: the file; None if the model was not written.
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
    """Write a fitted classifier as an ONNX file that takes images as they are.

    Its input ``images`` is uint8 ``[batch, height, width, channel]``, any number of images of one
    size, which may be any, in grey or in colours (1 or 3 channels). They are brought to the model's
    size inside, to the same pixels as by alfa. What a file says beyond pixels, such as how a photo
    is to be turned, and transparency are up to who reads it. Its output ``probabilities`` is
    float32 ``[batch, class]``. The labels are in its metadata, ``classes``, as JSON, beside
    ``alfa_version`` and ``input_shape``.

    Args:
        classifier: after `fit`.
        path: the file, replaced if it is there.
        check_on: images that are given to both models and compared, besides random ones: file
            names, PIL images or uint8 ``[height, width, channel]``, of any sizes. They are drawn
            one by one, and none is kept.

    Raises:
        ConfigError: the extra is not installed, or the classifier cannot be exported.
        AlfaError: the file would not say what the classifier says; nothing is written.

    Example:
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
    """As `export_onnx`, without writing anything."""
    check_installed()
    if not classifier.is_inductive:
        raise ConfigError(
            "the classifier normalizes images by others that are predicted with them, which an "
            "exported model cannot do; fit one with transductive=False, of a run whose model uses "
            "each layer of batch norm once."
        )
    labels = _json_labels(classifier.classes_)
    num_channels, height, width = classifier.signature_.input_shape
    shape = (num_channels, height, width)
    content = _build(classifier, labels, shape).SerializeToString()
    batches = itertools.chain(_random_batches(shape), map(_as_batch, check_on))
    num_checked, difference = _compare(classifier, content, batches)
    # Written so that NaN raises, too.
    if not difference <= TOLERANCE:
        raise AlfaError(
            f"the exported model gives probabilities that differ from torch's by up to "
            f"{difference:.2g}, more than the {TOLERANCE:g} that are allowed, so nothing was "
            f"written; {_TRY_OTHER_VERSIONS}."
        )
    return Exported(content, labels, shape, num_checked, difference)


def check_installed() -> None:
    """Raise if a package that an export needs is not installed.

    Raises:
        ConfigError: says how to install it.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"an export needs {' and '.join(missing)}, which {'are' if missing[1:] else 'is'} not "
            "installed; run `pip install 'alfa[export]'`."
        )


class _Classifier(nn.Module):
    """Turns gray levels from 0 to 255 into probabilities."""

    scale: Tensor
    shift: Tensor

    def __init__(self, model: nn.Module, signature: Signature, num_classes: int) -> None:
        super().__init__()
        self.model = model
        scale, shift = scale_and_shift(signature.mean, signature.std)
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)
        self._num_classes = num_classes

    def forward(self, levels: Tensor) -> Tensor:
        logits: Tensor = self.model(levels * self.scale + self.shift)[:, : self._num_classes]
        return logits.softmax(1)


def _json_labels(classes: np.ndarray) -> tuple[Any, ...]:
    labels = tuple(classes.tolist())
    try:
        same = tuple(json.loads(json.dumps(labels))) == labels
    except TypeError:
        same = False
    if not same:
        raise ConfigError(
            f"the labels are of the type {type(labels[0]).__name__}, which cannot be written into "
            "the file; use strings or numbers."
        )
    return labels


def _build(
    classifier: FewShotClassifier, labels: tuple[Any, ...], shape: tuple[int, int, int]
) -> ModelProto:
    """The complete model: resizing, network, and metadata."""
    import onnx

    # A copy in single precision, because few runtimes support doubles.
    adapted = copy.deepcopy(classifier.model_).to("cpu", torch.float32)
    network = _export_network(
        _Classifier(adapted, classifier.signature_, len(labels)).eval(), shape
    )
    resizing = onnx.parser.parse_model(
        resize_graph(shape, opset=OPSET, ir_version=network.ir_version)
    )
    with _explained("torch's export of the model is not valid ONNX", advice=_TRY_OTHER_VERSIONS):
        model = onnx.compose.merge_models(resizing, network, io_map=[("levels", "levels")])
        # Both parts name it.
        del model.opset_import[1:]
        model.producer_name, model.producer_version = "alfa", alfa.__version__
        model.doc_string, model.graph.doc_string, model.graph.name = "", "", "alfa"
        metadata = {"classes": json.dumps(labels), "input_shape": json.dumps(shape)}
        onnx.helper.set_model_props(model, {"alfa_version": alfa.__version__, **metadata})
        onnx.checker.check_model(model, full_check=True)
    return model


def _export_network(network: nn.Module, shape: tuple[int, int, int]) -> ModelProto:
    """Export with torch, and remove the paths and stack traces that it adds."""
    # From a single image, the exporter would conclude that the batch size is always 1.
    example = torch.zeros(2, *shape)
    advice = "a model of this package can be"
    with _explained("torch cannot export the model to ONNX", advice=advice), _silence():
        program = torch.onnx.export(
            network,
            (example,),
            input_names=["levels"],
            output_names=["probabilities"],
            dynamic_shapes={"levels": {0: torch.export.Dim("batch")}},
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
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
def _explained(what: str, *, advice: str) -> Iterator[None]:
    """Turn any error of torch or ONNX into one sentence."""
    try:
        yield
    except (AlfaError, MemoryError):
        raise
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise AlfaError(f"{what} ({reason}); {advice}.") from error


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Suppress the log messages and warnings of torch's exporter."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def _compare(
    classifier: FewShotClassifier, content: bytes, batches: Iterable[np.ndarray]
) -> tuple[int, float]:
    """Compare both models; return the number of images and the largest difference."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    fault = "onnxruntime cannot run the exported model"
    with _explained(fault, advice=_TRY_OTHER_VERSIONS):
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    count, worst = 0, 0.0
    # One batch at a time: photos in their original sizes would fill the memory.
    for batch in batches:
        with _explained(fault, advice=_TRY_OTHER_VERSIONS):
            (found,) = session.run(["probabilities"], {"images": batch})
        difference = np.abs(found - classifier.predict_proba(list(batch)))
        count += len(batch)
        # `max` would ignore NaN.
        worst = float(np.maximum(worst, difference.max()))
    return count, worst


def _as_batch(image: Any) -> np.ndarray:
    """Read one image of `check_on`."""
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
    if not isinstance(image, np.ndarray):
        raise DataError(
            f"an image of `check_on` is of the type {type(image).__name__}, but must be a file "
            "name, a PIL image or an array of uint8."
        )
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (1, 3):
        raise DataError(
            f"an image of `check_on` is {image.dtype} {list(image.shape)}, but must be uint8 "
            "[height, width, channel] with 1 or 3 channels."
        )
    return image[None]


def _random_batches(shape: tuple[int, int, int]) -> Iterator[np.ndarray]:
    """Noise of the model's own size and of larger and smaller ones, in gray and in color."""
    _, height, width = shape
    rng = np.random.default_rng(0)
    sizes = ((height, width), (2 * height + 3, width // 2 + 1), (height // 3 + 1, 3 * width + 1))
    for rows, columns in sizes:
        for num_channels in (1, 3):
            yield rng.integers(0, 256, (4, rows, columns, num_channels), dtype=np.uint8)
