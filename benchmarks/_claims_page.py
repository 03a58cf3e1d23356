"""The tables of docs/results/claims.md, from the results that `claims.py` keeps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from _claims_queue import (
    CHANGES,
    CLAIMS,
    ELSEWHERE,
    EPOCH,
    LENGTH,
    OF_OTHERS,
    OF_PAPER_ELSEWHERE,
    QUEUE,
    REPEATED,
    ROWS,
    SHORT,
    VARIANTS,
)
from _common import figure, table

from alfa.evaluation import Difference, Evaluation, difference
from alfa.methods import METHODS
from alfa.paper import TABLES

# By so many points the same experiment, trained again, may have other figures than those of the
# same tasks: two trainings of ALFA + MAML differed by 0.7 in validation, as the root of the mean
# square over twelve epochs, and by up to 2.7 on other datasets.
MARGIN, MARGIN_ELSEWHERE = 1.0, 3.0


def rows_of(title: str, entries: Mapping[str, str], results: Mapping[str, Any]) -> list[str]:
    """The figures of entries at every length that they were tested at.

    Args:
        title: of the table.
        entries: names of entries, and the rows of the paper that they are.
        results: what is known.
    """
    rows = []
    for name, method in entries.items():
        for length in lengths_of(results.get(name, {})):
            found = results[name][str(length)]
            trains = found["seconds"] > 0
            rows.append(
                [
                    METHODS[method].title,
                    f"{length:,}" if trains else "-",
                    f"{found['best_iteration']:,}" if trains else "-",
                    figure(found["test"]),
                    figure(found["ensemble"]) if "ensemble" in found else "-",
                    f"{found['seconds'] / 60:.0f}",
                ]
            )
    head = ["", "iterations", "best of them", "best model", "ensemble", "minutes"]
    return ["### " + title, "", *table(head, rows)] if rows else []


def rows_elsewhere(results: Mapping[str, Any]) -> list[str]:
    """The figures of the paper's rows on datasets that they were not trained on."""
    rows = []
    for name in ROWS:
        for length in lengths_of(results.get(name, {})):
            found = results[name][str(length)]
            there = found.get("elsewhere", {})
            if there:
                figures = [figure(there[x]["test"]) if x in there else "-" for x in ELSEWHERE]
                trains = found["seconds"] > 0
                rows.append([METHODS[name].title, f"{length:,}" if trains else "-", *figures])
    head = ["trained on CIFAR-FS", "iterations", *ELSEWHERE]
    return ["### Tested elsewhere", "", *table(head, rows)] if rows else []


def beside_others(results: Mapping[str, Any]) -> list[str]:
    """Our figures beside those of the published code and of a prototype of the same method."""
    rows = []
    for name, (title, published, plain) in OF_OTHERS.items():
        found = results.get(name, {}).get(str(SHORT))
        rows.append([title, published, plain, "-" if found is None else figure(found["test"])])
    head = ["5-shot", "published code", "prototype", "here, best model"]
    ours = [results[name][str(SHORT)] for name in OF_OTHERS if str(SHORT) in results.get(name, {})]
    is_last = all(found["best_iteration"] == SHORT for found in ours)
    told = (
        "The code that the paper's authors published, and a prototype of the same method on the "
        "same tasks as that: the last model on 300 tasks. Ours: the best model"
        f"{', which is the last one here,' if is_last else ''} on 600 other tasks."
    )
    return [f"### After {SHORT:,} iterations, beside other code", "", *table(head, rows), told, ""]


def runs_of(results: Mapping[str, Any]) -> list[str]:
    """What every entry is, how to train it, and where all that it left is kept."""
    rows = []
    for name, entry in QUEUE.items():
        lengths = lengths_of(results.get(name, {}))
        if lengths:
            found = results[name][str(lengths[-1])]
            trains = found["seconds"] > 0
            is_whole = lengths[-1] == entry.num_iterations
            command = f"run {name}" if is_whole else f"until {lengths[-1]} {name}"
            rows.append(
                [
                    f"[`{name}`](runs/claims/{name})",
                    f"`python benchmarks/claims.py {command}`",
                    str(entry.seed),
                    f"{lengths[-1]:,}" if trains else "-",
                    f"{found['seconds'] / 60:.0f}",
                    figure(found["test"]),
                ]
            )
    told = (
        "Each folder has the run's `config.toml`, `metrics.jsonl`, `result.json` once it is "
        "complete, and its checkpoints, with which it can be tested, or trained further. `alfa "
        "train docs/results/runs/claims/maml+l2f/config.toml --processes 2` is the same training "
        "without the queue, from its beginning."
    )
    head = ["run", "command", "seed", "iterations", "minutes", "best model"]
    return ["### Runs", "", *table(head, rows), told, ""] if rows else []


def lengths_of(found: Mapping[str, Any]) -> list[int]:
    """The numbers of iterations that an entry was tested at."""
    return sorted(int(length) for length in found)


def compared(results: Mapping[str, Any]) -> list[str]:
    """Entries against each other, task by task, where both were tested at one length."""
    rows, rows_there = [], []
    for ours, theirs, claim in pairs():
        lengths = [lengths_of(results.get(name, {})) for name in (ours, theirs)]
        # A model that has nothing to train is the same at every length.
        fixed = QUEUE[theirs].method == "random" and EPOCH in lengths[1]
        for length in lengths[0] if fixed else sorted(set(lengths[0]) & set(lengths[1])):
            own = results[ours][str(length)]
            other = results[theirs][str(EPOCH if fixed else length)]
            words = [claim, f"`{ours}`", f"`{theirs}`", f"{length:,}"]
            papers = published(ours) - published(theirs)
            over, told = verdict(own, other, papers)
            rows.append([*words, f"{papers:+.2f}", over, of_ensembles(own, other), told])
            there = [found.get("elsewhere", {}) for found in (own, other)]
            for x in ELSEWHERE:
                if x in there[0] and x in there[1]:
                    papers_there = published_there(ours, theirs, x)
                    own_there, other_there = there[0][x], there[1][x]
                    over, told = verdict(
                        own_there, other_there, papers_there, margin=MARGIN_ELSEWHERE
                    )
                    figures = "-" if papers_there is None else f"{papers_there:+.2f}"
                    rows_there.append([*words, x, figures, over, told])
    head, best = ["claim", "", "against", "iterations"], "best models, task by task"
    lines = []
    if rows:
        lines += ["### Claims", "", *table([*head, "paper", best, "ensembles", ""], rows)]
    if rows_there:
        head += ["tested on", "paper, from miniImageNet", best, ""]
        lines += ["### Claims elsewhere", "", *table(head, rows_there)]
    return lines


def against_longer(results: Mapping[str, Any]) -> list[str]:
    """The rows that learn faster, held against MAML after more iterations, task by task."""
    longest = QUEUE["maml"].num_iterations
    longer = results.get("maml", {}).get(str(longest))
    rows = []
    for name in ROWS:
        found = results.get(name, {}).get(str(LENGTH))
        if longer is None or found is None or name == "maml":
            continue
        there = [
            with_interval(_over(found["elsewhere"][x], longer["elsewhere"][x])) for x in ELSEWHERE
        ]
        rows.append([METHODS[name].title, with_interval(_over(found, longer)), *there])
    title = f"### After {LENGTH:,} iterations, against MAML after {longest:,}"
    return [title, "", *table(["", "cifar-fs", *ELSEWHERE], rows)] if rows else []


def our_defaults(results: Mapping[str, Any]) -> list[str]:
    """ALFA + MAML and MAML as they come against themselves with one option changed."""
    rows = []
    for seed, default, variants in (
        (0, "alfa+maml", {name: name for name in VARIANTS}),
        (1, "seed-1", {name: f"seed-1-{name}" for name in REPEATED}),
        (0, "maml", {"outer-rate": "maml-outer-rate"}),
    ):
        as_it_comes = results.get(default, {}).get(str(SHORT))
        if as_it_comes is None:
            continue
        changed = []
        for name, entry in variants.items():
            found = results.get(entry, {}).get(str(SHORT))
            if found is not None:
                over = difference(evaluation(as_it_comes), evaluation(found))
                told = undecided(over, MARGIN)
                told = told or f"the default is {'better' if over.mean > 0 else 'worse'}"
                words = [CHANGES[name], f"`{entry}`", str(seed), *figures_of(found)]
                changed.append([*words, with_interval(over), told])
        if changed:
            words = ["nothing: `default`", f"`{default}`", str(seed), *figures_of(as_it_comes)]
            rows += [[*words, "", ""], *changed]
    head = ["what is changed", "", "seed", "validation", "best model"]
    head += ["default over it, task by task", ""]
    return [f"### Our defaults, after {SHORT:,} iterations", "", *table(head, rows)] if rows else []


def figures_of(found: Mapping[str, Any]) -> tuple[str, str]:
    """The accuracy of the best model in validation, and in the test."""
    return f"{100 * found['val_accuracy']:.2f}", figure(found["test"])


def published(name: str) -> float:
    """The paper's figure of an entry."""
    entry = QUEUE[name]
    return _figure_of("tableB", f"{entry.dataset}-5w{entry.shot}s", entry.method)


def published_there(ours: str, theirs: str, dataset: str) -> float | None:
    """By how much the first is higher in the paper on a dataset, if it has both there."""
    methods = [QUEUE[name].method for name in (ours, theirs)]
    if dataset not in OF_PAPER_ELSEWHERE or "random" in methods:
        return None
    own, other = (_figure_of(*OF_PAPER_ELSEWHERE[dataset], method) for method in methods)
    return own - other


def _figure_of(name: str, place: str, method: str) -> float:
    (cell,) = (x for x in TABLES[name].cells if x.id == f"{name}/{place}/{method}/conv4")
    return cell.published.value


def verdict(
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    papers: float | None = None,
    *,
    margin: float = MARGIN,
) -> tuple[str, str]:
    """By how much the first is higher, and what that says of a claim that it is.

    Args:
        ours: figures of the first.
        theirs: of the second.
        papers: by how much the first is higher in the paper.
        margin: points that another training may change.
    """
    over = _over(ours, theirs)
    told = undecided(over, margin)
    if not told:
        told = "confirmed" if over.mean > 0 else "not confirmed: it is the other way round"
        if papers is not None and papers < 0:
            told += ", as in the paper" if over.mean < 0 else ", unlike in the paper"
    return with_interval(over), told


def _over(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Difference:
    """By how much the first is higher, task by task."""
    _check_data(ours, theirs)
    return difference(evaluation(ours), evaluation(theirs))


def undecided(over: Difference, margin: float) -> str:
    """Why a difference decides nothing; nothing where it does."""
    if not over.is_decided:
        return "not decided at this length"
    if 100 * abs(over.mean) < margin:
        word = "higher" if over.mean > 0 else "lower"
        return f"not decided: {word} on these tasks, but another training may change as much"
    return ""


def of_ensembles(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """By how much the first is higher with its best models together, from both intervals."""
    if not ("ensemble" in ours and "ensemble" in theirs):
        return "-"
    own, other = ours["ensemble"], theirs["ensemble"]
    interval = math.hypot(own["accuracy_interval"], other["accuracy_interval"])
    return with_interval(Difference(own["accuracy"] - other["accuracy"], interval, 0))


def _check_data(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """Refuse figures on images that were prepared differently, as far as that was kept."""
    own, other = ours.get("data", ""), theirs.get("data", "")
    if own and other and own != other:
        raise ValueError(f"figures on other images cannot be compared: {own} and {other}.")


def with_interval(over: Difference) -> str:
    assert over.interval is not None
    return f"{100 * over.mean:+.2f} +- {100 * over.interval:.2f}"


def pairs() -> Iterator[tuple[str, str, str]]:
    """What is held against what, and the claim that the first is higher."""
    for prefix in ("", "1-shot-", "fc100-"):
        for (ours, theirs), claim in CLAIMS.items():
            if {prefix + ours, prefix + theirs} <= QUEUE.keys():
                yield prefix + ours, prefix + theirs, claim


def evaluation(found: Mapping[str, Any]) -> Evaluation:
    return Evaluation(**found["test"], per_task=tuple(found["per_task"]))
