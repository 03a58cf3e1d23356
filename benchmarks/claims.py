"""The paper's claims on data of this size: a queue of trainings, each resumable.

    python benchmarks/claims.py run [NAME...]      goes on with the queue, or with what is named
    python benchmarks/claims.py until COUNT NAME   trains one entry to a number of iterations only
    python benchmarks/claims.py state              how far every entry is
    python benchmarks/claims.py report             writes docs/results/claims.md

Needs the prepared datasets where `ALFA_DATA` says. Runs are in runs/claims; their settings,
metrics, results and checkpoints are kept in docs/results/runs/claims after every epoch, where a
queue that was stopped, on this machine or another, goes on. The paper's rows are tested on other
datasets, too, at the lengths that they are compared at.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w
from _common import command, figure, keep, progress, restore, table, write_part

from alfa.cli.start import set_up
from alfa.config import parse_experiment, to_dict
from alfa.paper import TABLES
from alfa.paper._methods import METHODS, TITLES, classification
from alfa.train import Difference, Evaluation, Run, difference, judge, on_dataset
from alfa.train.files import write_atomic

RUNS = Path("runs/claims")
KEPT = Path("docs/results/runs/claims")
RESULTS = Path("docs/results/claims.json")
PAGE = Path("docs/results/claims.md")
# Validations, after each of which what was reached is kept.
EPOCH = 500
NUM_TASKS = 600
# Each with its own part of the tasks, which is faster on two cores than two threads are.
PROCESSES = 2
# Iterations that all rows are compared at, and those of the variants of ALFA.
LENGTH, SHORT = 6_000, 2_000
# What of our defaults is changed, one at a time, and how that is told.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "start-random": {"generator_start": "random"},
    "depth-2": {"generator_depth": 2},
    "beta-factor": {"beta_form": "factor"},
    "state-gradient-full": {"state_gradient": "full"},
    "state-gradient-none": {"state_gradient": "none"},
}
CHANGES = {
    "start-random": "g_phi starts at random",
    "depth-2": "g_phi has two linear layers instead of three",
    "beta-factor": "beta is beta0 beta1 (Eq. 7) instead of 1 - beta0 beta1",
    "state-gradient-full": "the outer gradient follows the gradients' means in the state, too",
    "state-gradient-none": "the outer gradient follows nothing of the state",
}
# Those that one seed does not settle.
REPEATED = ("state-gradient-full", "state-gradient-none")


@dataclass(frozen=True)
class Entry:
    """One training of the queue.

    Attributes:
        method: a row of the paper's tables.
        num_iterations: to train for.
        dataset: that it is trained and tested on.
        shot: support images of a class.
        rule: options of the update rule that are not the row's.
        seed: of the training.
        milestones: lengths on the way that are tested as the last one is, to be held against
            shorter trainings.
    """

    method: str
    num_iterations: int
    dataset: str = "cifar-fs"
    shot: int = 5
    rule: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    milestones: Sequence[int] = ()

    def content(self, num_iterations: int) -> dict[str, Any]:
        """The experiment, as in a file."""
        method = METHODS[self.method]
        method = {**method, "rule": {**method["rule"], **self.rule}}
        content = classification(self.dataset, method, shot=self.shot)
        outer = {**content["outer"], "num_iterations": num_iterations}
        return {**content, "seed": self.seed, "outer": outer}


QUEUE = {
    "random": Entry("random", EPOCH),
    "alfa+random": Entry("alfa+random", LENGTH),
    "maml": Entry("maml", 15_000, milestones=(SHORT, LENGTH)),
    "alfa+maml": Entry("alfa+maml", 15_000, milestones=(SHORT, LENGTH)),
    "maml+l2f": Entry("maml+l2f", LENGTH),
    "alfa+maml+l2f": Entry("alfa+maml+l2f", LENGTH),
    **{
        f"1-shot-{method}": Entry(method, 5_000, shot=1)
        for method in ("maml", "alfa+maml", "alfa+random")
    },
    **{
        f"fc100-{method}": Entry(method, 4_000, dataset="fc100") for method in ("maml", "alfa+maml")
    },
    **{name: Entry("alfa+maml", SHORT, rule=rule) for name, rule in VARIANTS.items()},
    "seed-1": Entry("alfa+maml", SHORT, seed=1),
    **{
        f"seed-1-{name}": Entry("alfa+maml", SHORT, rule=VARIANTS[name], seed=1)
        for name in REPEATED
    },
}

ROWS = ("random", "alfa+random", "maml", "alfa+maml", "maml+l2f", "alfa+maml+l2f")
ELSEWHERE = ("omniglot", "cub", "traffic-sign", "vgg-flower")
# What the paper has higher than what with 4-CONV: in all of Table 1, and in most of Table B.
CLAIMS = {
    ("alfa+random", "random"): "Generated rates make a random initialization learn.",
    ("alfa+maml", "maml"): "Generated rates help where the initialization is learned, too.",
    ("alfa+maml+l2f", "maml+l2f"): "They help where it is attenuated for every task.",
    ("alfa+random", "maml"): "The rule alone is worth more than the initialization alone.",
    ("maml+l2f", "maml"): "Attenuation helps.",
    ("alfa+maml+l2f", "alfa+maml"): "Attenuation helps beside generated rates.",
}

# After `SHORT` iterations on the same split, of the published code and of a prototype.
OF_OTHERS = {
    "maml": ("MAML", "-", "53.5 +- 1.2"),
    "start-random": ("ALFA + MAML, g_phi starts at random", "68.9 +- 1.2", "68.2 +- 1.1"),
    "alfa+maml": ("ALFA + MAML, g_phi starts at the identity", "-", "69.4 +- 1.1"),
}


def run(*names: str) -> None:
    for name in names or QUEUE:
        train(name, QUEUE[name].num_iterations)


def until(count: str, name: str) -> None:
    train(name, int(count))


def train(name: str, num_iterations: int) -> None:
    """Begin an entry, or go on with it, in steps whose outcome is kept."""
    path, entry = RUNS / name, QUEUE[name]
    restore(path, KEPT / name)
    # A queue that was stopped may have tested what it could not write down any more.
    note(name)
    while not is_tested(path, num_iterations):
        goal = next_goal(entry, num_iterations, progress(path), tested=lengths_known(name))
        # A test of a model that is trained further would be thrown away.
        is_tested_here = goal >= num_iterations or goal in entry.milestones
        content = entry.content(goal)
        content["test"] = {"num_tasks": NUM_TASKS if is_tested_here else 1, "ensemble": 5}
        if Run(path).exists:
            words = ["--resume", str(path)]
        else:
            config = RUNS / f"{name}.toml"
            config.parent.mkdir(parents=True, exist_ok=True)
            text = tomli_w.dumps(to_dict(parse_experiment(content, source=name)))
            write_atomic(config, text.encode())
            words = [str(config), "--out", str(path)]
        settings = (
            f"outer.num_iterations={goal}",
            f"test.num_tasks={content['test']['num_tasks']}",
        )
        words += [word for x in settings for word in ("--set", x)]
        words += ["--processes", str(PROCESSES)]
        subprocess.run(command("train", *words), check=True, stdout=subprocess.DEVNULL)
        keep(path, KEPT / name)
        if not is_tested_here:
            # What a single task says of a model on its way is no result to be shown.
            (KEPT / name / "result.json").unlink()
        print(f"{name}: {goal} of {num_iterations}", Run(path).read_metrics()[-1:], flush=True)
        note(name)


def next_goal(entry: Entry, num_iterations: int, done: int, *, tested: Sequence[int]) -> int:
    """The number of iterations that an entry is to be trained to next, and kept.

    Args:
        entry: what is trained.
        num_iterations: at its end.
        done: so many are done.
        tested: lengths whose figures are known.
    """
    # It was stopped while this length was being tested: trained further, it never would be.
    if done in entry.milestones and done not in tested:
        return done
    return min((done // EPOCH + 1) * EPOCH, max(num_iterations, done))


def is_tested(path: Path, num_iterations: int) -> bool:
    """Whether a run is complete, and not only an epoch on its way."""
    result = Run(path).read_result()
    return (
        result is not None
        # A random initialization without a rule that learns has nothing to train.
        and (progress(path) >= num_iterations or not result["num_meta_parameters"])
        and result["test"]["num_tasks"] == NUM_TASKS
    )


def note(name: str) -> None:
    """Keep the figures of a length that was tested, with those of the best model on every task."""
    run = Run(RUNS / name)
    result = run.read_result() if run.exists else None
    if result is None or not is_tested(run.path, result["num_iterations"]):
        return
    length = length_of(result)
    if length not in lengths_known(name):
        set_up(run.experiment(), device="cpu", threads=None)
        tested, _ = judge(run)
        # Sums of other numbers of threads round otherwise, and a query in a thousand may change
        # sides.
        told = "the test is not repeatable"
        assert abs(tested.accuracy - result["test"]["accuracy"]) < 1e-3, told
        keys = ("test", "ensemble", "best_iteration", "val_accuracy", "seconds")
        found = {key: result[key] for key in keys if key in result}
        add(name, length, {**found, "per_task": tested.per_task})
    if name in ROWS and length in (LENGTH, QUEUE[name].num_iterations):
        test_elsewhere(name, length, run)


def test_elsewhere(name: str, length: int, run: Run) -> None:
    """Test what was reached on other datasets, before it is trained further."""
    for dataset in ELSEWHERE:
        found = known()[name][str(length)]
        if dataset not in found.get("elsewhere", {}):
            set_up(run.experiment(), device="cpu", threads=None)
            changes = on_dataset(dataset, tasks=run.experiment().tasks.name)
            tested, _ = judge(run, changes=changes, num_tasks=NUM_TASKS)
            there = {"test": tested.as_dict(), "per_task": tested.per_task}
            found.setdefault("elsewhere", {})[dataset] = there
            add(name, length, found)
            print(name, length, dataset, figure(there["test"]), flush=True)


def length_of(result: Mapping[str, Any]) -> int:
    """What the figures of a result are kept under; what has nothing to train has a length, too."""
    return int(result["config"]["outer"]["num_iterations"])


def known() -> dict[str, dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def lengths_known(name: str) -> list[int]:
    return lengths_of(known().get(name, {}))


def add(name: str, length: int, content: Any) -> None:
    results = known()
    results.setdefault(name, {})[str(length)] = content
    write_atomic(RESULTS, (json.dumps(results, sort_keys=True) + "\n").encode())


def state() -> None:
    results = known()
    for name, entry in QUEUE.items():
        done, asked = reached(name), entry.num_iterations
        told = "tested" if str(asked) in results.get(name, {}) else ""
        # Where there is nothing to train, no iteration is made.
        print(f"{name:28}{asked if told else done:7,} of {asked:7,}  {told}".rstrip())


def reached(name: str) -> int:
    """How many iterations of an entry are done, here or in what was kept."""
    return max(progress(RUNS / name), progress(KEPT / name))


def report() -> None:
    results = known()
    if not results:
        sys.exit("not run yet: run `python benchmarks/claims.py run`.")
    lines = [*rows_of("CIFAR-FS, 5-way 5-shot", {name: name for name in ROWS}, results)]
    one_shot = {f"1-shot-{method}": method for method in ROWS}
    lines += rows_of("CIFAR-FS, 5-way 1-shot", one_shot, results)
    lines += rows_of("FC100, 5-way 5-shot", {f"fc100-{m}": m for m in ROWS}, results)
    lines += rows_elsewhere(results)
    lines += beside_others(results)
    lines += compared(results)
    lines += our_defaults(results)
    left = [
        f"`{name}` ({reached(name):,} of {entry.num_iterations:,} iterations)"
        for name, entry in QUEUE.items()
        if str(entry.num_iterations) not in results.get(name, {})
    ]
    if left:
        lines += [f"Not complete yet: {', '.join(left)}.", ""]
    write_part(PAGE, "claims.py", lines)


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
                    TITLES[method],
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
                rows.append([TITLES[name], f"{length:,}" if trains else "-", *figures])
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


def lengths_of(found: Mapping[str, Any]) -> list[int]:
    """The numbers of iterations that an entry was tested at."""
    return sorted(int(length) for length in found)


def compared(results: Mapping[str, Any]) -> list[str]:
    """Entries against each other, task by task, where both were tested at one length."""
    rows, rows_there = [], []
    for ours, theirs, claim in pairs():
        lengths = [lengths_of(results.get(name, {})) for name in (ours, theirs)]
        # A model that has nothing to train is the same at every length.
        fixed = theirs == "random" and EPOCH in lengths[1]
        for length in lengths[0] if fixed else sorted(set(lengths[0]) & set(lengths[1])):
            own = results[ours][str(length)]
            other = results[theirs][str(EPOCH if fixed else length)]
            words = [claim, f"`{ours}`", f"`{theirs}`", f"{length:,}"]
            papers = published(ours) - published(theirs)
            rows.append([*words, f"{papers:+.2f}", *verdict(own, other, papers)])
            there = [found.get("elsewhere", {}) for found in (own, other)]
            rows_there += [
                [*words, x, *verdict(there[0][x], there[1][x])]
                for x in ELSEWHERE
                if x in there[0] and x in there[1]
            ]
    head, last = ["claim", "", "against", "iterations"], ["best models, task by task", ""]
    lines = ["### Claims", "", *table([*head, "paper", *last], rows)] if rows else []
    if rows_there:
        lines += ["### Claims elsewhere", "", *table([*head, "tested on", *last], rows_there)]
    return lines


def our_defaults(results: Mapping[str, Any]) -> list[str]:
    """ALFA + MAML as it comes against itself with one option changed."""
    rows = []
    for seed, default, variants in (
        (0, "alfa+maml", {name: name for name in VARIANTS}),
        (1, "seed-1", {name: f"seed-1-{name}" for name in REPEATED}),
    ):
        as_it_comes = results.get(default, {}).get(str(SHORT))
        if as_it_comes is None:
            continue
        test = figure(as_it_comes["test"])
        rows += [["nothing: `default`", f"`{default}`", str(seed), test, "", ""]]
        for name, entry in variants.items():
            found = results.get(entry, {}).get(str(SHORT))
            if found is not None:
                over = difference(evaluation(as_it_comes), evaluation(found))
                word = "the default is better" if over.mean > 0 else "the default is worse"
                told = word if over.is_decided else "not decided at this length"
                test = figure(found["test"])
                cells = [CHANGES[name], f"`{entry}`", str(seed), test, with_interval(over), told]
                rows.append(cells)
    head = ["what is changed", "", "seed", "best model", "default over it, task by task", ""]
    title = f"### Our defaults, after {SHORT:,} iterations of ALFA + MAML"
    return [title, "", *table(head, rows)] if len(rows) > 1 else []


def published(name: str) -> float:
    """The paper's figure of an entry."""
    entry = QUEUE[name]
    place = f"tableB/{entry.dataset}-5w{entry.shot}s/{entry.method}/conv4"
    (cell,) = (cell for cell in TABLES["tableB"].cells if cell.id == place)
    return cell.published.value


def verdict(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], papers: float | None = None
) -> list[str]:
    """By how much the first is higher, and what that says of a claim that it is.

    Args:
        ours: figures of the first.
        theirs: of the second.
        papers: by how much the first is higher in the paper, on the same data.
    """
    over = difference(evaluation(ours), evaluation(theirs))
    word = "confirmed" if over.mean > 0 else "not confirmed: it is the other way round"
    if over.mean < 0 and papers is not None and papers < 0:
        word += ", as in the paper on this data"
    return [with_interval(over), word if over.is_decided else "not decided at this length"]


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


if __name__ == "__main__":
    chosen = {f.__name__: f for f in (run, until, state, report)}
    if len(sys.argv) < 2 or sys.argv[1] not in chosen:
        sys.exit(__doc__)
    chosen[sys.argv[1]](*sys.argv[2:])
