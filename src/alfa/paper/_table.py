"""Tables of published figures, and the experiments that measure them."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from alfa.config import Experiment, parse_experiment

Metric = Literal["accuracy", "mse"]


@dataclass(frozen=True)
class Figure:
    """A figure as the paper prints it; accuracies are percentages.

    Attributes:
        text: such as ``"70.00 +- 0.46"``, or ``"61.48"``.
    """

    text: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\d+\.\d+( \+- \d+\.\d+)?", self.text):
            raise ValueError(f"{self.text!r} is not a figure")

    @property
    def value(self) -> float:
        return float(self.text.split()[0])

    @property
    def spread(self) -> float | None:
        _, sign, spread = self.text.partition(" +- ")
        return float(spread) if sign else None


@dataclass(frozen=True)
class Quoted:
    """A figure that the paper quotes from other work; no experiment here measures it.

    Attributes:
        published: the figure, or None if the paper has a dash.
    """

    published: Figure | None


@dataclass(frozen=True)
class Cell:
    """A figure of the paper, and the experiment that measures it.

    Attributes:
        id: such as ``"table1/miniimagenet-5w5s/alfa+maml/conv4"``.
        published: the paper's figure.
        run: the name of the model; cells with the same name share its training.
        content: the experiment that trains the model, as plain values.
        test_dataset: the dataset of the test tasks, if it is not the training dataset.
        pretrained: the name of the backbone that training starts from; models may share one.
        quoted: the paper quotes the figure from other work, although the cell can be run.
    """

    id: str
    published: Figure
    run: str
    content: Mapping[str, Any]
    test_dataset: str | None = None
    pretrained: str | None = None
    quoted: bool = False

    @property
    def table(self) -> str:
        return self.id.partition("/")[0]

    @property
    def metric(self) -> Metric:
        return "accuracy" if "dataset" in self.content["tasks"] else "mse"

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets that must be prepared."""
        trained_on = self.content["tasks"].get("dataset")
        return tuple(dict.fromkeys(name for name in (trained_on, self.test_dataset) if name))

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment with all options."""
        content = copy.deepcopy(dict(self.content))
        if self.pretrained is not None:
            # The path of the weights is not part of the fingerprint.
            content["model"]["weights"] = self.pretrained
        return parse_experiment(content, source=self.id)


Entry = Cell | Quoted
Entries = dict[tuple[str, str], Entry]


@dataclass(frozen=True)
class Line:
    """A row or a column.

    Attributes:
        key: its name in cell ids and on the command line.
        title: its name in the paper.
        group: the heading it shares with other rows or columns.
    """

    key: str
    title: str
    group: str = ""


@dataclass(frozen=True)
class Table:
    """A table of the paper.

    Attributes:
        name: such as ``"table1"``.
        title: what it compares.
        about: what it shows, in a sentence or two.
        rows: from top to bottom.
        columns: from left to right.
        entries: by the keys of row and column.
    """

    name: str
    title: str
    about: str
    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    entries: Mapping[tuple[str, str], Entry] = field(repr=False)

    @property
    def label(self) -> str:
        """Its name in a sentence."""
        return f"Table {self.name.removeprefix('table').upper()}"

    @cached_property
    def repeats(self) -> tuple[str, ...]:
        """The names of other tables whose cells it repeats."""
        tables = [entry.table for entry in self.entries.values() if isinstance(entry, Cell)]
        return tuple(name for name in dict.fromkeys(tables) if name != self.name)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Its cells, row by row, without those it repeats from another table."""
        places = [(row.key, column.key) for row in self.rows for column in self.columns]
        found = [self.entries[place] for place in places if place in self.entries]
        return tuple(e for e in found if isinstance(e, Cell) and e.table == self.name)
