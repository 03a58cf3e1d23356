"""Tasks that define a metric."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from alfa import MLP, SGD, LearnedInit, Learner, Run, Trainer, mse
from alfa.cli.main import main
from alfa.data import Sinusoids, Tasks
from alfa.errors import ConfigError
from alfa.evaluation import deciding_figure, difference, evaluate, mean_over_seeds, ranks
from alfa.ops import cross_entropy
from alfa.report.learning import METRICS, read_curves
from alfa.types import Episode


def worst_error(outputs, targets):
    return -(outputs - targets).abs().amax((1, 2))


class Worst(Sinusoids):
    metric = staticmethod(worst_error)


class Backward(Sinusoids):
    """Prefers large losses."""

    metric = staticmethod(mse)


def learner(seed: int = 0) -> Learner:
    torch.manual_seed(seed)
    model = MLP((1,), 1, hidden=[8])
    init = LearnedInit(model)
    return Learner(model, init=init, rule=SGD(init.layers), loss=mse, num_steps=1)


def by_hand(learners: list[Learner], tasks: Tasks, num_tasks: int) -> torch.Tensor:
    """Return the largest error of the mean outputs on each task."""
    episode = tasks.episode(0, num_tasks=num_tasks, split="test")
    outputs = [each(episode).outputs.detach() for each in learners]
    errors = torch.stack(outputs).mean(0) - episode.query_y
    return torch.stack([-task.abs().max() for task in errors])


@pytest.mark.parametrize("num_learners", [1, 3])
def test_an_evaluation_reports_it(num_learners: int) -> None:
    learners, tasks = [learner(seed) for seed in range(num_learners)], Worst()
    found, plain = (evaluate(learners, each, num_tasks=7) for each in (tasks, Sinusoids()))
    expected = by_hand(learners, tasks, 7).double()
    assert found.per_task == pytest.approx(expected.tolist(), rel=1e-5)
    assert found.metric == pytest.approx(float(expected.mean()), rel=1e-5)
    interval = 1.96 * float(expected.std()) / 7**0.5
    assert found.metric_interval == pytest.approx(interval, rel=1e-4)
    assert found.metric_name == "worst error"
    assert found.accuracy is found.accuracy_interval is None
    assert (found.loss, found.interval) == (plain.loss, plain.interval)
    assert found.score == found.metric
    assert plain.metric is plain.metric_name is None


def test_it_replaces_the_accuracy() -> None:
    class Confidence(Tasks):
        input_shape, num_outputs, loss = (1,), 3, "cross_entropy"
        metric_name = "mean confidence"

        def metric(self, outputs, targets):
            return outputs.softmax(-1).amax(-1).mean(1)

        def episode(self, first, *, num_tasks, split="train", seed=0):
            x = torch.randn(num_tasks, 12, 1, generator=torch.Generator().manual_seed(first))
            y = torch.arange(12).remainder(3).expand(num_tasks, -1)
            return Episode(x[:, :6], y[:, :6], x[:, 6:], y[:, 6:])

    model = MLP((1,), 3)
    init = LearnedInit(model)
    made = Learner(model, init=init, rule=SGD(init.layers), loss=cross_entropy)
    found = evaluate(made, Confidence(), num_tasks=3)
    assert found.accuracy is None
    assert 1 / 3 <= found.metric <= 1
    assert found.figure.name == "mean confidence"
    assert not found.figure.is_fraction


def test_the_name_is_the_functions() -> None:
    def name_of(metric, name="") -> str | None:
        kind = type("Named", (Sinusoids,), {"metric": metric, "metric_name": name})
        return evaluate(learner(), kind(), num_tasks=1).metric_name

    negative = staticmethod(lambda outputs, targets: -mse(outputs, targets))
    assert name_of(staticmethod(worst_error)) == "worst error"
    assert name_of(negative) == "metric"
    assert name_of(negative, "negative error") == "negative error"


def test_larger_is_better_in_ranks_and_comparisons() -> None:
    made = [learner(seed) for seed in range(3)]
    found = [evaluate(each, Worst(), num_tasks=50) for each in made]
    over = difference(found[0], found[1])
    assert over.mean == pytest.approx(found[0].metric - found[1].metric)
    best = max(range(3), key=lambda number: found[number].metric)
    assert ranks(found)[best] == min(ranks(found))
    mean = mean_over_seeds(found)
    assert mean.metric == pytest.approx(sum(each.metric for each in found) / 3)
    with pytest.raises(
        ConfigError, match="the worst error of one model cannot be compared with the loss"
    ):
        difference(found[0], evaluate(made[0], Sinusoids(), num_tasks=50))


def test_a_metric_of_another_shape_is_rejected() -> None:
    class PerExample(Sinusoids):
        metric = staticmethod(lambda outputs, targets: -(outputs - targets).abs().amax(2))

    class Infinite(Sinusoids):
        metric = staticmethod(lambda outputs, targets: mse(outputs, targets) / 0)

    with pytest.raises(ConfigError, match=r"the metric must return one value per task, of shape"):
        evaluate(learner(), PerExample(), num_tasks=2)
    with pytest.raises(ConfigError, match="the metric must be finite, got inf"):
        evaluate(learner(), Infinite(), num_tasks=2)


def test_the_best_model_has_the_best_metric(tmp_path) -> None:
    options = {"num_iterations": 12, "validate_every": 3, "num_val_tasks": 5, "num_test_tasks": 2}
    best = {}
    for kind in (Sinusoids, Backward):
        made = learner()
        optimizer = torch.optim.Adam(made.meta_parameters(), lr=0.05)
        trainer = Trainer(made, kind(), optimizer=optimizer, num_tasks=2, **options)
        result = trainer.fit(tmp_path / kind.__name__)
        records = Run.open(tmp_path / kind.__name__).metrics
        losses = {record["iteration"]: record["val_loss"] for record in records}
        choose = max if kind is Backward else min
        assert result["best_iteration"] == choose(losses, key=losses.__getitem__)
        best[kind] = result["best_iteration"]
    assert best[Sinusoids] != best[Backward]
    assert all(record["val_metric"] == record["val_loss"] for record in records)
    assert result["val_metric"] == losses[best[Backward]]
    assert result["test"]["metric_name"] == "mse"


PLUGIN = """
from alfa.data import Sinusoids, register_tasks

@register_tasks("worst-curves")
class WorstCurves(Sinusoids):
    def metric(self, outputs, targets):
        return -(outputs - targets).abs().amax((1, 2))
    metric_name = "worst error"
"""


def test_the_commands_name_it(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "worst_curves.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "mine.toml"
    config.write_text(
        'plugins = ["worst_curves"]\n[tasks]\nname = "worst-curves"\n[model]\nname = "mlp"\n'
        "hidden = [4]\n[rule]\nname = 'sgd'\n[outer]\nnum_iterations = 2\nvalidate_every = 1\n"
        "num_val_tasks = 2\n[test]\nnum_tasks = 3\n"
    )

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit, match="0"):
            main([*arguments])
        return capsys.readouterr().out

    try:
        for name in ("a", "b"):
            out = run("train", str(config), "--out", name)
        assert "worst error, best model" in out
        result = json.loads((tmp_path / "a" / "result.json").read_text())
        assert deciding_figure(result["test"]).name == "worst error"
        value = f"{result['test']['metric']:.4f}"
        assert f"a: worst error {value} +- " in run("evaluate", "a", "--num-tasks", "3")
        out = run("compare", "a", "b", "--num-tasks", "3")
        assert f"worst error {value}" in out
        assert "lower is better" not in out
        run("plot", "learning", "a", "b", "--metric", "val_metric", "--out", "curves.svg")
        assert METRICS[read_curves([tmp_path / "a"])[1]].title == "validation metric"
    finally:
        sys.modules.pop("worst_curves", None)
