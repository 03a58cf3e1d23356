"""The scikit-learn classifier."""

from __future__ import annotations

import datetime
import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from alfa import FewShotClassifier
from alfa.config import parse_experiment
from alfa.data import Strokes
from alfa.errors import AlfaWarning, CheckpointError, ConfigError, DivergedError
from alfa.estimator._images import ImageReader
from alfa.learner import Learner
from alfa.runs import Run
from alfa.training import train_run

Characters = tuple[np.ndarray, np.ndarray]


def test_fit_predict_and_score(run: Path, characters: Characters) -> None:
    images, labels = characters
    clf = FewShotClassifier(run).fit(images, labels)
    probabilities = clf.predict_proba(images)
    assert clf.classes_.tolist() == ["alef", "bet", "gimel"]
    assert probabilities.shape == (18, 3)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_allclose(np.exp(clf.predict_log_proba(images)), probabilities)
    assert clf.predict(images).tolist() == clf.classes_[probabilities.argmax(1)].tolist()
    assert clf.score(images, labels) > clf.accuracy_.low
    assert 0 <= clf.accuracy_.low <= clf.accuracy_.accuracy <= clf.accuracy_.high <= 1
    assert clf.support_losses_.shape == (6,)
    # Five steps must reduce the loss, even from weights that are hardly trained.
    assert clf.support_losses_[-1] < clf.support_losses_[0]
    assert clf.rates_["alpha"].shape == clf.rates_["beta"].shape == (5, 10)
    assert clf.rates_["layers"][-1] == "linear.bias"


def test_fit_is_the_inner_loop_of_the_run(run: Path) -> None:
    """The learner computes the same logits for the same task, up to rounding."""
    learner, tasks = Run.open(run).learner("best"), Run.open(run).tasks()
    episode = tasks.episode(3, num_tasks=1, split="test")
    outcome = learner(episode, order="none")
    _, numbers = tasks.draw(3, num_tasks=1, split="test")  # type: ignore[attr-defined]
    pixels = tasks.images.take(numbers[0])[:, :, 0]  # type: ignore[attr-defined]
    support, query = pixels[:, :5].reshape(-1, 16, 16), pixels[:, 5:].reshape(-1, 16, 16)
    clf = FewShotClassifier(run, num_folds=0).fit(support, np.repeat(np.arange(5), 5))
    expected = outcome.outputs[0].log_softmax(1).numpy()
    np.testing.assert_allclose(clf.predict_log_proba(query), expected, rtol=1e-4, atol=1e-5)
    support_losses = outcome.adapted.support_losses[:, 0].numpy()
    np.testing.assert_allclose(clf.support_losses_[:-1], support_losses, rtol=1e-5)


def test_inductive_predictions_are_independent(run: Path, characters: Characters) -> None:
    images, labels = characters
    clf = FewShotClassifier(run).fit(images[::2], labels[::2])
    together = clf.predict_proba(images)
    assert (np.concatenate([clf.predict_proba(image[None]) for image in images]) == together).all()
    assert (clf.predict_proba(images[::-1])[::-1] == together).all()


def test_transductive_predictions_are_normalized_together(
    run: Path, characters: Characters
) -> None:
    images, labels = characters
    clf = FewShotClassifier(run, transductive=True).fit(images, labels)
    together = clf.predict_proba(images)
    assert not np.allclose(clf.predict_proba(images[:4]), together[:4])
    both = clf.accuracies(images, labels)
    assert both["transductive"] == clf.score(images, labels)
    assert both["inductive"] == clone(clf).set_params(transductive=False).fit(images, labels).score(
        images, labels
    )
    # The frozen model has not changed.
    assert (clf.predict_proba(images) == together).all()


def test_transductive_predictions_match_the_learner(run: Path) -> None:
    learner, tasks = Run.open(run).learner("best"), Run.open(run).tasks()
    learner.batch_norm = "transductive"
    outcome = learner(tasks.episode(0, num_tasks=1, split="test"), order="none")
    _, numbers = tasks.draw(0, num_tasks=1, split="test")  # type: ignore[attr-defined]
    pixels = tasks.images.take(numbers[0])[:, :, 0]  # type: ignore[attr-defined]
    clf = FewShotClassifier(run, transductive=True, num_folds=0)
    clf.fit(pixels[:, :5].reshape(-1, 16, 16), np.repeat(np.arange(5), 5))
    found = clf.predict_log_proba(pixels[:, 5:].reshape(-1, 16, 16))
    expected = outcome.outputs[0].log_softmax(1).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_any_number_of_classes(run: Path) -> None:
    images = Strokes(num_classes=9, num_examples=3, size=16).images().images[:, 0]
    for way in (1, 2, 9):
        count = 3 * way
        clf = FewShotClassifier(run).fit(images[:count], np.arange(count) // 3)
        assert clf.predict_proba(images[:4]).shape == (4, way)


@pytest.fixture(scope="module")
def too_fast(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an ensemble, a trained head, and constant rates that are too large."""
    content = {
        "tasks": {"name": "images", "dataset": "strokes", "size": 16, "num_query": 2},
        "model": {"name": "conv4", "filters": 8},
        "rule": {"name": "sgd", "learning_rate": 30.0},
        "outer": {"num_iterations": 2, "num_tasks": 1, "validate_every": 1, "num_val_tasks": 1},
        "test": {"num_tasks": 1, "ensemble": 2},
    }
    run = Run.new(tmp_path_factory.mktemp("too-fast") / "run", parse_experiment(content))
    train_run(run)
    return run.path


@pytest.mark.parametrize("checkpoint", ["best", "ensemble"])
def test_fit_warns_if_the_loss_increases(
    too_fast: Path, characters: Characters, checkpoint: str
) -> None:
    with pytest.warns(AlfaWarning, match=r"increased the support loss from .* to") as told:
        clf = FewShotClassifier(too_fast, checkpoint=checkpoint).fit(*characters)
    assert clf.support_losses_[-1] > clf.support_losses_[0]
    # The warning names the caller of `fit`.
    assert {Path(warning.filename) for warning in told} == {Path(__file__)}


@pytest.mark.parametrize("head", ["trained", "zero"])
def test_fit_warns_without_steps(too_fast: Path, characters: Characters, head: str) -> None:
    clf = FewShotClassifier(too_fast, head=head, num_steps=0)
    with pytest.warns(
        AlfaWarning, match=r"after 0 steps the support loss is .*, no better than chance"
    ):
        clf.fit(*characters)
    # Prototypes need no steps.
    FewShotClassifier(too_fast, head="prototype", num_steps=0).fit(*characters)


@pytest.mark.parametrize("label", [Path("a/alef"), None, 2.5, datetime.date(2020, 1, 1)])
def test_labels_of_other_types_raise(run: Path, characters: Characters, label) -> None:
    images, _ = characters
    labels = np.array(["bet"] * (len(images) - 1) + [label], dtype=object)
    with pytest.raises(
        ConfigError, match=rf"labels must be strings .*, got .* for image {len(images) - 1};"
    ):
        FewShotClassifier(run).fit(images, labels)


def test_steps_and_ensemble(run: Path, characters: Characters) -> None:
    images, labels = characters
    clf = FewShotClassifier(run, num_steps=2, checkpoint="ensemble").fit(images, labels)
    assert clf.num_steps_ == 2
    assert clf.support_losses_.shape == (3,)
    x = torch.zeros(1, 1, 16, 16)
    first, second = clf.model_.models
    torch.testing.assert_close(clf.model_(x), (first(x) + second(x)) / 2)
    none = FewShotClassifier(run, num_steps=0).fit(images, labels)
    assert none.rates_["alpha"].shape == (0, 10)


def test_images_in_any_form(run: Path, characters: Characters, tmp_path: Path) -> None:
    images, labels = characters
    clf = FewShotClassifier(run, num_steps=1).fit(images, labels)
    expected = clf.predict_proba(images)
    paths = [tmp_path / f"{number}.png" for number in range(18)]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    forms: dict[str, Any] = {
        "paths": paths,
        "names": [str(path) for path in paths],
        "PIL images": [Image.open(path) for path in paths],
        "a list": list(images),
        "tensors": torch.from_numpy(images),
        "with a channel": images[..., None],
        "channels first": images[:, None],
        "color": np.repeat(images[..., None], 3, axis=-1),
        "transparent": [Image.fromarray(image).convert("RGBA") for image in images],
    }
    for name, form in forms.items():
        np.testing.assert_allclose(clf.predict_proba(form), expected, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(
            clone(clf).fit(form, labels).predict_proba(images), expected, atol=1e-6, err_msg=name
        )
    # Floats from 0 to 1 and bytes give the same result.
    floats = clone(clf).fit(images / 255, labels)
    np.testing.assert_allclose(floats.predict_proba(images / 255), expected, atol=1e-4)
    np.testing.assert_allclose(floats.predict_proba(images), expected, atol=1e-4)
    rows = clone(clf).fit((images / 255).reshape(18, -1), labels)
    assert rows.n_features_in_ == 256
    np.testing.assert_allclose(
        rows.predict_proba((images / 255).reshape(18, -1)), expected, atol=1e-4
    )


def test_scikit_learn_tools(run: Path, characters: Characters) -> None:
    images, labels = characters
    scores = cross_val_score(FewShotClassifier(run), images, labels, cv=2)
    folds = StratifiedKFold(2).split(images, labels)
    expected = [
        FewShotClassifier(run).fit(images[own], labels[own]).score(images[held], labels[held])
        for own, held in folds
    ]
    assert scores.tolist() == expected
    pipe = make_pipeline(FunctionTransformer(lambda x: 255 - x), FewShotClassifier(run))
    assert pipe.fit(images, labels).predict(images).shape == (18,)
    copied = clone(FewShotClassifier(run, num_steps=3, head="zero"))
    assert copied.get_params()["num_steps"] == 3


_UNPICKLE = """
import pickle, sys
import numpy as np
folder = sys.argv[1]
with open(f"{folder}/clf.pickle", "rb") as file:
    clf = pickle.load(file)
np.save(f"{folder}/found.npy", clf.predict_proba(np.load(f"{folder}/images.npy")))
"""


def test_a_pickle_predicts_the_same_in_another_process_without_the_run(
    run: Path, characters: Characters, tmp_path: Path
) -> None:
    images, labels = characters
    clf = FewShotClassifier(run).fit(images, labels)
    (tmp_path / "clf.pickle").write_bytes(pickle.dumps(clf.set_params(run=tmp_path / "gone")))
    np.save(tmp_path / "images.npy", images)
    # The number of threads affects rounding.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", _UNPICKLE, tmp_path], check=True, env=environment)
    assert (np.load(tmp_path / "found.npy") == clf.predict_proba(images)).all()


def test_a_failed_fit_restores_the_previous_one(run: Path, characters: Characters) -> None:
    images, labels = characters
    table = images.reshape(18, -1)
    clf = FewShotClassifier(run).fit(table, labels)
    before, expected = dict(vars(clf)), clf.predict(table)
    other = np.where(labels == "bet", "daleth", "he")
    # Errors after the labels, after the number of columns, and in the inner loop.
    with pytest.raises(ConfigError, match=r"image 1 must be a file name, .*, got NoneType"):
        clf.fit([*images[:1], None, *images[2:]], other)
    with pytest.raises(ConfigError, match="`value_range` must be"):
        clf.set_params(value_range=(1, 1)).fit(table[:, :64], other)
    clf.set_params(value_range=None)
    with pytest.MonkeyPatch.context() as patch:
        broken = torch.full((18, 1, 16, 16), torch.nan), np.zeros((18, 256))
        patch.setattr(ImageReader, "read_support", lambda *_: broken)
        with pytest.raises(DivergedError, match=r"try fewer steps"):
            clf.fit(images / 255, other)
    assert vars(clf) == before
    assert clf.predict(table).tolist() == expected.tolist()


def test_accuracies_need_a_label_for_each_image(run: Path, characters: Characters) -> None:
    images, labels = characters
    clf = FewShotClassifier(run).fit(images, labels)
    with pytest.raises(ConfigError, match="X and y must have the same length, got 18 and 1"):
        clf.accuracies(images, ["alef"])
    with pytest.raises(ConfigError, match="the target y is None"):
        clf.accuracies(images, None)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"head": "prototypes"}, "Did you mean 'prototype'"),
        ({"checkpoint": "first"}, "`checkpoint` is 'first'"),
        ({"num_steps": -1}, "`num_steps` must be a whole number of at least 0, .*, got -1"),
        ({"num_steps": "3"}, "`num_steps` must be a whole number .*, got '3'"),
        ({"num_steps": 2.5}, "`num_steps` must be a whole number .*, got 2.5"),
        ({"device": "gpu"}, "`device` is 'gpu', which this machine does not have; it has cpu"),
        ({"device": "cuda:99"}, "`device` is 'cuda:99', which this machine does not have"),
        ({"device": None}, "`device` is None, which this machine does not have"),
        (
            {"value_range": (1, 1)},
            r"`value_range` must be the two different values .*, got \(1, 1\)",
        ),
        ({"value_range": "auto"}, "`value_range` must be .*, got 'auto'"),
    ],
)
def test_wrong_arguments(
    run: Path, characters: Characters, options: dict[str, Any], sentence: str
) -> None:
    clf = FewShotClassifier(run, **options)
    with pytest.raises(ConfigError, match=sentence):
        clf.fit(*characters)


def test_wrong_runs(curves: Path, characters: Characters, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        FewShotClassifier(tmp_path / "none").fit(*characters)
    with pytest.raises(
        ConfigError, match=r"not trained on image classification; .* or FewShotRegressor"
    ):
        FewShotClassifier(curves).fit(*characters)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"mean": [], "std": []},
            r"a `mean` and a `std` for each, got 1 channel\(s\) with \[\] and \[\]",
        ),
        ({"input_shape": [2, 16, 16]}, r"need 1 or 3 channels .* got 2 channel\(s\)"),
    ],
)
def test_runs_without_a_known_image_format_raise(
    run: Path, characters: Characters, tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    copied = Path(shutil.copytree(run, tmp_path / "run"))
    signature = json.loads((copied / "signature.json").read_text())
    (copied / "signature.json").write_text(json.dumps({**signature, **changes}))
    with pytest.raises(ConfigError, match=sentence):
        FewShotClassifier(copied).fit(*characters)


def test_wrong_images(run: Path, characters: Characters, tmp_path: Path) -> None:
    images, labels = characters
    clf = FewShotClassifier(run)
    with pytest.raises(ConfigError, match="X contains no images"):
        clf.fit([], [])
    with pytest.raises(ConfigError, match="X and y must have the same length, got 18 and 2"):
        clf.fit(images, labels[:2])
    with pytest.raises(ConfigError, match=r"X must be a list of images, got .photo\.png."):
        clf.fit("photo.png", ["a"])
    text = tmp_path / "text.png"
    text.write_text("no image")
    with pytest.raises(ConfigError, match=r"text.png is not an image"):
        clf.fit([*images[:1], str(text)], ["a", "b"])
    with pytest.raises(ConfigError, match=r"none.png cannot be read \(No such file"):
        clf.fit([str(tmp_path / "none.png")], ["a"])
    with pytest.raises(ConfigError, match=r"image 1 contains NaN"):
        clf.fit(np.stack([images[0] / 255, np.full((16, 16), np.nan)]), ["a", "b"])
    with pytest.raises(ConfigError, match=r"image 0 has the shape \[4, 4, 7\]"):
        clf.fit(np.zeros((1, 4, 4, 7)), ["a"])


@pytest.mark.parametrize("transductive", [False, True])
def test_training_mode_does_not_change_predictions(
    run: Path, characters: Characters, transductive: bool
) -> None:
    images, labels = characters
    clf = FewShotClassifier(run, transductive=transductive).fit(images, labels)
    expected = clf.predict_proba(images)
    clf.model_.train()
    assert (clf.predict_proba(images) == expected).all()
    assert all(part.training for part in clf.model_.modules())
    clf.model_.eval()
    assert (clf.predict_proba(images) == expected).all()


def test_one_thread_adapts_at_a_time(run: Path, characters: Characters, monkeypatch) -> None:
    images, labels = characters
    at_once: list[int] = []
    inside = 0
    adapt = Learner.adapt

    def watched(*arguments, **options):
        nonlocal inside
        inside += 1
        time.sleep(0.01)
        at_once.append(inside)
        try:
            return adapt(*arguments, **options)
        finally:
            inside -= 1

    monkeypatch.setattr(Learner, "adapt", watched)
    with ThreadPoolExecutor(3) as threads:
        fits = [threads.submit(FewShotClassifier(run).fit, images, labels) for _ in range(3)]
        found = [fit.result().predict_proba(images) for fit in fits]
    assert set(at_once) == {1}
    assert all((each == found[0]).all() for each in found)


def test_one_image_cannot_be_normalized_alone(run: Path, characters: Characters) -> None:
    clf = FewShotClassifier(run, transductive=True).fit(*characters)
    # The last layers of deep networks have a single value per channel.
    clf.model_ = torch.nn.Sequential(
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.BatchNorm2d(1), torch.nn.Flatten()
    )
    assert clf.predict(characters[0][:2]).shape == (2,)
    with pytest.raises(ConfigError, match="cannot normalize 1 image"):
        clf.predict(characters[0][:1])


def test_scikit_learn_checks(make_run) -> None:
    """Pass all checks, with the rows of tables as images.

    A tag disables the check for a minimum accuracy on blobs of points, which are not images.
    """
    model = {"name": "conv4", "filters": 2, "num_blocks": 1}
    run = make_run(model=model, init={"name": "zero-head"})
    results = check_estimator(FewShotClassifier(run, num_steps=1), on_fail=None, on_skip=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not failed
    assert sum(r["status"] == "passed" for r in results) > 45


@pytest.mark.filterwarnings("ignore:.*no better than chance")
def test_auto_keeps_a_last_layer_that_tasks_do_not_adapt(make_run, characters: Characters) -> None:
    model = {"name": "conv4", "filters": 2, "num_blocks": 1}
    run = make_run(model=model, init={"name": "learned", "adapt": ["conv*"]})
    assert FewShotClassifier(run, head="auto").fit(*characters).head_ == "trained"
    with pytest.raises(ConfigError, match=r"because the run's tasks do not adapt linear\.weight"):
        FewShotClassifier(run, head="zero").fit(*characters)


def test_auto_chooses_a_head_of_the_run(run: Path, characters: Characters) -> None:
    clf = FewShotClassifier(run, head="auto").fit(*characters)
    assert clf.head_ in ("trained", "zero", "prototype")
    assert clf.head_ in clf.head_reason_
    same = FewShotClassifier(run, head=clf.head_).fit(*characters)
    assert clf.accuracy_ == same.accuracy_
