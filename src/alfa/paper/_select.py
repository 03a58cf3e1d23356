"""Selection of the paper's cells."""

from collections.abc import Collection, Mapping, Sequence

from alfa.errors import ConfigError, did_you_mean
from alfa.paper._table import Cell, Table


def select(tables: Sequence[Table], wanted: Mapping[str, Collection[str]]) -> list[Cell]:
    """Return the cells of tables that match all filters.

    `wanted` contains the allowed values of ``"dataset"``, ``"shots"``, ``"rows"``, and
    ``"backbone"``; a missing or empty filter matches all cells. Raises ConfigError if no cell has
    one of the values, or no cell matches all filters.
    """
    found = {cell.id: (cell, _traits(table, cell)) for table in tables for cell in table.cells}
    names = ", ".join(table.name for table in tables)
    if not found:
        raise ConfigError(f"{names}: all figures are quoted or repeated; nothing can be run.")
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
