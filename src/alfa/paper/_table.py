"""Tables of published figures, the experiments that measure them, and selections of cells."""

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from alfa.config import Experiment, parse_experiment
from alfa.errors import ConfigError, did_you_mean

Metric = Literal["accuracy", "mse"]


@dataclass(frozen=True)
class Figure:
    """A figure as the paper prints it, such as ``"70.00 +- 0.46"``; accuracies are percentages."""

    text: str
    is_interval: bool = False  # the plus-minus is half of the 95 % interval of the mean

    @property
    def value(self) -> float:
        return float(self.text.split()[0])

    @property
    def spread(self) -> float | None:
        _, sign, spread = self.text.partition(" +- ")
        return float(spread) if sign else None


@dataclass(frozen=True)
class Quoted:
    """A figure that the paper quotes from other work, without an experiment here."""

    published: Figure | None  # None if the paper has a dash


@dataclass(frozen=True)
class Cell:
    """A figure of the paper, and the experiment that measures it."""

    id: str  # such as "table1/miniimagenet-5w5s/alfa+maml/conv4"
    published: Figure
    run: str  # the name of the model; cells with the same name share its training
    content: Mapping[str, Any]  # the experiment that trains the model, as plain values
    test_dataset: str | None = None  # if it differs from the training dataset
    pretrained: str | None = None  # the name of a pretrained backbone; models may share one
    quoted: bool = False  # the paper quotes the figure from other work
    depends_on_dataset: bool = False  # the same row has other settings for another dataset

    @property
    def table(self) -> str:
        return self.id.partition("/")[0]

    @property
    def metric(self) -> Metric:
        return "accuracy" if "dataset" in self.content["tasks"] else "mse"

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets that must be prepared."""
        names = (self.content["tasks"].get("dataset"), self.test_dataset)
        return tuple(dict.fromkeys(filter(None, names)))

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
    """A row or a column."""

    key: str  # its name in cell ids and on the command line
    title: str  # its name in the paper
    group: str = ""  # the heading of several rows or columns
    footnotes: tuple[str, ...] = ()  # sentences


@dataclass(frozen=True)
class Table:
    """A table of the paper."""

    name: str  # such as "table1"
    title: str
    about: str
    plus_minus: str  # what the paper's plus-minus means
    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    entries: Mapping[tuple[str, str], Entry] = field(repr=False)  # by row and column, row by row

    @property
    def label(self) -> str:
        """The name in a sentence, such as ``"Table 1"``."""
        return f"Table {self.name.removeprefix('table').upper()}"

    @cached_property
    def repeats(self) -> tuple[str, ...]:
        """The names of other tables whose cells it repeats."""
        tables = [entry.table for entry in self.entries.values() if isinstance(entry, Cell)]
        return tuple(name for name in dict.fromkeys(tables) if name != self.name)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The cells, row by row, without cells of other tables."""
        entries = self.entries.values()
        return tuple(e for e in entries if isinstance(e, Cell) and e.table == self.name)


def select(tables: Sequence[Table], wanted: Mapping[str, Collection[str]]) -> list[Cell]:
    """Return the cells of tables that match all filters.

    `wanted` contains the allowed values of ``"dataset"``, ``"shots"``, ``"rows"``, and
    ``"backbone"``; a missing or empty filter matches all cells. Raises ConfigError if no cell has
    one of the values, or no cell matches all filters.
    """
    found = {cell.id: (cell, _traits(table, cell)) for table in tables for cell in table.cells}
    names = ", ".join(table.name for table in tables)
    for trait, values in wanted.items():
        known = {value: None for _, traits in found.values() for value in traits[trait]}
        for value in values:
            if value not in known:
                choices = f"choose from {', '.join(known)}" if known else "omit it"
                hint = did_you_mean(value, known)
                raise ConfigError(f"no cell of {names} has --{trait} {value}; {choices}.{hint}")
    chosen = [
        cell
        for cell, traits in found.values()
        if all(not values or set(values) & set(traits[t]) for t, values in wanted.items())
    ]
    if not chosen:
        filters = ", ".join(f"--{t} {' '.join(values)}" for t, values in wanted.items() if values)
        raise ConfigError(f"no cell of {names} matches all of {filters}; omit one of them.")
    return chosen


def _traits(table: Table, cell: Cell) -> dict[str, tuple[str, ...]]:
    """Return the values that filters compare."""
    ((row, column),) = (place for place, entry in table.entries.items() if entry is cell)
    _, _, name, backbone = cell.id.split("/")
    tasks = cell.content["tasks"]
    return {
        "dataset": cell.datasets,
        "shots": tuple(str(tasks[key]) for key in ("shot", "num_support") if key in tasks),
        # Rows and columns of the table, and the name in the id of the cell.
        "rows": tuple(dict.fromkeys((name, row.partition("/")[0], row, column))),
        "backbone": (backbone,),
    }
