"""Tables of docs/results/photo-estimates.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from _common import table

Rows = Mapping[str, Any]
Results = Mapping[str, Rows]


def lines(found: Results) -> list[str]:
    """Return the tables of all measurements."""
    return [
        *("## Accuracy and calibration", "", *_accuracy(found)),
        *("## One photo per class", "", *_one_shot(found)),
        *("## None of these", "", *_rejection(found)),
        *("## Choice of a head", "", *_heads(found)),
        *("## Label next", "", *_labels(found)),
    ]


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f}"


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


def _extremes(values: Sequence[float], text: Callable[[float], str]) -> str:
    """Format a mean, and the smallest and the largest value."""
    return f"{text(float(np.mean(values)))} ({text(min(values))} to {text(max(values))})"


def _parts(found: Results, study: str) -> Iterator[tuple[list[str], Rows]]:
    """Yield the rest of the names, and the results, of a study's parts."""
    for name, rows in found.items():
        first, *rest = name.split("/")
        if first == study:
            yield rest, rows


def _accuracy(found: Results) -> list[str]:
    head = ["domain", "head", "true accuracy", "mean error", "root mean square error"]
    head += ["coverage", "mean width", "ECE", "held-out ECE"]
    rows = []
    for (name, setting), domains in _parts(found, "accuracy"):
        if setting == "5-way 5-shot" and name in ("ridge", "logistic"):
            rows += [[d, name, *_estimate(row)] for d, row in domains.items()]
    tables = ["5-way 5-shot tasks, by domain:", "", *table(head, sorted(rows))]
    head = ["setting", "head", "domains", "true accuracy", "mean error", "coverage"]
    head += ["mean width", "ECE"]
    rows = []
    for (name, setting), domains in _parts(found, "accuracy"):
        if all("bias" in row for row in domains.values()):
            rows.append([setting, name, str(len(domains)), *_summary(list(domains.values()))])
    note = "Mean over domains, with the smallest and the largest value:"
    return [*tables, note, "", *table(head, rows)]


def _estimate(row: Rows) -> list[str]:
    return [
        _percent(row["truth"]),
        _points(row["bias"]),
        _percent(row["rmse"]),
        _percent(row["coverage"], 0),
        _percent(row["width"], 0),
        _percent(row["ece"]),
        _percent(row["held_out_ece"]),
    ]


def _summary(rows: Sequence[Rows]) -> list[str]:
    def values(name: str) -> list[float]:
        return [row[name] for row in rows]

    return [
        _percent(float(np.mean(values("truth")))),
        _extremes(values("bias"), _points),
        _extremes(values("coverage"), lambda value: _percent(value, 0)),
        _percent(float(np.mean(values("width"))), 0),
        _extremes(values("ece"), _percent),
    ]


def _one_shot(found: Results) -> list[str]:
    one, five = (found.get(f"accuracy/ridge/5-way {shot}-shot", {}) for shot in (1, 5))
    rows = []
    for domain in one.keys() & five.keys():
        few, many = one[domain]["truth"], five[domain]["truth"]
        ratio = f"{(1 - few) / (1 - many):.1f}" if many < 1 else ""
        rows.append([domain, _percent(few), _percent(many), ratio, _percent(one[domain]["ece"])])
    head = ["domain", "1-shot accuracy", "5-shot accuracy", "ratio of errors", "1-shot ECE"]
    return table(head, sorted(rows))


def _rejection(found: Results) -> list[str]:
    head = ["domain", "score", "rate", "false alarms", "other classes", "other domains"]
    head += ["gain in accuracy"]
    rows, means = [], []
    for (setting,), domains in _parts(found, "rejection"):
        for name in next(iter(domains.values())):
            score, rate = name.rsplit(", ", 1)
            values = {domain: row[name] for domain, row in domains.items()}
            mean = np.mean(list(values.values()), axis=0)
            means.append([setting, score, rate, *_shares(mean)])
            if setting == "5-way 5-shot" and score == "ridge + prototype":
                rows += [[d, score, rate, *_shares(found)] for d, found in values.items()]
    return [
        *("5-way 5-shot tasks, by domain:", "", *table(head, sorted(rows))),
        *("Means over domains:", "", *table(["setting", *head[1:]], means)),
    ]


def _shares(shares: Sequence[float]) -> list[str]:
    return [*map(_percent, shares[:3]), _points(shares[3])]


def _heads(found: Results) -> list[str]:
    rows, names = [], []
    for (setting,), domains in _parts(found, "heads"):
        names = [name for name in next(iter(domains.values())) if name != "default chosen"]
        cells = [_extremes([row[n][0] for row in domains.values()], _points) for n in names]
        kept = np.mean([row["default chosen"][0] for row in domains.values()])
        rows.append([setting, str(len(domains)), *cells, _percent(float(kept), 0)])
    return table(["setting", "domains", *names, "default chosen"], rows)


def _labels(found: Results) -> list[str]:
    tables: list[str] = []
    for (setting,), domains in _parts(found, "labels"):
        names = list(next(iter(domains.values())))
        rows = []
        for domain, row in sorted(domains.items()):
            cells = [_percent(row[name][0]) for name in names[:2]]
            cells += [f"{_points(row[n][0])} +- {_percent(row[n][1])}" for n in names[2:]]
            rows.append([domain, *cells])
        means = [float(np.mean([row[name][0] for row in domains.values()])) for name in names]
        rows.append(["mean", *map(_percent, means[:2]), *map(_points, means[2:])])
        tables += [f"{setting}:", "", *table(["domain", *names], rows)]
    return tables
