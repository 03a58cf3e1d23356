"""The rates that a rule uses, over steps, layers and tasks (Figures 3 and A to C of the paper)."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from alfa.data import Split, Tasks
from alfa.errors import ConfigError, did_you_mean
from alfa.inner import Learner
from alfa.report.plots import COLORS, STYLE
from alfa.types import Layers, Rates

# Adapted at once; the memory of more would serve nobody.
_AT_ONCE = 20
# Of the tasks, the part that whiskers leave out at either end, in percent.
_TAIL = 5


@dataclass(frozen=True)
class UsedRates:
    """The rates that a rule used on some tasks.

    Attributes:
        title: what the tasks are.
        layers: names of the adapted layers.
        alpha: learning rates ``[step, task, layer]``.
        beta: factors on the weights, likewise; of a rate for each single weight, the layer's mean.
    """

    title: str
    layers: tuple[str, ...]
    alpha: np.ndarray
    beta: np.ndarray

    @property
    def num_steps(self) -> int:
        return int(self.alpha.shape[0])

    def only(self, patterns: Sequence[str]) -> UsedRates:
        """Some of the layers.

        Raises:
            ConfigError: there is no such layer.
        """
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in self.layers):
                raise ConfigError(
                    f"no layer is called {pattern}; there are {', '.join(self.layers)}."
                    f"{did_you_mean(pattern, self.layers)}"
                )
        kept = [
            number
            for number, name in enumerate(self.layers)
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        ]
        names = tuple(self.layers[number] for number in kept)
        return UsedRates(self.title, names, self.alpha[:, :, kept], self.beta[:, :, kept])


def rates_of(rates: Sequence[Rates], layers: Layers, num_tasks: int) -> np.ndarray:
    """Alpha and beta of every step, ``[2, step, task, layer]``."""
    steps = [torch.stack(step.per_layer(layers, num_tasks)) for step in rates]
    if not steps:
        return np.empty((2, 0, num_tasks, len(layers)), np.float32)
    return torch.stack(steps, dim=1).detach().cpu().numpy()


def used_rates(
    learner: Learner,
    tasks: Tasks,
    *,
    title: str,
    num_tasks: int = 200,
    split: Split = "test",
    seed: int = 0,
) -> UsedRates:
    """Adapt to tasks, and keep what rates the rule used.

    Args:
        learner: a trained one.
        tasks: to adapt to.
        title: what they are.
        num_tasks: how many.
        split: that they come from.
        seed: with `split`, decides the tasks.
    """
    layers = learner.init.layers
    found: list[np.ndarray] = []
    # Those of different sizes would not lie side by side, and may be large.
    at_once = 1 if tasks.varies else _AT_ONCE
    for first in range(0, num_tasks, at_once):
        count = min(at_once, num_tasks - first)
        for group in tasks.groups(first, num_tasks=count, split=split, seed=seed):
            episode = group.episode.to("cpu", learner.dtype)
            adapted = learner.adapt(episode.support_x, episode.support_y, order="none")
            found.append(rates_of(adapted.rates, layers, episode.num_tasks))
    alpha, beta = np.concatenate(found, axis=2)
    return UsedRates(title, tuple(layers), alpha, beta)


def bands(rates: UsedRates) -> Figure:
    """Alpha above beta, a column for each layer: the median over tasks, and 90 % of them."""
    steps = np.arange(1, rates.num_steps + 1)
    num_layers = len(rates.layers)
    with mpl.rc_context(STYLE):
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


def boxes(all_rates: Sequence[UsedRates], *, zoom: int) -> Figure:
    """Box plots over tasks: a row for each layer; alpha, one of its steps, beta, one of its steps.

    Boxes hold the middle half of the tasks and whiskers 90 % of them; the line is the median.

    Args:
        all_rates: of the same layers, on one or more kinds of tasks.
        zoom: the step that has a panel, and so a scale, of its own; the first is 1.
    """
    first = all_rates[0]
    if not 1 <= zoom <= first.num_steps:
        raise ConfigError(f"`zoom` is {zoom}, but the steps are 1 to {first.num_steps}.")
    num_layers = len(first.layers)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10.5, 0.9 + 1.7 * num_layers), layout="constrained")
        panels = figure.subplots(
            num_layers, 4, squeeze=False, width_ratios=[3, 1, 3, 1], sharex="col"
        )
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


def comma_separated(all_rates: Sequence[UsedRates]) -> str:
    """One line for every kind of tasks, task, step and layer."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["tasks", "task", "step", "layer", "alpha", "beta"])
    for rates in all_rates:
        num_steps, num_tasks, _ = rates.alpha.shape
        for task in range(num_tasks):
            for step in range(num_steps):
                for number, layer in enumerate(rates.layers):
                    alpha, beta = (x[step, task, number] for x in (rates.alpha, rates.beta))
                    writer.writerow(
                        [rates.title, task, step + 1, layer, f"{alpha:.8g}", f"{beta:.8g}"]
                    )
    return file.getvalue()
