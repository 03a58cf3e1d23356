"""What a table of the paper is: rows and columns of figures, and the experiments behind them."""

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
    """A figure as the paper prints it, accuracies in percent.

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
    """A figure that the paper quotes from others, which nothing here can run.

    Attributes:
        published: the figure, or None where the paper has a dash.
    """

    published: Figure | None


@dataclass(frozen=True)
class Cell:
    """A figure of the paper, and the experiment that measures it.

    Attributes:
        id: such as ``"table1/miniimagenet-5w5s/alfa+maml/conv4"``.
        published: the paper's figure.
        run: the model that it is measured with, by name; cells that share one share its training.
        content: the experiment that trains the model, as plain values.
        judged_on: the test classes of another dataset, if not those of the experiment's own.
        pretrained: the backbone that training begins with, by name; models may share one.
        quoted: the paper quotes its figure from others, although the cell can be run.
    """

    id: str
    published: Figure
    run: str
    content: Mapping[str, Any]
    judged_on: str | None = None
    pretrained: str | None = None
    quoted: bool = False

    @property
    def table(self) -> str:
        return self.id.partition("/")[0]

    @property
    def metric(self) -> Metric:
        return "mse" if self.content.get("tasks", {}).get("name") == "sinusoid" else "accuracy"

    @property
    def datasets(self) -> tuple[str, ...]:
        """What must be prepared before it can be run."""
        trained_on = self.content.get("tasks", {}).get("dataset")
        return tuple(dict.fromkeys(name for name in (trained_on, self.judged_on) if name))

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment, with every option spelled out."""
        content = copy.deepcopy(dict(self.content))
        if self.pretrained is not None:
            # Where the file lies does not matter to what it is.
            content["model"]["weights"] = self.pretrained
        return parse_experiment(content, source=self.id)


Entry = Cell | Quoted


@dataclass(frozen=True)
class Line:
    """A row or a column.

    Attributes:
        key: what it is called in the names of cells and on the command line.
        title: what the paper calls it.
        group: what it stands under, with others.
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
        entries: by the keys of row and column; where the paper has none, there is none.
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
        """The names of other tables whose cells it holds."""
        tables = [entry.table for entry in self.entries.values() if isinstance(entry, Cell)]
        return tuple(name for name in dict.fromkeys(tables) if name != self.name)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Its own cells, row by row; those that it repeats from another table are that one's."""
        places = [(row.key, column.key) for row in self.rows for column in self.columns]
        found = [self.entries[place] for place in places if place in self.entries]
        return tuple(e for e in found if isinstance(e, Cell) and e.table == self.name)
