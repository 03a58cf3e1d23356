"""The rates of a rule in figures and CSV files."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from alfa.errors import ConfigError
from alfa.report.load import TrainedRun
from alfa.report.rates import UsedRates, plot_bands, plot_boxes, rates_csv, used_rates


def _used(run: TrainedRun, num_tasks: int, title: str = "sines") -> UsedRates:
    return used_rates(run.learner, run.tasks, title=title, num_tasks=num_tasks)


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["rule.name=sgd"],
        ["rule.name=learned"],
        ["rule.per_parameter_decay=true"],
        ["rule.name=learned", "rule.per_parameter_decay=true"],
        ["rule.alpha={source='generated', per_layer=false}"],
        ["rule.alpha={source='constant', value=0.02}"],
    ],
    ids=lambda overrides: ",".join(overrides),
)
def test_rates_have_a_panel_for_alpha_and_beta_of_every_layer(trained, overrides) -> None:
    run = trained(*overrides)
    figure = plot_bands(_used(run, 6))
    assert len(figure.axes) == 2 * len(run.learner.init.layers) == 8
    for axes in figure.axes:
        assert len(axes.lines) == 2
        assert axes.lines[0].get_xdata().tolist() == [1, 2, 3, 4, 5]
        assert np.isfinite(axes.lines[0].get_ydata()).all()
    assert [axes.get_title() for axes in figure.axes[:4]] == list(run.learner.init.layers)
    figure.canvas.draw()


def test_an_element_wise_beta_is_averaged(trained) -> None:
    run = trained("rule.per_parameter_decay=true")
    figure = plot_bands(_used(run, 6))
    episode = run.tasks.episode(0, num_tasks=6, split="test", seed=0)
    adapted = run.learner.adapt(episode.support_x, episode.support_y, order="none")
    for axes, layer in zip(figure.axes[4:], run.learner.init.layers, strict=True):
        medians = [
            np.median(step.beta[layer].detach().flatten(1).mean(1).numpy())
            for step in adapted.rates
        ]
        assert axes.lines[0].get_ydata().tolist() == pytest.approx(medians, rel=1e-6)


def test_constant_rates_are_drawn_unchanged(trained) -> None:
    figure = plot_bands(_used(trained("rule.name=sgd"), 3))
    assert figure.axes[0].lines[0].get_ydata() == pytest.approx([0.01] * 5)
    assert figure.axes[4].lines[0].get_ydata() == pytest.approx([1.0] * 5)


def test_rates_do_not_depend_on_the_number_of_tasks_at_once(trained) -> None:
    run = trained()
    many = _used(run, 45)
    assert many.alpha.shape == many.beta.shape == (5, 45, 4)
    episode = run.tasks.episode(44, num_tasks=1, split="test", seed=0)
    adapted = run.learner.adapt(episode.support_x, episode.support_y, order="none")
    last = np.stack([step.alpha[0].detach().numpy() for step in adapted.rates])
    np.testing.assert_allclose(many.alpha[:, 44], last, rtol=1e-5)


def test_boxes_have_a_row_per_layer_and_a_color_per_kind_of_tasks(trained) -> None:
    one, other = _used(trained(), 8), _used(trained(), 8, "others")
    figure = plot_boxes([one, other], zoom=3)
    assert len(figure.axes) == 4 * 4
    whole, part = figure.axes[:2]
    # Two kinds of tasks, with a box for each step, or for the zoomed step.
    assert (len(whole.patches), len(part.patches)) == (10, 2)
    assert part.get_xticks().tolist() == [3]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["sines", "others"]
    figure.canvas.draw()


def test_a_box_holds_the_middle_half_of_the_tasks(trained) -> None:
    used = _used(trained(), 40)
    whole = plot_boxes([used], zoom=1).axes[0]
    for step, patch in enumerate(whole.patches):
        levels = patch.get_path().vertices[:, 1]
        low, high = np.quantile(used.alpha[step, :, 0], [0.25, 0.75])
        assert (levels.min(), levels.max()) == pytest.approx((low, high), rel=1e-4)


@pytest.mark.parametrize("zoom", [0, 6])
def test_the_zoomed_step_must_exist(trained, zoom: int) -> None:
    with pytest.raises(ConfigError, match="must be from 1 to 5, got"):
        plot_boxes([_used(trained(), 2)], zoom=zoom)


def test_layers_are_selected_by_patterns(trained) -> None:
    used = _used(trained(), 3)
    some = used.only(["*.bias"])
    assert some.layers == tuple(name for name in used.layers if name.endswith(".bias"))
    assert some.alpha.shape == (5, 3, len(some.layers))
    with pytest.raises(ConfigError, match=r"no layer matches conv9\.\*; the layers are "):
        used.only(["conv9.*"])


def test_the_csv_file_has_a_line_per_value(trained) -> None:
    used = _used(trained(), 3)
    rows = list(csv.DictReader(io.StringIO(rates_csv([used]))))
    assert len(rows) == 3 * 5 * 4
    row = rows[4 * 5 + 4 * 2 + 1]
    assert (row["tasks"], row["task"], row["step"], row["layer"]) == (
        *("sines", "1", "3"),
        used.layers[1],
    )
    assert float(row["alpha"]) == pytest.approx(used.alpha[2, 1, 1], rel=1e-6)
    assert float(row["beta"]) == pytest.approx(used.beta[2, 1, 1], rel=1e-6)
