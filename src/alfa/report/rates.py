"""The rates of a rule over steps, layers, and tasks (Figures 3 and A to C of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

from alfa.data import Tasks
from alfa.errors import ConfigError, did_you_mean
from alfa.learner import Learner
from alfa.report.output import csv_text
from alfa.report.plots import COLORS, STYLE

_AT_ONCE = 20  # tasks in a batch
_TAIL = 5  # percentage of the tasks beyond each whisker


@dataclass(frozen=True)
class UsedRates:
    """The rates of a rule on some tasks."""

    title: str  # the name of the tasks
    layers: tuple[str, ...]
    alpha: np.ndarray  # learning rates [step, task, layer]
    beta: np.ndarray  # factors on the weights, likewise; the mean over a layer if they vary there

    @property
    def num_steps(self) -> int:
        return int(self.alpha.shape[0])

    def only(self, patterns: Sequence[str]) -> UsedRates:
        """Select layers by patterns; raise ConfigError if a pattern matches no layer."""
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in self.layers):
                raise ConfigError(
                    f"no layer matches {pattern}; the layers are {', '.join(self.layers)}."
                    f"{did_you_mean(pattern, self.layers)}"
                )
        chosen = [
            number
            for number, name in enumerate(self.layers)
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        ]
        names = tuple(self.layers[number] for number in chosen)
        return UsedRates(self.title, names, self.alpha[:, :, chosen], self.beta[:, :, chosen])


def used_rates(
    learner: Learner, tasks: Tasks, *, title: str, num_tasks: int = 200, seed: int = 0
) -> UsedRates:
    """Adapt a learner to test tasks, and record the rates of its rule."""
    layers = learner.init.layers
    found: list[Tensor] = []
    # Tasks of different sizes cannot be stacked, and may be large.
    at_once = 1 if tasks.varies else _AT_ONCE
    for first in range(0, num_tasks, at_once):
        count = min(at_once, num_tasks - first)
        for group in tasks.groups(first, num_tasks=count, split="test", seed=seed):
            episode = group.episode.to("cpu", learner.dtype)
            adapted = learner.adapt(episode.support_x, episode.support_y, order="none")
            steps = [torch.stack(x.per_layer(layers, episode.num_tasks)) for x in adapted.rates]
            # Without steps, the rates are empty.
            empty = torch.empty(2, 0, episode.num_tasks, len(layers))
            found.append(torch.stack(steps, dim=1).detach() if steps else empty)
    alpha, beta = torch.cat(found, dim=2).cpu().numpy()
    return UsedRates(title, tuple(layers), alpha, beta)


@mpl.rc_context(STYLE)
def plot_bands(rates: UsedRates) -> Figure:
    """Plot alpha above beta, one column per layer: the median over tasks and a 90 % band."""
    steps = np.arange(1, rates.num_steps + 1)
    num_layers = len(rates.layers)
    figure = Figure(figsize=(1.75 * num_layers, 3.9), layout="constrained")
    panels = figure.subplots(2, num_layers, sharex=True, squeeze=False)
    for row, name, color in zip(panels, ("alpha", "beta"), COLORS[1:3], strict=True):
        for number, axes in enumerate(row):
            per_task = getattr(rates, name)[:, :, number]
            levels = [_TAIL / 100, 0.5, 1 - _TAIL / 100]
            low, middle, high = np.quantile(per_task, levels, axis=1)
            axes.fill_between(steps, low, high, color=color, alpha=0.25, linewidth=0)
            axes.plot(steps, middle, color=color, marker="o", markersize=3, linewidth=1.4)
            axes.ticklabel_format(useOffset=False)
            axes.tick_params(labelsize=7)
            axes.axhline(0 if name == "alpha" else 1, color="black", linewidth=0.5)
            if name == "alpha":
                axes.set_title(rates.layers[number], fontsize=8)
            else:
                axes.set_xlabel("inner step", fontsize=8)
                axes.set_xticks(steps)
        row[0].set_ylabel(name)
    return figure


@mpl.rc_context(STYLE)
def plot_boxes(all_rates: Sequence[UsedRates], *, zoom: int) -> Figure:
    """Plot boxes over tasks, one row per layer: alpha, one step of alpha, beta, one step of beta.

    Boxes contain half of the tasks, and whiskers 90 % of them; the line is the median. Rates on
    several kinds of tasks have the same layers. Step `zoom`, from 1, has its own panel and scale.
    """
    first = all_rates[0]
    if not 1 <= zoom <= first.num_steps:
        raise ConfigError(f"`zoom` must be from 1 to {first.num_steps}, got {zoom}.")
    num_layers = len(first.layers)
    figure = Figure(figsize=(10.5, 0.9 + 1.7 * num_layers), layout="constrained")
    panels = figure.subplots(num_layers, 4, squeeze=False, width_ratios=[3, 1, 3, 1], sharex="col")
    for layer, row in enumerate(panels):
        for name, whole, part in (("alpha", *row[:2]), ("beta", *row[2:])):
            values = [getattr(rates, name)[:, :, layer] for rates in all_rates]
            steps = np.arange(1, first.num_steps + 1)
            _draw_boxes(whole, values, steps)
            _draw_boxes(part, [v[zoom - 1 : zoom] for v in values], steps[zoom - 1 : zoom])
            whole.axhline(0 if name == "alpha" else 1, color="black", linewidth=0.5, zorder=0)
            if layer == 0:
                whole.set_title(f"{name}, all steps")
                part.set_title(f"step {zoom} alone")
        row[0].set_ylabel(first.layers[layer], fontsize=8)
    for axes in panels[-1]:
        axes.set_xlabel("inner step")
    if len(all_rates) > 1:
        handles = [
            Patch(facecolor=_color(number), alpha=0.55, label=rates.title)
            for number, rates in enumerate(all_rates)
        ]
        figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
    return figure


def _draw_boxes(axes: Axes, values: Sequence[np.ndarray], steps: np.ndarray) -> None:
    width = 0.7 / len(values)
    for number, per_step in enumerate(values):
        offset = (number - (len(values) - 1) / 2) * width
        drawn = axes.boxplot(
            list(per_step),
            positions=steps + offset,
            widths=0.85 * width,
            whis=(_TAIL, 100 - _TAIL),
            showfliers=False,
            patch_artist=True,
            medianprops={"color": "black", "linewidth": 1},
            manage_ticks=False,
        )
        for box in drawn["boxes"]:
            box.set(facecolor=_color(number), alpha=0.55, linewidth=0.6)
    axes.set_xticks(steps)
    axes.set_xlim(steps[0] - 0.6, steps[-1] + 0.6)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.tick_params(labelsize=7)


def _color(number: int) -> str:
    return COLORS[(number + 1) % len(COLORS)]


def rates_csv(all_rates: Sequence[UsedRates]) -> str:
    """Format one line per kind of tasks, task, step, and layer."""
    rows = (
        (rates.title, task, step + 1, layer, f"{alpha:.8g}", f"{beta:.8g}")
        for rates in all_rates
        for task in range(rates.alpha.shape[1])
        for step in range(rates.num_steps)
        for layer, alpha, beta in zip(
            rates.layers, rates.alpha[step, task], rates.beta[step, task], strict=True
        )
    )
    return csv_text(["tasks", "task", "step", "layer", "alpha", "beta"], rows)
