"""Time and memory of the engine.

    python benchmarks/engine.py ratios    compares with plain PyTorch, `higher`, and the limit
    python benchmarks/engine.py growth    varies tasks, inner steps, and image area
    python benchmarks/engine.py profile   time in each part of an iteration
    python benchmarks/engine.py stacking  sequential and stacked tasks
    python benchmarks/engine.py winograd  with and without Winograd convolutions
    python benchmarks/engine.py resnet    ResNet12: both memory modes, and the peak at 84 x 84
    python benchmarks/engine.py tuned     with and without alfa.tune()
    python benchmarks/engine.py report    writes docs/results/engine.md and its picture

Run the measurements on an idle machine. They add their results to docs/results/engine.json;
`ratios` skips results that the file contains.
"""

from __future__ import annotations

import inspect
import json
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from _common import choose, table, write_part

import alfa

RESULTS = Path("docs/results/engine.json")
PAGE = Path("docs/results/engine.md")
PICTURE = Path("docs/images/engine-growth.png")

TASKS, STEPS, SIZES = (1, 2, 4, 6, 8), (1, 2, 4, 6, 8, 10), (28, 42, 56, 70, 84)


def known() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def add(key: str, content: Any) -> None:
    RESULTS.write_text(json.dumps({**known(), key: content}, indent=1, sort_keys=True) + "\n")


def ratios() -> None:
    from alfa.bench import WORKLOADS, compare, rivals_of

    found = known().get("ratios", {})
    for work in WORKLOADS:
        for rival in rivals_of(work):
            if rival in found.get(work, {}):
                continue
            result = compare(work, rival, rounds=5).as_dict()
            found.setdefault(work, {})[rival] = result
            print(work, rival, f"{result['seconds'] * 1e3:.0f} ms, ratio {result['ratio']:.2f}")
            add("ratios", found)


def measured(options: dict[str, Any]) -> dict[str, Any]:
    """Measure an iteration in a separate process."""
    run = subprocess.run(
        [sys.executable, __file__, "one", json.dumps(options)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(run.stdout.splitlines()[-1])


def iteration_of(options: dict[str, Any]) -> Callable[[], None]:
    """Return a function that runs one training iteration with these options."""
    import torch

    from alfa import ALFA, Conv4, Episode, LearnedInit, Learner, ResNet12, cross_entropy

    size, num_tasks = options["size"], options["tasks"]
    backbone = ResNet12 if options["model"] == "resnet12" else Conv4
    model = backbone((3, size, size), 5, generator=torch.Generator().manual_seed(0))
    init = LearnedInit(model)
    learner = Learner(
        model,
        init=init,
        rule=ALFA(init.layers, num_steps=options["steps"]),
        loss=cross_entropy,
        num_steps=options["steps"],
        memory=options["memory"],
    )
    x = torch.randn((num_tasks, 100, 3, size, size), generator=torch.Generator().manual_seed(1))
    y = torch.arange(5).repeat(20).expand(num_tasks, -1)
    episode = Episode(x[:, :25], y[:, :25], x[:, 25:], y[:, 25:])

    def iteration() -> None:
        learner.zero_grad()
        learner(episode).query_losses.mean().backward()

    return iteration


def one(options: dict[str, Any]) -> dict[str, Any]:
    """Run the iteration several times; return the best time and the peak memory."""
    if options.get("tune", True):
        alfa.tune()
    iteration, best = iteration_of(options), float("inf")
    for _ in range(options["rounds"]):
        began = time.perf_counter()
        iteration()
        best = min(best, time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {**options, "seconds": best, "peak": peak}


def growth() -> None:
    usual = {"model": "conv4", "size": 42, "tasks": 2, "steps": 5, "memory": "store", "rounds": 6}
    cases = {
        "tasks": [{**usual, "tasks": tasks} for tasks in TASKS],
        "steps": [{**usual, "steps": steps} for steps in STEPS],
        "size": [{**usual, "size": size} for size in SIZES],
    }
    found: dict[str, list[Any]] = {}
    for name, group in cases.items():
        found[name] = []
        for options in group:
            result = measured(options)
            found[name].append(result)
            print(
                name, options[name], f"{result['seconds']:.2f} s", f"{result['peak'] / 1e9:.2f} GB"
            )
    add("growth", found)


class Clock:
    """The time in each kind of work, without nested kinds."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._inside = [0.0]

    def timed(self, kind: str, function: Any) -> Any:
        def wrapped(*args: Any, **options: Any) -> Any:
            self._inside.append(0.0)
            began = time.perf_counter()
            result = function(*args, **options)
            seconds = time.perf_counter() - began
            self.spent[kind] += seconds - self._inside.pop()
            self._inside[-1] += seconds
            return result

        return wrapped

    def watch(self, kind: str, owner: Any, *names: str) -> None:
        for name in names:
            found = inspect.getattr_static(owner, name)
            static = isinstance(found, staticmethod)
            wrapped = self.timed(kind, getattr(owner, name))
            setattr(owner, name, staticmethod(wrapped) if static else wrapped)


PASSES = ("forward", "backward", "tangent", "backward_tangent")


def watched() -> Clock:
    """Return a clock that measures all parts of an iteration."""
    import torch

    from alfa.learner import _loop as loop
    from alfa.ops import _compiled, _conv, _network, _winograd, stages
    from alfa.rules import ALFA

    clock = Clock()
    clock.watch("products", _conv.torch.ops.aten, "convolution", "convolution_backward")
    clock.watch("products", _conv.Patches, "of", "conv", "conv_dw")
    clock.watch("products", _winograd, "conv", "conv_backward")
    clock.watch("around products", stages.Conv, *PASSES)
    clock.watch("norm kernels", _compiled.norm_kernels(), *PASSES)
    clock.watch("around kernels", stages.Norm, *PASSES)
    clock.watch("linear", stages.Linear, *PASSES)
    clock.watch("layout", stages.Flatten, *PASSES)
    clock.watch("layout", _network, "to_stage_layout", "from_stage_layout")
    clock.watch("keeping", _network, "_save", "_restore", "_write_gradients")
    clock.watch("passes", stages.Chain, *PASSES)
    clock.watch("loss", torch.autograd, "grad")
    clock.watch("loss", _network, "check_losses")
    clock.watch("rates", ALFA, "rates")
    clock.watch("update", loop, "apply_rates")
    return clock


KINDS = {
    "products": "products of convolutions",
    "around products": "overhead of convolutions: sums, weight layout, Python",
    "norm kernels": "batch normalization, pooling, and activation",
    "around kernels": "overhead of batch normalization: allocation, conversion, Python",
    "linear": "linear layer",
    "layout": "conversion of image layouts",
    "loss": "loss and its derivatives",
    "keeping": "tensors for the backward pass, writing of gradients",
    "rates": "learning state and g_phi",
    "update": "update (Eq. 4)",
    "passes": "loop over stages",
    "autograd": "backward pass of rates and update, autograd, and the loop",
}


def profile() -> None:
    """Measure the time in each kind of work for the fastest of several iterations."""
    from alfa.bench import WORKLOADS

    clock, found = watched(), {}
    for name, work in WORKLOADS.items():
        if work.size is None:
            continue
        iteration = work.iteration("alfa")
        iteration()
        best: dict[str, float] = {"all": float("inf")}
        for _ in range(8):
            clock.spent.clear()
            began = time.perf_counter()
            iteration()
            total = time.perf_counter() - began
            if total < best["all"]:
                rest = total - sum(clock.spent.values())
                best = {"all": total, **clock.spent, "autograd": rest}
        found[name] = best
        print(name, {kind: f"{seconds * 1e3:.1f} ms" for kind, seconds in best.items()})
    add("profile", found)


def stacking() -> None:
    """Time an iteration with sequential and with stacked tasks, in alternation."""
    from alfa.bench import WORKLOADS

    found = {}
    for name in ("train-28", "train-32"):
        learner, episode = WORKLOADS[name].learner(), WORKLOADS[name].episode()
        best: dict[str, float] = {}
        for turn in range(7):
            for way in ("loop", "stack", "auto"):
                learner.over_tasks = way  # type: ignore[assignment]
                began = time.perf_counter()
                learner(episode).query_losses.mean().backward()
                seconds = time.perf_counter() - began
                if turn > 0:
                    best[way] = min(best.get(way, seconds), seconds)
        found[name] = best
        print(name, {way: f"{seconds * 1e3:.0f} ms" for way, seconds in best.items()})
    add("stacking", found)


def winograd() -> None:
    """Time an iteration with and without Winograd convolutions, in alternation."""
    from alfa.bench import WORKLOADS
    from alfa.ops import _winograd

    iterations: dict[str, Callable[[], Any]] = {
        name: work.iteration("alfa") for name, work in WORKLOADS.items() if work.size is not None
    }
    small = {"model": "resnet12", "size": 32, "tasks": 1, "steps": 5, "memory": "store"}
    iterations["ResNet12, 32 x 32, 1 task"] = iteration_of(small)
    ways = {"torch": lambda *given, **options: False, "winograd": _winograd.is_faster}
    found: dict[str, dict[str, float]] = {}
    for name, iteration in iterations.items():
        best = found[name] = {}
        for turn in range(9 if name in WORKLOADS else 4):
            for way, fits in ways.items():
                with mock.patch.object(_winograd, "is_faster", fits):
                    began = time.perf_counter()
                    iteration()
                    seconds = time.perf_counter() - began
                if turn > 0:
                    best[way] = min(best.get(way, seconds), seconds)
        print(name, {way: f"{seconds * 1e3:.0f} ms" for way, seconds in best.items()})
    add("winograd", found)


def resnet() -> None:
    usual = {"model": "resnet12", "size": 42, "tasks": 2, "steps": 5, "rounds": 1}
    found: dict[str, Any] = {}
    for _ in range(2):
        for memory in ("store", "recompute"):
            result = measured({**usual, "memory": memory})
            best = found.get(memory, result)
            found[memory] = min(best, result, key=lambda r: r["seconds"])
            print(memory, f"{result['seconds']:.1f} s, {result['peak'] / 1e9:.2f} GB")
    found["84"] = measured({**usual, "size": 84, "memory": "recompute"})
    print("84 x 84", f"{found['84']['seconds']:.1f} s, {found['84']['peak'] / 1e9:.2f} GB")
    add("resnet", found)


def tuned() -> None:
    """Time an iteration in processes with and without `alfa.tune()`, in alternation."""
    usual = {"model": "conv4", "tasks": 1, "steps": 5, "memory": "store", "rounds": 8}
    found: dict[str, list[dict[str, float]]] = {}
    for size in (32, 84):
        rounds = found[f"{size} x {size}"] = []
        for _ in range(7):
            times = {
                name: measured({**usual, "size": size, "tune": tune})["seconds"]
                for name, tune in (("default", False), ("tuned", True))
            }
            rounds.append(times)
            print(size, {name: f"{seconds * 1e3:.0f} ms" for name, seconds in times.items()})
    add("tuned", found)


def tuned_table(results: dict[str, list[dict[str, float]]]) -> list[str]:
    rows = []
    for size, rounds in results.items():
        ratios = sorted(times["default"] / times["tuned"] for times in rounds)
        seconds = [statistics.median(t[name] for t in rounds) for name in ("default", "tuned")]
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        cells = [f"{1e3 * s:.0f}" for s in seconds]
        rows.append([size, *cells, f"{statistics.median(ratios):.2f}x", spread])
    return table(["ms", "without", "with", "median ratio", "range of ratios"], rows)


def ratio_table(results: dict[str, Any]) -> list[str]:
    from alfa.bench import WORKLOADS

    rows = []
    for name, found in results.items():
        work = WORKLOADS[name]
        best = min(result["seconds"] for result in found.values())
        cells = [
            f"{found[rival]['ratio']:.2f}x" if rival in found else "-"
            for rival in ("plain", "higher", "plain_kept", "higher_kept")
        ]
        limit = f"{1 / found['limit']['ratio']:.2f}" if "limit" in found else "-"
        peaks = f"{found['plain']['peak'] / 1e9:.2f} / {found['plain']['rival_peak'] / 1e9:.2f}"
        wanted = f"{work.required:g}x, {work.aim:g}x"
        rows.append([work.title, f"{best * 1e3:.4g}", *cells, wanted, limit, peaks])
    head = ["workload", "ms", "plain", "`higher`", "plain, kept", "`higher`, kept"]
    return table([*head, "required, aim", "limit", "GB, alfa / plain"], rows)


def profile_table(results: dict[str, Any]) -> list[str]:
    works = list(results)
    rows = [
        [title, *(f"{1e3 * results[work].get(kind, 0):.1f}" for work in works)]
        for kind, title in {**KINDS, "all": "total"}.items()
    ]
    return table(["ms", *works], rows)


def resnet_table(results: dict[str, Any]) -> list[str]:
    store = results["store"]["seconds"]
    rows = [
        [
            f"{r['size']} x {r['size']}, {r['memory']}",
            f"{r['seconds']:.1f}",
            f"{r['peak'] / 1e9:.2f}",
            f"{r['seconds'] / store:.2f}" if r["size"] == 42 else "-",
        ]
        for r in (results["store"], results["recompute"], results["84"])
    ]
    return table(["images, memory mode", "s", "GB", "time relative to store"], rows)


def picture(results: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(10, 5.2), sharex="col", layout="constrained")
    labels = {"tasks": "tasks", "steps": "inner steps", "size": "image area, pixels"}
    for column, (name, label) in enumerate(labels.items()):
        points = results[name]
        x = [p[name] ** 2 if name == "size" else p[name] for p in points]
        for row, (key, unit, scale) in enumerate((("seconds", "s", 1), ("peak", "GB", 1e-9))):
            y = [p[key] * scale for p in points]
            axes[row, column].plot(x, y, "o-", color="#2f6f9f")
            axes[row, column].set_ylim(bottom=0)
            axes[row, column].set_xlim(left=0)
            axes[row, column].grid(alpha=0.3)
            if column == 0:
                quantity = "time of an iteration" if row == 0 else "peak memory"
                axes[row, column].set_ylabel(f"{quantity}, {unit}")
        axes[1, column].set_xlabel(label)
    figure.savefig(PICTURE, dpi=110)


def report() -> None:
    results = known()
    lines = ["### Comparison with PyTorch and `higher`", "", *ratio_table(results["ratios"])]
    lines += ["### Parts of an iteration", "", *profile_table(results["profile"])]
    lines += ["### Sequential and stacked tasks", ""]
    ways = ["loop", "stack", "auto"]
    rows = [
        [name, *(f"{1e3 * found[way]:.0f}" for way in ways)]
        for name, found in results["stacking"].items()
    ]
    lines += table(["ms", *ways], rows)
    lines += ["### Convolutions by PyTorch and by Winograd's algorithm", ""]
    rows = [
        [name, *(f"{1e3 * t[way]:.0f}" for way in t), f"{t['torch'] / t['winograd']:.2f}x"]
        for name, t in results["winograd"].items()
    ]
    lines += table(["ms", "PyTorch", "Winograd", "ratio"], rows)
    lines += ["### ResNet12", "", *resnet_table(results["resnet"])]
    lines += ["### With and without `alfa.tune()`", ""]
    lines += [
        "One task, 5 steps, medians of 7 rounds with one process each. The machine was shared, so",
        "single rounds are unreliable.",
        "",
        *tuned_table(results["tuned"]),
    ]
    picture(results["growth"])
    write_part(PAGE, "engine.py", lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(one(json.loads(sys.argv[2]))))
    else:
        choose(__doc__, ratios, growth, profile, stacking, winograd, resnet, tuned, report)
