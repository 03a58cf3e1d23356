"""The scikit-learn regressor."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from alfa import FewShotRegressor
from alfa.errors import ConfigError
from alfa.runs import Run


def _points(count: int = 10) -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(-4, 4, count)[:, None]
    return x, np.sin(x[:, 0])


def test_fit_is_the_inner_loop_of_the_run(curves: Path) -> None:
    learner, tasks = Run.open(curves).learner("best"), Run.open(curves).tasks()
    episode = tasks.episode(0, num_tasks=1, split="test")
    outputs = learner(episode, order="none").outputs[0, :, 0].numpy()
    reg = FewShotRegressor(curves)
    reg.fit(episode.support_x[0].numpy(), episode.support_y[0, :, 0].numpy())
    np.testing.assert_allclose(
        reg.predict(episode.query_x[0].numpy()), outputs, rtol=1e-4, atol=1e-5
    )
    assert reg.support_losses_.shape == (6,)
    assert reg.rates_["beta"].shape == (5, 4)


def test_shapes_follow_the_targets(curves: Path) -> None:
    x, y = _points()
    assert FewShotRegressor(curves).fit(x, y).predict(x).shape == (10,)
    assert FewShotRegressor(curves).fit(x, y[:, None]).predict(x).shape == (10, 1)


def test_scikit_learn_tools(curves: Path) -> None:
    x, y = _points()
    assert cross_val_score(FewShotRegressor(curves), x, y, cv=2).shape == (2,)
    pipe = make_pipeline(StandardScaler(), FewShotRegressor(curves)).fit(x, y)
    assert pipe.predict(x).shape == (10,)
    reg = FewShotRegressor(curves, num_steps=2, checkpoint="ensemble")
    assert clone(reg).get_params() == reg.get_params()
    reg.fit(x, y)
    assert (pickle.loads(pickle.dumps(reg)).predict(x) == reg.predict(x)).all()
    with pytest.raises(NotFittedError):
        clone(reg).predict(x)


def test_a_failed_fit_restores_the_previous_one(curves: Path) -> None:
    x, y = _points()
    reg = FewShotRegressor(curves).fit(x, y)
    before = dict(vars(reg))
    with pytest.raises(ConfigError, match=r"got 2 and 1\."):
        reg.fit(np.hstack([x, x]), y[:, None])
    assert vars(reg) == before
    assert reg.predict(x).shape == (10,)


def test_scikit_learn_checks_fail_only_because_of_the_number_of_features(curves: Path) -> None:
    """The checks try several numbers of features, but a run supports only one."""
    results = check_estimator(FewShotRegressor(curves), on_fail=None, on_skip=None)
    failed = [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]
    # Some checks raise their own error, with ours as the cause.
    whys = [(name, f"{error} {error.__cause__}") for name, error in failed]
    assert not [name for name, why in whys if "feature(s) and" not in why or "got 1 and" in why]
    assert sum(r["status"] == "passed" for r in results) > 10


def test_wrong_input(curves: Path, run: Path) -> None:
    x, y = _points()
    with pytest.raises(ConfigError, match="was not trained on regression"):
        FewShotRegressor(run).fit(x, y)
    with pytest.raises(ConfigError, match=r"`num_steps` must be a whole number .*, got '3'"):
        FewShotRegressor(curves, num_steps="3").fit(x, y)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="`device` is 'gpu'"):
        FewShotRegressor(curves, device="gpu").fit(x, y)
    with pytest.raises(
        ConfigError, match=r"trained on 1 feature\(s\) and 1 output\(s\), got 2 and 1"
    ):
        FewShotRegressor(curves).fit(np.hstack([x, x]), y)
    with pytest.raises(
        ConfigError, match=r"trained on 1 feature\(s\) and 1 output\(s\), got 1 and 2"
    ):
        FewShotRegressor(curves).fit(x, np.stack([y, y], axis=1))
    with pytest.raises(ValueError, match="NaN"):
        FewShotRegressor(curves).fit(x * np.nan, y)
    with pytest.raises(ValueError, match="X has 3 features"):
        FewShotRegressor(curves).fit(x, y).predict(np.zeros((2, 3)))
