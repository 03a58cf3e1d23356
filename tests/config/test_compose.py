"""Experiments composed of a dataset, a method, and a backbone."""

from __future__ import annotations

import tomllib

import pytest
import tomli_w

from alfa.backbones import BACKBONES
from alfa.build import build_learner, build_tasks
from alfa.config import (
    Choices,
    compose,
    compose_for_folder,
    datasets,
    load_experiment,
    parse_experiment,
    to_dict,
)
from alfa.errors import ConfigError
from alfa.methods import METHODS, Method
from alfa.testing import register_small_backbone

# Complete experiments, spelled out: compositions must be exactly these.
_SINUSOID = """
[tasks]
name = "sinusoid"
num_support = 10
num_query = 100
[model]
name = "mlp"
hidden = [40, 40]
[outer]
num_iterations = 30_000
num_tasks = 4
max_gradient_norm = 100.0
max_skipped = 10
num_val_tasks = 200
[test]
ensemble = 1
"""
_IMAGES = """
[tasks]
name = "images"
dataset = "{dataset}"
size = {size}
way = 5
shot = 5
num_query = 15
[model]
name = "conv4"
[outer]
num_iterations = 50_000
num_tasks = 2
validate_every = 500
num_val_tasks = 600
[test]
num_tasks = 600
ensemble = 5
"""
_STROKES = """
[tasks]
name = "images"
dataset = "strokes"
way = 5
shot = 5
num_query = 15
[model]
name = "conv4"
[outer]
num_iterations = 1_000
num_tasks = 2
validate_every = 200
num_val_tasks = 200
"""
_VARIED = """
[tasks]
name = "meta-dataset"
dataset = "strokes"
size = 28
[model]
name = "conv4"
filters = 32
[inner]
order = "first"
batch_norm = "inductive"
[outer]
num_iterations = 500
num_tasks = 1
validate_every = 100
num_val_tasks = 40
[test]
num_tasks = 100
ensemble = 1
"""
_DEMO = """
[tasks]
name = "images"
dataset = "strokes-free"
size = 28
way = 5
shot = 5
num_query = 10
[model]
name = "conv4"
filters = 32
[inner]
batch_norm = "inductive"
[optimizer]
name = "adam"
learning_rate = 0.003
[schedule]
name = "step"
gamma = 0.3
every = 400
[outer]
num_iterations = 800
num_tasks = 2
validate_every = 200
num_val_tasks = 100
[test]
num_tasks = 300
ensemble = 1
"""
_LEARNED, _PROTOTYPES = '[init]\nname = "learned"\n', '[init]\nname = "prototype-head"\n'
_ALFA, _SGD = '[rule]\nname = "alfa"\n', '[rule]\nname = "sgd"\nlearning_rate = 0.01\n'
_CIFAR = _IMAGES.format(dataset="cifar-fs", size=32)
_MINI = _IMAGES.format(dataset="miniimagenet", size=84)
SPELLED_OUT = {
    ("cifar-fs", "alfa+maml"): _CIFAR + _LEARNED + _ALFA,
    ("cifar-fs", "maml"): _CIFAR + _LEARNED + _SGD,
    ("miniimagenet", "alfa+maml"): _MINI + _LEARNED + _ALFA,
    ("miniimagenet", "maml"): _MINI + _LEARNED + _SGD,
    ("sinusoid", "alfa+maml"): _SINUSOID + _LEARNED + _ALFA,
    ("sinusoid", "maml"): _SINUSOID + _LEARNED + _SGD,
    ("strokes", "alfa+maml"): _STROKES + _LEARNED + _ALFA,
    ("strokes", "maml"): _STROKES + _LEARNED + _SGD,
    ("strokes-demo", "alfa+proto-maml"): _DEMO + _PROTOTYPES + _ALFA,
    ("varied", "alfa+proto-maml"): _VARIED + _PROTOTYPES + _ALFA,
    ("varied", "proto-maml"): _VARIED + _PROTOTYPES + _SGD,
}


@pytest.mark.parametrize(("dataset", "method"), SPELLED_OUT)
def test_a_composition_is_the_experiment_that_is_spelled_out(dataset: str, method: str) -> None:
    expected = parse_experiment(tomllib.loads(SPELLED_OUT[dataset, method]))
    composed = compose(dataset, method=method)
    assert composed == expected
    assert composed.fingerprint() == expected.fingerprint()


@pytest.mark.parametrize("dataset", sorted({dataset for dataset, _ in SPELLED_OUT}))
def test_the_default_method_is_the_best_that_suits_the_tasks(dataset: str) -> None:
    methods = [method for known, method in SPELLED_OUT if known == dataset]
    assert compose(dataset) == compose(dataset, method=methods[0])


def test_every_known_dataset_composes_and_bases_for_others_are_none(spots) -> None:
    known = datasets()
    assert {"cifar-fs", "cub", "omniglot", "strokes-free", "spots", "varied"} <= set(known)
    # Datasets without training classes, and base experiments, which name no dataset.
    assert not {"traffic-sign", "folder", "images"} & set(known)
    for dataset in known:
        experiment = compose(dataset)
        assert experiment.init.name in ("learned", "prototype-head")


@pytest.mark.parametrize("dataset", ["sinusoid", "strokes-free", "varied", "spots", "strokes-demo"])
def test_a_composition_can_be_built(dataset: str, spots) -> None:
    small = {
        "sinusoid": ["model.hidden=[8]"],
        "varied": ["tasks.dataset=spots", "model.num_blocks=2", "model.filters=4"],
    }
    # The classes of this dataset have nine images.
    images = ["tasks.dataset=spots", "tasks.size=none", "tasks.way=3", "tasks.num_query=2"]
    images += ["model.num_blocks=2", "model.filters=4"]
    experiment = compose(dataset, overrides=small.get(dataset, images))
    learner = build_learner(experiment, build_tasks(experiment))
    assert learner.num_steps == experiment.inner.num_steps == 5


def test_other_datasets_follow_the_papers_protocol(spots) -> None:
    cub = compose("cub")
    assert cub == compose("miniimagenet", overrides=["tasks.dataset=cub"])
    assert (cub.outer.num_iterations, cub.outer.validate_every) == (100 * 500, 500)
    assert compose("omniglot").tasks.options["size"] == 28
    # A dataset that the user has prepared: in its only size.
    assert compose("spots").tasks.options.get("size") is None
    free = compose("strokes-free", overrides=["tasks.dataset=strokes"])
    assert free == compose("strokes")


def test_tasks_of_one_shot_are_smaller_and_more() -> None:
    one, five = compose("cifar-fs", shot=1), compose("cifar-fs", shot=5)
    assert (one.outer.num_tasks, five.outer.num_tasks) == (4, 2)
    assert one.tasks.options["shot"] == 1
    assert compose("cifar-fs", way=20).tasks.options["way"] == 20
    assert compose("strokes", shot=1).outer == compose("strokes").outer


def test_a_backbone_has_its_own_defaults() -> None:
    varied = compose("varied", backbone="resnet12")
    assert varied.model == compose("cifar-fs", backbone="resnet12").model
    assert varied.model.name == "resnet12"


def test_overrides_come_last() -> None:
    overrides = ["rule.name=sgd", "tasks.shot=3", "outer.num_tasks=7"]
    changed = compose("cifar-fs", method="alfa+maml", shot=1, overrides=overrides)
    assert (changed.rule.name, changed.tasks.options["shot"]) == ("sgd", 3)
    assert changed.outer.num_tasks == 7


def test_a_method_may_change_other_sections(monkeypatch) -> None:
    maml = METHODS["maml"]
    settings = {"inner": {"order": "first"}, "outer": {"num_tasks": 9}}
    first_order = Method("fo-maml", "", "", maml.init, maml.rule, settings)
    monkeypatch.setitem(METHODS, "fo-maml", first_order)
    changed = compose("sinusoid", method="fo-maml")
    changes = ["inner.order=first", "outer.num_tasks=9"]
    assert changed == compose("sinusoid", method="maml", overrides=changes)


def test_a_file_is_taken_as_it_is_unless_something_is_chosen(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SPELLED_OUT["cifar-fs", "maml"])
    assert compose(path) == load_experiment(path) == compose("cifar-fs", method="maml")
    assert compose(path, method="alfa+maml") == compose("cifar-fs")
    # Only base experiments have a default method.
    path.write_text('method = "maml"\n' + SPELLED_OUT["cifar-fs", "maml"])
    with pytest.raises(ConfigError, match="method is not a known key"):
        compose(path)
    path.write_text('tasks = "images"\nmodel = {name = "conv4"}\n')
    with pytest.raises(ConfigError, match="tasks is 'images', but must be a table"):
        compose(path, shot=1)


def test_an_unknown_name_lists_the_datasets() -> None:
    with pytest.raises(ConfigError, match=r"no dataset 'sinusoids'; known: .* mean 'sinusoid'\?"):
        compose("sinusoids")
    with pytest.raises(ConfigError, match="`method` is 'mamal', which is not one of"):
        compose("sinusoid", method="mamal")


def test_the_label_of_choices_names_a_run_folder() -> None:
    assert Choices().label == ""
    assert Choices("maml", "resnet12", 5, 1).label == "maml-resnet12-5way-1shot"
    assert Choices(shot=5).label == "5shot"
    assert Choices(backbone="timm:hf_hub/vit").label == "timm-hf_hub-vit"


def test_a_pretrained_backbone_replaces_the_images_by_features(spots) -> None:
    name = register_small_backbone()
    known = compose("spots", backbone=name, method="alfa+ridge", way=3)
    assert known.tasks.options["backbone"] == name
    assert known.tasks.options["dataset"] == "spots"
    assert known.tasks.options["way"] == 3
    assert (known.model.name, known.init.name, known.rule.name) == (
        "features",
        "ridge-head",
        "alfa",
    )
    assert known.optimizer.options["weight_decay"] > 0
    assert known.outer.validate_start
    # Generated datasets and tasks of varying size; the dataset's own base gives only the tasks.
    strokes = compose("strokes", backbone=name)
    assert strokes.outer == known.outer
    assert strokes.tasks.options["num_query"] == 15
    assert compose("varied", backbone=name).tasks.options["backbone"] == name
    folder = compose_for_folder({"dataset": "spots"}, choices=Choices(backbone=name), overrides=())
    assert (folder.outer, folder.tasks.options["backbone"]) == (known.outer, name)


def test_a_file_keeps_its_settings_with_another_backbone(tmp_path) -> None:
    name, path = register_small_backbone(), tmp_path / "mine.toml"
    path.write_text(SPELLED_OUT["cifar-fs", "maml"])
    features = compose(path, backbone=name)
    images = compose(path)
    assert features.outer == images.outer
    assert features.model.name == "features"
    path.write_text(tomli_w.dumps(to_dict(features)))
    assert compose(path, backbone="conv4") == images


@pytest.mark.parametrize("name", ["prototype", "ridge", "logistic"])
def test_heads_on_features_come_with_and_without_steps(name: str) -> None:
    small = register_small_backbone()
    closed = compose("strokes", backbone=small, method=name)
    steps = compose("strokes", backbone=small, method=f"alfa+{name}")
    assert (closed.inner.num_steps, closed.rule.name) == (0, "sgd")
    assert (steps.inner.num_steps, steps.rule.name) == (3, "alfa")
    assert (closed.init, closed.head, closed.model) == (steps.init, steps.head, steps.model)
    # They train any other backbone, too.
    assert compose("strokes", method=name).model.options == compose("strokes").model.options


def test_an_unknown_backbone_lists_models_and_pretrained_ones(tmp_path) -> None:
    name = register_small_backbone()
    with pytest.raises(ConfigError, match=rf"models: conv4, .* backbones: .*{name}.* 'small'\?"):
        compose("strokes", backbone="smalll")
    with pytest.raises(ConfigError, match=r"no backbone 'conv5'.* Did you mean 'conv4'\?"):
        compose("strokes", backbone="conv5")
    with pytest.raises(ConfigError, match=r"'small' takes images, but tasks.name is 'sinusoid'"):
        compose("sinusoid", backbone=name)


def test_a_plugin_may_register_the_backbone(tmp_path, registries, monkeypatch) -> None:
    monkeypatch.setattr("alfa.backbones._base.BACKBONES", dict(BACKBONES))
    (tmp_path / "my_backbones.py").write_text(
        "from alfa.models import MLP, register_model\n"
        "from alfa.testing import register_small_backbone\n"
        "register_small_backbone('from-a-plugin')\n"
        "register_model('wide-mlp')(type('Wide', (MLP,), {}))\n"
    )
    path = tmp_path / "mine.toml"
    path.write_text('plugins = ["my_backbones"]\n' + SPELLED_OUT["cifar-fs", "maml"])
    assert compose(path, backbone="from-a-plugin").model.name == "features"
    assert compose(path, backbone="wide-mlp").model.name == "wide-mlp"
    path.write_text('plugins = ["no_such_module"]\n' + SPELLED_OUT["cifar-fs", "maml"])
    with pytest.raises(ConfigError, match="contains 'no_such_module', which cannot be imported"):
        compose(path, backbone="from-a-plugin-2")
