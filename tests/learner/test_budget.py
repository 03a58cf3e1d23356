"""The choice of the fastest memory mode that fits, and the memory it is compared to."""

from __future__ import annotations

import os
import warnings
import weakref
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from alfa.inits import INITS, LatentHead, LearnedInit
from alfa.learner import GB, Learner, MemoryPlan, plan_memory
from alfa.learner import _budget as budget
from alfa.models import Conv4
from alfa.objectives import OBJECTIVES
from alfa.ops import cross_entropy, mse
from alfa.rules import ALFA, RULES, SGD
from alfa.types import Episode

CPU = torch.device("cpu")


@pytest.fixture
def conv4(make_learner, perturb, rng, randn):
    """Return a learner whose activations need far more than its weights, and its tasks."""
    model = perturb(Conv4((1, 16, 16), 3, filters=8, num_blocks=2, generator=rng))
    y = torch.arange(3).repeat(4).expand(4, -1)
    episode = Episode(randn(4, 12, 1, 16, 16), y, randn(4, 12, 1, 16, 16), y)
    return make_learner(model, loss=cross_entropy, num_steps=5), episode


@pytest.fixture
def needed(conv4):
    """Return a function that estimates the bytes of a mode and a number of tasks."""

    return lambda memory, tasks_at_once: needed_by(*conv4, memory, tasks_at_once)


def needed_by(learner, episode, *way):
    return budget._needed_bytes(learner, episode, [way])[way]


def chosen(case, size, **options):
    plan = plan_memory(*case, budget=size, **options)
    return plan.mode, plan.tasks_at_once


# The choice


def test_plenty_is_used_for_speed(conv4):
    plan = plan_memory(*conv4, budget=GB)
    assert (plan.mode, plan.tasks_at_once) == ("store", 4)
    assert (plan.mode_reason, plan.tasks_reason) == ("chosen", "chosen")
    assert 0 < plan.needed < plan.budget == GB


def test_every_way_needs_less_than_the_one_before(needed):
    assert needed("store", 4) > needed("store", 1) > needed("recompute", 1) > 0


def test_the_first_way_that_fits_is_taken(conv4, needed):
    all_at_once, one_at_once = needed("store", 4), needed("store", 1)
    assert chosen(conv4, int(1.01 * all_at_once)) == ("store", 4)
    assert chosen(conv4, int(0.99 * all_at_once)) == ("store", 1)
    assert chosen(conv4, int(1.01 * one_at_once)) == ("store", 1)
    assert chosen(conv4, int(0.99 * one_at_once))[0] == "recompute"


def test_where_nothing_fits_that_which_needs_least_is_taken(conv4):
    plan = plan_memory(*conv4, budget=1)
    assert (plan.mode, plan.tasks_at_once) == ("recompute", 1)
    assert plan.needed > plan.budget == 1


@pytest.mark.parametrize(("memory", "count", "size"), [("store", 4, 1), ("recompute", 2, GB)])
def test_what_is_asked_for_is_kept_to(conv4, memory, count, size):
    plan = plan_memory(*conv4, memory=memory, tasks_at_once=count, budget=size)
    assert plan == MemoryPlan(memory, count, None, size, "requested", "requested")


def test_what_is_not_asked_for_is_still_chosen(conv4, needed):
    assert chosen(conv4, GB, memory="store") == ("store", 4)
    assert chosen(conv4, 1, memory="store") == ("store", 1)
    assert chosen(conv4, GB, memory="recompute")[0] == "recompute"
    assert chosen(conv4, GB, tasks_at_once=2) == ("store", 2)
    assert chosen(conv4, needed("store", 2) // 2, tasks_at_once=2) == ("recompute", 2)
    plan = plan_memory(*conv4, memory="store", budget=1)
    assert (plan.mode_reason, plan.tasks_reason) == ("requested", "chosen")
    plan = plan_memory(*conv4, tasks_at_once=2, budget=1)
    assert (plan.mode_reason, plan.tasks_reason) == ("chosen", "requested")


def test_an_earlier_plan_is_kept_to_in_what_is_not_asked_for(conv4):
    before = MemoryPlan("recompute", 2, 70, 99, "chosen", "chosen")
    plan = plan_memory(*conv4, budget=GB, previous=before)
    assert plan == MemoryPlan("recompute", 2, 70, GB, "resumed", "resumed")
    plan = plan_memory(*conv4, budget=GB, previous=before, memory="store")
    assert plan == MemoryPlan("store", 2, None, GB, "requested", "resumed")
    plan = plan_memory(*conv4, budget=GB, previous=before, tasks_at_once=4)
    assert plan == MemoryPlan("recompute", 4, None, GB, "resumed", "requested")


@pytest.fixture
def probes(monkeypatch):
    """Record the number of steps and tasks in every run of the probe."""
    seen: list[tuple[int, int]] = []
    real = Learner.forward

    def forward(self, episode, *, num_steps=None, order=None):
        seen.append((self.num_steps, episode.num_tasks))
        return real(self, episode, num_steps=num_steps, order=order)

    monkeypatch.setattr(Learner, "forward", forward)
    return seen


def test_where_nothing_is_left_to_choose_nothing_is_probed(conv4, probes):
    learner, episode = conv4
    plan_memory(learner, episode, memory="recompute", tasks_at_once=2)
    plan_memory(learner, episode[:1], memory="recompute")
    before = MemoryPlan("recompute", 2, 70, 99, "chosen", "chosen")
    plan_memory(learner, episode, previous=before)
    assert probes == []


def test_two_steps_of_a_single_task_are_enough(conv4, probes):
    learner, episode = conv4
    plan_memory(learner, episode)
    assert probes == [(1, 1), (2, 1)]
    assert learner.num_steps == 5


@pytest.mark.parametrize("num_steps", [0, 1])
def test_no_more_steps_are_probed_than_in_training(conv4, probes, num_steps):
    learner, episode = conv4
    learner.num_steps = num_steps
    plan_memory(learner, episode)
    assert probes == [(num_steps, 1)]


def test_there_are_no_more_tasks_at_once_than_tasks(conv4):
    assert chosen(conv4, GB, tasks_at_once=9) == ("store", 4)


def test_without_a_budget_most_of_what_is_free_serves(conv4, monkeypatch):
    monkeypatch.setattr(budget, "free_memory", lambda device: 10 * GB)
    assert 5 * GB < plan_memory(*conv4).budget < 10 * GB


def test_what_is_free_is_read_before_anything_is_used(conv4, monkeypatch, probes):
    def free(device):
        assert probes == []
        return 10 * GB

    monkeypatch.setattr(budget, "free_memory", free)
    plan_memory(*conv4)
    assert probes


# The text


def test_a_plan_says_what_was_chosen():
    plan = MemoryPlan("store", 4, 2_540_000_000, 8 * GB, "chosen", "chosen")
    assert str(plan) == (
        "memory: store, 4 tasks at once (chosen); needs about 2.5 GB of a budget of 8.0 GB"
    )


def test_a_plan_says_that_it_may_not_fit():
    plan = MemoryPlan("recompute", 1, 9 * GB, 8 * GB, "resumed", "resumed")
    assert str(plan) == (
        "memory: recompute, 1 task at once (resumed); needs about 9.0 GB of a budget of "
        "8.0 GB, which may not be enough"
    )


def test_a_plan_says_which_part_was_chosen():
    plan = MemoryPlan("store", 1, GB, 8 * GB, "requested", "chosen")
    assert str(plan).startswith("memory: store (requested), 1 task at once (chosen); needs")
    plan = MemoryPlan("store", 2, GB, 8 * GB, "chosen", "requested")
    assert str(plan).startswith("memory: store (chosen), 2 tasks at once (requested); needs")


def test_a_plan_without_an_estimate_says_nothing_of_it():
    plan = MemoryPlan("store", 2, None, 8 * GB, "requested", "requested")
    assert str(plan) == "memory: store, 2 tasks at once (requested)"


# The estimate


@dataclass(eq=False)
class Kept:
    """A tensor that autograd saves."""

    tensor: Tensor


def kept_bytes(learner, episode, run=lambda learner, episode: learner(episode)):
    alive: weakref.WeakSet[Kept] = weakref.WeakSet()

    def pack(tensor):
        kept = Kept(tensor.detach())
        alive.add(kept)
        return kept

    with saved_tensors_hooks(pack, lambda kept: kept.tensor):
        outcome = run(learner, episode)
    storages = [kept.tensor.untyped_storage() for kept in alive]
    assert outcome.losses.requires_grad
    sizes = {StorageWeakRef(storage): storage.nbytes() for storage in storages}
    del outcome, storages
    return sum(size for storage, size in sizes.items() if storage.expired())


@pytest.mark.parametrize("order", ["second", "first"])
@pytest.mark.parametrize("tasks_at_once", [4, 1])
def test_the_estimate_is_near_what_autograd_keeps(conv4, tasks_at_once, order):
    learner, episode = conv4
    learner.order = order
    needed = needed_by(learner, episode, "store", tasks_at_once)
    real = kept_bytes(learner, episode[:tasks_at_once])
    assert real / 2 < needed < 2 * real


def in_classes(episode: Episode) -> Episode:
    """Return the same inputs, with classes as targets."""
    support_y, query_y = (y.argmax(2) for y in (episode.support_y, episode.query_y))
    return Episode(episode.support_x, support_y, episode.query_x, query_y)


@pytest.mark.parametrize(
    ("rule", "order"), [*((rule, "second") for rule in RULES), ("alfa", "first")]
)
# A task head needs a model with a head of its own.
@pytest.mark.parametrize("init", [name for name in INITS if name != "task-head"])
@pytest.mark.parametrize("kind", ["conv4", "module"])
def test_what_a_task_keeps_is_known_closely(
    conv4, module, make_learner, request, kind, init, rule, order
):
    if kind == "module" and init == "conditioned-prototypes":
        pytest.skip("the module has no normalization layers to condition")
    learner, episode = request.getfixturevalue(kind)
    loss = learner.loss
    if kind == "module" and INITS.get(init).classification_only:
        loss, episode = cross_entropy, in_classes(episode)
    options = {"num_steps": 10} if "num_steps" in RULES.options(rule) else {}
    learner = make_learner(
        learner.model,
        init=init,
        rule=rule,
        loss=loss,
        num_steps=10,
        order=order,
        rule_options=options,
    )
    if not list(learner.meta_parameters()):
        pytest.skip("nothing is trained")
    step, rest = budget._saved_by_step_and_rest(learner, episode[:1])
    real = kept_bytes(learner, episode[:1])
    assert 10 * step + rest == pytest.approx(real, rel=0.15)


# Objectives that require a certain init, or options that the builder supplies.
INIT_OF = {"reptile": partial(LearnedInit, adapt="*"), "latent-penalties": LatentHead}
OPTIONS_OF = {"co-training": {"num_features": 8 * 4 * 4, "num_classes": 10}}


@pytest.mark.parametrize("name", list(OBJECTIVES))
@pytest.mark.parametrize("num_steps", [0, 1, 7])
def test_what_an_objective_keeps_is_known_closely(conv4, make_learner, name, num_steps):
    learner, episode = conv4
    learner = make_learner(learner.model, loss=cross_entropy, num_steps=num_steps)
    if name in INIT_OF:
        init = INIT_OF[name](learner.model).double()
        rule = SGD(init.layers)
        learner = Learner(
            learner.model, init=init, rule=rule, loss=cross_entropy, num_steps=num_steps
        )
    if name == "co-training":
        episode = replace(episode, classes=torch.arange(3).expand(4, -1))
    objective = OBJECTIVES.get(name)(**OPTIONS_OF.get(name, {})).double()
    run = partial(objective, progress=0.0)
    step, rest = budget._saved_by_step_and_rest(learner, episode[:1], run)
    real = kept_bytes(learner, episode[:1], run)
    assert num_steps * step + rest == pytest.approx(real, rel=0.15)


def test_the_queries_of_every_step_need_memory(conv4, needed):
    learner, episode = conv4
    every = partial(OBJECTIVES.get("multi-step")(), progress=0.0)
    last = partial(OBJECTIVES.get("multi-step")(), progress=1.0)
    candidates = [("store", 4), ("recompute", 1)]

    def estimate(*runs):
        return budget._needed_bytes(learner, episode, candidates, runs)

    assert estimate(last)["store", 4] == needed("store", 4)
    assert estimate(every)["store", 4] > 1.5 * needed("store", 4)
    assert estimate(last, every) == estimate(every, last) == estimate(every)
    plan = plan_memory(learner, episode, budget=int(1.2 * needed("store", 4)), runs=[last, every])
    assert (plan.mode, plan.tasks_at_once) == ("store", 1)


@pytest.fixture
def module(make_learner, make_episode, perturb):
    model = perturb(nn.Sequential(nn.Linear(2, 9), nn.Tanh(), nn.Linear(9, 9), nn.Linear(9, 2)))
    return make_learner(model, num_steps=5), make_episode(num_tasks=4, num_support=50)


def test_the_estimate_is_near_for_any_module(module):
    real = kept_bytes(*module)
    assert real / 2 < needed_by(*module, "store", 4) < 2 * real


def test_first_order_needs_much_less_for_any_module(module):
    learner, episode = module
    second = needed_by(learner, episode, "store", 4)
    learner.order = "first"
    assert needed_by(learner, episode, "store", 4) < second / 10


@pytest.mark.parametrize("kind", ["conv4", "mlp"])
def test_recomputing_keeps_no_more_than_the_estimate(
    conv4, make_mlp, make_learner, make_episode, kind
):
    learner, episode = conv4
    if kind == "mlp":
        learner = make_learner(make_mlp(hidden=(30, 30)), num_steps=5)
        episode = make_episode(num_tasks=4)
    learner.memory = "recompute"
    assert kept_bytes(learner, episode) <= needed_by(learner, episode, "recompute", 4)


# Side effects


@pytest.mark.parametrize("kind", ["conv4", "module"])
def test_the_probe_leaves_nothing_in_memory(conv4, module, monkeypatch, kind):
    learner, episode = conv4
    if kind == "module":
        # Torch keeps the output of the softmax in this loss, which belongs to the same operation.
        model = nn.Sequential(nn.Flatten(), nn.Linear(256, 3), nn.LogSoftmax(-1)).double()
        init = LearnedInit(model)
        learner = Learner(model, init=init, rule=SGD(init.layers), loss=cross_entropy)
    storages = []

    class Recorded(budget._Saved):
        def __init__(self, tensor):
            super().__init__(tensor)
            storages.append(StorageWeakRef(tensor.untyped_storage()))

    monkeypatch.setattr(budget, "_Saved", Recorded)
    plan_memory(learner, episode, budget=GB)
    data = (episode.support_x, episode.support_y, episode.query_x, episode.query_y)
    known = {StorageWeakRef(tensor.untyped_storage()) for tensor in data}
    assert storages
    assert all(storage.expired() for storage in storages if storage not in known)


class Counting(SGD):
    """Counts its calls."""

    calls = 0

    def rates(self, step, params, grads, state=()):
        self.calls += 1
        return super().rates(step, params, grads, state)


def test_a_rule_that_counts_its_calls_is_not_disturbed(make_mlp, make_episode):
    model = make_mlp()
    init = LearnedInit(model)
    rule = Counting(init.layers)
    learner = Learner(model, init=init, rule=rule, loss=mse, memory="recompute")
    plan_memory(learner, make_episode(), budget=GB)
    assert rule.calls == 0
    assert learner.memory == "recompute"
    assert all(parameter.grad is None for parameter in learner.parameters())
    learner(make_episode(), num_steps=2)
    assert rule.calls == 2


def test_random_numbers_are_not_disturbed(make_learner, make_episode, perturb):
    model = perturb(nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5), nn.Linear(4, 2)))
    before = torch.get_rng_state()
    plan_memory(make_learner(model), make_episode(), budget=GB)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_rule_for_a_single_step_gives_no_warning(make_mlp, make_episode):
    model = make_mlp()
    init = LearnedInit(model)
    rule = ALFA(init.layers, num_steps=1).double()
    learner = Learner(model, init=init, rule=rule, loss=mse, num_steps=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plan_memory(learner, make_episode(), budget=GB).mode == "store"


# Free memory


@pytest.fixture
def set_files(monkeypatch):
    """Replace the files in which the system reports its memory."""

    def change(meminfo="MemTotal: 9000 kB\nMemAvailable: 1000 kB", limit="", used=""):
        files = {
            "/proc/meminfo": meminfo,
            "/sys/fs/cgroup/memory.max": limit,
            "/sys/fs/cgroup/memory.current": used,
        }
        monkeypatch.setattr(budget, "_lines", lambda path: files[path].splitlines())

    return change


def test_what_the_machine_has_available_is_free(set_files):
    set_files()
    assert budget.free_memory(CPU) == 1000 * 1024


def test_a_container_without_a_limit_changes_nothing(set_files):
    set_files(limit="max", used="400000")
    assert budget.free_memory(CPU) == 1000 * 1024


def test_a_container_may_use_the_rest_of_its_limit(set_files):
    set_files(limit="900000", used="300000")
    assert budget.free_memory(CPU) == 600_000


def test_a_limit_beyond_what_is_available_changes_nothing(set_files):
    set_files(limit="900000000", used="300000")
    assert budget.free_memory(CPU) == 1000 * 1024


def test_a_container_beyond_its_limit_has_nothing_free(set_files):
    set_files(limit="900000", used="900001")
    assert budget.free_memory(CPU) == 0


def test_a_system_that_says_nothing_has_all_of_its_memory(set_files):
    set_files(meminfo="")
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert budget.free_memory(CPU) == whole


def test_a_file_that_is_missing_has_no_lines(tmp_path):
    assert budget._lines(str(tmp_path / "missing")) == []
    (tmp_path / "there").write_text("max\n")
    assert budget._lines(str(tmp_path / "there")) == ["max"]
