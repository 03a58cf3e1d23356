"""The tables of docs/results/claims.md."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from _claims_queue import (
    CHANGES,
    CLAIMS,
    EPOCH,
    LENGTH,
    METHODS,
    OTHER_CODE,
    OTHER_DATASETS,
    PUBLISHED_TRANSFER,
    QUEUE,
    REPEATED,
    SHORT,
    VARIANTS,
)
from _common import figure, table

from alfa import methods
from alfa.evaluation import Difference, Evaluation, difference
from alfa.paper import TABLES

# Percentage points by which repeated training of one experiment can change the accuracy on the same
# tasks: two runs of ALFA + MAML differed by 0.7 in validation (root mean square over twelve epochs)
# and by up to 2.7 on other datasets.
MARGIN, MARGIN_OTHER_DATASETS = 1.0, 3.0


def accuracy_table(title: str, entries: Mapping[str, str], results: Mapping[str, Any]) -> list[str]:
    """Tabulate the accuracies of entries at every tested length.

    Args:
        title: the title of the table.
        entries: the method of each entry.
        results: the content of claims.json.
    """
    rows = []
    for name, method in entries.items():
        for length in tested_lengths(results.get(name, {})):
            found = results[name][str(length)]
            trains = found["seconds"] > 0
            rows.append(
                [
                    methods.METHODS[method].title,
                    f"{length:,}" if trains else "-",
                    f"{found['best_iteration']:,}" if trains else "-",
                    figure(found["test"]),
                    figure(found["ensemble"]) if "ensemble" in found else "-",
                    f"{found['seconds'] / 60:.0f}",
                ]
            )
    head = ["method", "iterations", "best iteration", "best model", "ensemble", "minutes"]
    return ["### " + title, "", *table(head, rows)] if rows else []


def other_datasets_table(results: Mapping[str, Any]) -> list[str]:
    """Tabulate the accuracies of the paper's methods on datasets that they were not trained on."""
    rows = []
    for name in METHODS:
        for length in tested_lengths(results.get(name, {})):
            found = results[name][str(length)]
            others = found.get("other_datasets", {})
            if others:
                figures = [
                    figure(others[x]["test"]) if x in others else "-" for x in OTHER_DATASETS
                ]
                trains = found["seconds"] > 0
                rows.append(
                    [methods.METHODS[name].title, f"{length:,}" if trains else "-", *figures]
                )
    head = ["trained on CIFAR-FS", "iterations", *OTHER_DATASETS]
    return ["### Other datasets", "", *table(head, rows)] if rows else []


def other_code_table(results: Mapping[str, Any]) -> list[str]:
    """Compare our accuracies with the published code and with a prototype of the same method."""
    rows = []
    for name, (title, published, prototype) in OTHER_CODE.items():
        found = results.get(name, {}).get(str(SHORT))
        rows.append([title, published, prototype, "-" if found is None else figure(found["test"])])
    head = ["5-shot", "published code", "prototype", "alfa"]
    ours = [results[name][str(SHORT)] for name in OTHER_CODE if str(SHORT) in results.get(name, {})]
    is_last = all(found["best_iteration"] == SHORT for found in ours)
    note = (
        "The published code and the prototype were tested on the same 300 tasks with the last "
        "model. alfa was tested on 600 other tasks with the best model"
        f"{', which is also the last one' if is_last else ''}."
    )
    title = f"### Comparison with other code after {SHORT:,} iterations"
    return [title, "", *table(head, rows), note, ""]


def run_table(results: Mapping[str, Any]) -> list[str]:
    """List every run with its command and its settings."""
    rows = []
    for name, entry in QUEUE.items():
        lengths = tested_lengths(results.get(name, {}))
        if lengths:
            found = results[name][str(lengths[-1])]
            trains = found["seconds"] > 0
            is_complete = lengths[-1] == entry.num_iterations
            command = f"run {name}" if is_complete else f"until {lengths[-1]} {name}"
            rows.append(
                [
                    f"`{name}`",
                    f"`python benchmarks/claims.py {command}`",
                    str(entry.seed),
                    f"{lengths[-1]:,}" if trains else "-",
                    f"{found['seconds'] / 60:.0f}",
                    figure(found["test"]),
                ]
            )
    note = (
        "`docs/results/runs/claims` contains the folder of each run: `config.toml`, "
        "`metrics.jsonl`, and `result.json`. The runs of the 5-shot rows have their best model, "
        "and `maml` and `alfa+maml` all checkpoints, with which alfa can resume them. "
        "`alfa train docs/results/runs/claims/maml+l2f/config.toml --processes 2` repeats a run "
        "without the queue."
    )
    head = ["run", "command", "seed", "iterations", "minutes", "best model"]
    return ["### Runs", "", *table(head, rows), note, ""] if rows else []


def tested_lengths(found: Mapping[str, Any]) -> list[int]:
    """Return the numbers of iterations at which an entry was tested."""
    return sorted(int(length) for length in found)


def claim_tables(results: Mapping[str, Any]) -> list[str]:
    """Compare the pairs of all claims at the lengths at which both were tested."""
    rows, other_rows = [], []
    for ours, theirs, claim in pairs():
        lengths = [tested_lengths(results.get(name, {})) for name in (ours, theirs)]
        # A method without trainable parameters is the same at every length.
        is_fixed = QUEUE[theirs].method == "random" and EPOCH in lengths[1]
        for length in lengths[0] if is_fixed else sorted(set(lengths[0]) & set(lengths[1])):
            first = results[ours][str(length)]
            second = results[theirs][str(EPOCH if is_fixed else length)]
            words = [claim, f"`{ours}`", f"`{theirs}`", f"{length:,}"]
            in_paper = published(ours) - published(theirs)
            over, text = verdict(first, second, in_paper)
            rows.append(
                [*words, f"{in_paper:+.2f}", over, ensemble_difference(first, second), text]
            )
            others = [found.get("other_datasets", {}) for found in (first, second)]
            for dataset in OTHER_DATASETS:
                if dataset in others[0] and dataset in others[1]:
                    in_paper_there = published_transfer(ours, theirs, dataset)
                    over, text = verdict(
                        others[0][dataset],
                        others[1][dataset],
                        in_paper_there,
                        margin=MARGIN_OTHER_DATASETS,
                    )
                    figures = "-" if in_paper_there is None else f"{in_paper_there:+.2f}"
                    other_rows.append([*words, dataset, figures, over, text])
    head = ["claim", "run", "compared with", "iterations"]
    best = "best models, paired"
    lines = []
    if rows:
        lines += ["### Claims", "", *table([*head, "paper", best, "ensembles", "verdict"], rows)]
    if other_rows:
        head += ["tested on", "paper, from miniImageNet", best, "verdict"]
        lines += ["### Claims on other datasets", "", *table(head, other_rows)]
    return lines


def longer_maml_table(results: Mapping[str, Any]) -> list[str]:
    """Compare the other methods with MAML after more iterations, paired over tasks."""
    longest = QUEUE["maml"].num_iterations
    longer = results.get("maml", {}).get(str(longest))
    rows = []
    for name in METHODS:
        found = results.get(name, {}).get(str(LENGTH))
        if longer is None or found is None or name == "maml":
            continue
        others = [
            with_interval(_over(found["other_datasets"][x], longer["other_datasets"][x]))
            for x in OTHER_DATASETS
        ]
        rows.append([methods.METHODS[name].title, with_interval(_over(found, longer)), *others])
    title = f"### After {LENGTH:,} iterations, compared with MAML after {longest:,}"
    return [title, "", *table(["method", "cifar-fs", *OTHER_DATASETS], rows)] if rows else []


def default_table(results: Mapping[str, Any]) -> list[str]:
    """Compare the defaults of ALFA + MAML and of MAML with variants that change one option."""
    rows = []
    for seed, default, variants in (
        (0, "alfa+maml", {name: name for name in VARIANTS}),
        (1, "seed-1", {name: f"seed-1-{name}" for name in REPEATED}),
        (0, "maml", {"outer-rate": "maml-outer-rate"}),
    ):
        base = results.get(default, {}).get(str(SHORT))
        if base is None:
            continue
        changed = []
        for name, entry in variants.items():
            found = results.get(entry, {}).get(str(SHORT))
            if found is not None:
                over = difference(evaluation(base), evaluation(found))
                text = undecided(over, MARGIN)
                text = text or f"the default is {'better' if over.mean > 0 else 'worse'}"
                words = [CHANGES[name], f"`{entry}`", str(seed), *_accuracies(found)]
                changed.append([*words, with_interval(over), text])
        if changed:
            words = ["none (`default`)", f"`{default}`", str(seed), *_accuracies(base)]
            rows += [[*words, "", ""], *changed]
    head = ["change", "run", "seed", "validation", "best model", "default minus variant, paired"]
    title = f"### Our defaults after {SHORT:,} iterations"
    return [title, "", *table([*head, "verdict"], rows)] if rows else []


def _accuracies(found: Mapping[str, Any]) -> tuple[str, str]:
    """Format the best model's accuracies in validation and in the test."""
    return f"{100 * found['val_accuracy']:.2f}", figure(found["test"])


def published(name: str) -> float:
    """Return the paper's accuracy for an entry."""
    entry = QUEUE[name]
    return _published("tableB", f"{entry.dataset}-5w{entry.shot}s", entry.method)


def published_transfer(ours: str, theirs: str, dataset: str) -> float | None:
    """Return the paper's difference of two entries on another dataset, or None without one."""
    names = [QUEUE[name].method for name in (ours, theirs)]
    if dataset not in PUBLISHED_TRANSFER or "random" in names:
        return None
    first, second = (_published(*PUBLISHED_TRANSFER[dataset], method) for method in names)
    return first - second


def _published(name: str, place: str, method: str) -> float:
    (cell,) = (x for x in TABLES[name].cells if x.id == f"{name}/{place}/{method}/conv4")
    return cell.published.value


def verdict(
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    in_paper: float | None = None,
    *,
    margin: float = MARGIN,
) -> tuple[str, str]:
    """Return the difference of two results and the verdict on the claim that it is positive.

    Args:
        ours: the result that should be higher.
        theirs: the result that should be lower.
        in_paper: the difference in the paper.
        margin: percentage points that repeated training can change.
    """
    over = _over(ours, theirs)
    text = undecided(over, margin)
    if not text:
        text = "confirmed" if over.mean > 0 else "not confirmed: the opposite holds"
        if in_paper is not None and in_paper < 0:
            text += ", as in the paper" if over.mean < 0 else ", unlike in the paper"
    return with_interval(over), text


def _over(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Difference:
    """Return the paired difference of two results."""
    _check_data(ours, theirs)
    return difference(evaluation(ours), evaluation(theirs))


def undecided(over: Difference, margin: float) -> str:
    """Return the reason why a difference is not decided, or an empty text."""
    if not over.is_decided:
        return "not decided at this length"
    if 100 * abs(over.mean) < margin:
        word = "higher" if over.mean > 0 else "lower"
        return f"not decided: {word} on these tasks, but within the variation of repeated training"
    return ""


def ensemble_difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Return the difference of two ensembles, treated as independent."""
    if not ("ensemble" in ours and "ensemble" in theirs):
        return "-"
    first, second = ours["ensemble"], theirs["ensemble"]
    interval = math.hypot(first["accuracy_interval"], second["accuracy_interval"])
    return with_interval(Difference(first["accuracy"] - second["accuracy"], interval, 0))


def _check_data(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """Raise if two results state different prepared images."""
    first, second = ours.get("data", ""), theirs.get("data", "")
    if first and second and first != second:
        raise ValueError(f"results on different images are not comparable: {first} and {second}.")


def with_interval(over: Difference) -> str:
    assert over.interval is not None
    return f"{100 * over.mean:+.2f} +- {100 * over.interval:.2f}"


def pairs() -> Iterator[tuple[str, str, str]]:
    """Yield the pairs of entries to compare, each with its claim."""
    for prefix in ("", "1-shot-", "fc100-"):
        for (ours, theirs), claim in CLAIMS.items():
            if {prefix + ours, prefix + theirs} <= QUEUE.keys():
                yield prefix + ours, prefix + theirs, claim


def evaluation(found: Mapping[str, Any]) -> Evaluation:
    return Evaluation(**found["test"], per_task=tuple(found["per_task"]))
