import dataclasses
import json

import numpy as np
import pytest
import torch

from alfa.data import SPLITS, TASKS, Sinusoids, grouped
from alfa.errors import ConfigError


@pytest.fixture
def tasks():
    return Sinusoids(num_support=5, num_query=20)


def same(one, other):
    names = ("support_x", "support_y", "query_x", "query_y")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)


def test_curves_and_inputs_are_uniform_in_their_ranges():
    curves, x = Sinusoids(num_support=10, num_query=10).draw(0, num_tasks=4000)
    ranges = [
        (curves.amplitude, 0.1, 5.0),
        (curves.frequency, 0.8, 1.2),
        (curves.phase, 0.0, np.pi),
        (x.ravel(), -5.0, 5.0),
    ]
    for values, low, high in ranges:
        assert values.min() >= low
        assert values.max() <= high
        # Quantiles of 4000 uniform draws lie within 5 standard errors, 0.04 of the range.
        quantiles = np.quantile(values, [0.25, 0.5, 0.75])
        np.testing.assert_allclose(
            (quantiles - low) / (high - low), [0.25, 0.5, 0.75], rtol=0, atol=0.04
        )


def test_amplitude_frequency_and_phase_are_independent():
    curves, x = Sinusoids().draw(0, num_tasks=4000)
    draws = np.stack([curves.amplitude, curves.frequency, curves.phase, x[:, 0], x[:, -1]])
    off_diagonal = np.corrcoef(draws) - np.eye(5)
    assert np.abs(off_diagonal).max() < 5 / 4000**0.5


def test_targets_lie_on_the_curve(tasks):
    curves, x = tasks.draw(3, num_tasks=4)
    episode = tasks.episode(3, num_tasks=4)
    for task in range(4):
        inputs = torch.cat([episode.support_x[task], episode.query_x[task]]).squeeze(1)
        targets = torch.cat([episode.support_y[task], episode.query_y[task]]).squeeze(1)
        expected = curves.amplitude[task] * np.sin(
            curves.frequency[task] * x[task] + curves.phase[task]
        )
        torch.testing.assert_close(inputs.double(), torch.from_numpy(x[task]), rtol=0, atol=1e-6)
        torch.testing.assert_close(targets.double(), torch.from_numpy(expected), rtol=0, atol=1e-6)


def test_support_and_query_have_the_sizes_asked_for(tasks):
    episode = tasks.episode(0, num_tasks=3)
    assert episode.num_tasks == 3
    assert episode.support_x.shape == episode.support_y.shape == (3, 5, 1)
    assert episode.query_x.shape == episode.query_y.shape == (3, 20, 1)
    assert episode.support_x.dtype == torch.float32


def test_support_and_query_share_no_points(tasks):
    episode = tasks.episode(0, num_tasks=3)
    for task in range(3):
        support = set(episode.support_x[task].flatten().tolist())
        assert not support & set(episode.query_x[task].flatten().tolist())


@pytest.mark.parametrize("split", SPLITS)
def test_a_stack_is_its_tasks_drawn_alone(tasks, split):
    stack = tasks.episode(7, num_tasks=4, split=split, seed=2)
    for task in range(4):
        alone = tasks.episode(7 + task, num_tasks=1, split=split, seed=2)
        assert torch.equal(stack.support_x[task], alone.support_x[0])
        assert torch.equal(stack.support_y[task], alone.support_y[0])
        assert torch.equal(stack.query_x[task], alone.query_x[0])
        assert torch.equal(stack.query_y[task], alone.query_y[0])


def test_a_task_depends_on_seed_split_and_number_only(tasks):
    first = tasks.episode(5, num_tasks=1, split="val", seed=3)
    tasks.episode(0, num_tasks=9, split="val", seed=3)
    again = Sinusoids(num_support=5, num_query=20).episode(5, num_tasks=1, split="val", seed=3)
    assert same(first, again)


@pytest.mark.parametrize(
    "change", [{"first": 6}, {"split": "train"}, {"split": "test"}, {"seed": 4}]
)
def test_another_seed_split_or_number_is_another_task(tasks, change):
    where = {"first": 5, "split": "val", "seed": 3}
    one, other = (
        tasks.episode(options.pop("first"), num_tasks=1, **options)
        for options in (dict(where), {**where, **change})
    )
    assert not torch.equal(one.support_x, other.support_x)
    assert not torch.equal(one.support_y, other.support_y)


def test_no_task_of_a_split_is_one_of_another(tasks):
    amplitudes = [set(tasks.draw(0, num_tasks=50, split=s)[0].amplitude) for s in SPLITS]
    assert len(set.union(*amplitudes)) == 150


def test_the_curve_of_a_task_does_not_depend_on_the_number_of_points():
    few, many = Sinusoids(num_support=5, num_query=10), Sinusoids(num_support=20, num_query=100)
    one, other = few.draw(4, num_tasks=2)[0], many.draw(4, num_tasks=2)[0]
    assert np.array_equal(one.amplitude, other.amplitude)
    assert np.array_equal(one.frequency, other.frequency)
    assert np.array_equal(one.phase, other.phase)


def test_sinusoids_are_known_by_name():
    assert TASKS.get("sinusoid") is Sinusoids
    assert Sinusoids.input_shape == (1,)
    assert (Sinusoids.num_outputs, Sinusoids.loss) == (1, "mse")


def test_tasks_of_regression_are_grouped_by_their_sizes_alone() -> None:
    tasks = Sinusoids(num_support=3)
    single = [tasks.episode(number, num_tasks=1) for number in range(5)]
    (group,) = grouped(range(5), single)
    assert group.indices == (0, 1, 2, 3, 4)


def test_numbers_of_numpy_are_written_as_others_are() -> None:
    tasks = Sinusoids()
    tasks.num_outputs, tasks.input_shape = np.int64(1), (np.int64(1),)
    assert json.loads(json.dumps(dataclasses.asdict(tasks.signature())))["num_outputs"] == 1


def test_a_split_that_there_is_not_is_named():
    with pytest.raises(ConfigError, match=r"`split` is 'tst', which is not one of.*'test'\?"):
        Sinusoids().episode(0, num_tasks=2, split="tst")
