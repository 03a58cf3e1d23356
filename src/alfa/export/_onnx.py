"""An adapted classifier as an ONNX file, checked against the original on the spot."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import itertools
import json
import logging
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import alfa
from alfa.data import Signature, decode, scale_and_shift
from alfa.data._pictures import contents, plain
from alfa.data._workers import quiet_pillow
from alfa.errors import AlfaError, ConfigError, DataError
from alfa.estimator import FewShotClassifier
from alfa.export._images import images_graph
from alfa.train.files import write_atomic

if TYPE_CHECKING:
    from onnx import ModelProto

# The oldest version that torch's exporter writes without converting; runtimes have had it for long.
OPSET = 18
# How far probabilities may be from torch's, which rounds otherwise.
TOLERANCE = 1e-4
_NEEDED = ("onnx", "onnxruntime", "onnxscript")
# What there is to be done about their faults.
_OTHERS = "another version of torch, onnxscript or onnxruntime may do better"


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        path: the file.
        opset: the version of ONNX's operations that it uses.
        classes: the labels, in the order of the probabilities.
        input_shape: channel, height and width that images are brought to inside.
        num_bytes: how large the file is.
        num_checked: images that were given to both models.
        max_difference: the largest between their probabilities.
    """

    path: Path
    opset: int
    classes: tuple[Any, ...]
    input_shape: tuple[int, int, int]
    num_bytes: int
    num_checked: int
    max_difference: float


@dataclass(frozen=True)
class Made:
    """A model as a file that is not written.

    Attributes:
        content: the bytes.
        classes: as of `Exported`, like the others.
        input_shape: of images.
        num_checked: images.
        max_difference: of probabilities.
    """

    content: bytes
    classes: tuple[Any, ...]
    input_shape: tuple[int, int, int]
    num_checked: int
    max_difference: float


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
    made = make_onnx(classifier, check_on=check_on)
    write_atomic(Path(path), made.content)
    return Exported(
        Path(path),
        OPSET,
        made.classes,
        made.input_shape,
        len(made.content),
        made.num_checked,
        made.max_difference,
    )


def make_onnx(classifier: FewShotClassifier, *, check_on: Iterable[Any] = ()) -> Made:
    """As `export_onnx`, without writing anything."""
    check_installed()
    if not classifier.is_inductive:
        raise ConfigError(
            "the classifier normalises images by others that are predicted with them, which an "
            "exported model cannot do; fit one with transductive=False, of a run whose model uses "
            "each layer of batch norm once."
        )
    classes = _plain(classifier.classes_)
    shape = _shape(classifier.signature_)
    content = _model(classifier, classes, shape).SerializeToString()
    num_checked, difference = _compare(classifier, content, check_on)
    # A difference that is no number is none that is allowed.
    if not difference <= TOLERANCE:
        raise AlfaError(
            f"the exported model gives probabilities that differ from torch's by up to "
            f"{difference:.2g}, more than the {TOLERANCE:g} that are allowed, so nothing was "
            f"written; {_OTHERS}."
        )
    return Made(content, classes, shape, num_checked, difference)


def check_installed() -> None:
    """Make sure that everything is there that an export needs.

    Raises:
        ConfigError: something is not.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"an export needs {' and '.join(missing)}, which {'are' if missing[1:] else 'is'} not "
            "installed; run `pip install 'alfa[export]'`."
        )


class _Classifier(nn.Module):
    """From levels between 0 and 255 to probabilities."""

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


def _plain(classes: np.ndarray) -> tuple[Any, ...]:
    """Labels that JSON has a form for."""
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


def _shape(signature: Signature) -> tuple[int, int, int]:
    num_channels, height, width = signature.input_shape
    return num_channels, height, width


def _model(
    classifier: FewShotClassifier, classes: tuple[Any, ...], shape: tuple[int, int, int]
) -> ModelProto:
    """The file's content: images, model, and what is to be known of both."""
    import onnx

    # A copy, because the classifier's own stays as it is; runtimes hardly know doubles.
    adapted = copy.deepcopy(classifier.model_).to("cpu", torch.float32)
    network = _Classifier(adapted, classifier.signature_, len(classes))
    core = _exported(network.eval(), shape)
    text = images_graph(shape, opset=OPSET, ir_version=core.ir_version)
    before = onnx.parser.parse_model(text)
    fault = "torch's export of the model is not one that ONNX allows"
    with _told(fault, advice=_OTHERS):
        model = onnx.compose.merge_models(before, core, io_map=[("levels", "levels")])
    # Named by both parts, and needed once.
    del model.opset_import[1:]
    model.producer_name, model.producer_version = "alfa", alfa.__version__
    model.doc_string, model.graph.doc_string, model.graph.name = "", "", "alfa"
    onnx.helper.set_model_props(
        model,
        {
            "alfa_version": alfa.__version__,
            "classes": json.dumps(classes),
            "input_shape": json.dumps(shape),
        },
    )
    with _told(fault, advice=_OTHERS):
        onnx.checker.check_model(model, full_check=True)
    return model


def _exported(network: nn.Module, shape: tuple[int, int, int]) -> ModelProto:
    """The network by torch's own exporter, without its notes on where the code lies."""
    # Of a single image the exporter would conclude that there is always one.
    example = torch.zeros(2, *shape)
    advice = "a model of this package can be"
    with _told("torch cannot export the model to ONNX", advice=advice), _quietly():
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
    for noted in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info):
        del noted.metadata_props[:]
    for node in graph.node:
        node.doc_string = ""
    # Of weights as well, which need no second description.
    for tensor in graph.initializer:
        del tensor.metadata_props[:]
    del graph.value_info[:]
    return model


@contextlib.contextmanager
def _told(what: str, *, advice: str) -> Iterator[None]:
    """Whatever a module of the user's makes torch or ONNX raise, as one sentence."""
    try:
        yield
    except (AlfaError, MemoryError):
        raise
    except Exception as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise AlfaError(f"{what} ({reason}); {advice}.") from error


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Remarks on what torch's exporter does inside are of no use to who calls it."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def _compare(
    classifier: FewShotClassifier, content: bytes, images: Iterable[Any]
) -> tuple[int, float]:
    """How many images both models were given, and the largest difference that was found."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    fault = "onnxruntime cannot run the exported model"
    with _told(fault, advice=_OTHERS):
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    count, worst = 0, 0.0
    # One after the other: photos in their own sizes would fill memory.
    for batch in itertools.chain(_random(_shape(classifier.signature_)), map(_alone, images)):
        with _told(fault, advice=_OTHERS):
            (found,) = session.run(["probabilities"], {"images": batch})
        difference = np.abs(found - classifier.predict_proba(list(batch)))
        count += len(batch)
        # `max` would pass over what is no number.
        worst = float(np.maximum(worst, difference.max()))
    return count, worst


def _alone(image: Any) -> np.ndarray:
    """One image as a batch."""
    if isinstance(image, (str, PathLike)):
        image = Path(image)
        try:
            with quiet_pillow():
                pixels, _ = decode(contents(image), size=None, num_channels=3)
        except DataError as error:
            raise DataError(f"{plain(str(image))} {error}.") from None
        image = pixels.transpose(1, 2, 0)
    if isinstance(image, Image.Image):
        image = np.asarray(image.convert("RGB"))
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


def _random(shape: tuple[int, int, int]) -> Iterator[np.ndarray]:
    """Noise of the model's own size, of larger and smaller ones, in grey and in colours."""
    _, height, width = shape
    rng = np.random.default_rng(0)
    sizes = ((height, width), (2 * height + 3, width // 2 + 1), (height // 3 + 1, 3 * width + 1))
    for rows, columns in sizes:
        for num_channels in (1, 3):
            yield rng.integers(0, 256, (4, rows, columns, num_channels), dtype=np.uint8)
