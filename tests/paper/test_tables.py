"""The paper's tables: their cells, experiments, and figures."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from alfa.build import build_learner
from alfa.data import Signature
from alfa.data.sources import SOURCES
from alfa.paper import TABLES, Cell, Quoted, plan_jobs

CELLS = [cell for table in TABLES.values() for cell in table.cells]
OTHER_METHODS = [
    cell
    for table in TABLES.values()
    for (row, column), cell in table.entries.items()
    if isinstance(cell, Cell)
    and "other methods"
    in {line.group for line in (*table.rows, *table.columns) if line.key in (row, column)}
]


def test_tables_have_all_cells() -> None:
    assert {name: len(table.cells) for name, table in TABLES.items()} == {
        "table1": 56,
        "table2": 10,
        "table3": 40,
        "table4": 4,
        "table5": 3,
        "table6": 16,
        "table7": 6,
        "table8": 12,
        "tableA": 10,
        "tableB": 60,
        "tableC": 22,
        "tableD": 10,
        "tableE": 15,
    }
    assert len(CELLS) == 264


def test_published_figures_have_a_value_and_an_optional_spread() -> None:
    for table in TABLES.values():
        for entry in filter(lambda entry: entry.published, table.entries.values()):
            assert re.fullmatch(r"\d+\.\d+( \+- \d+\.\d+)?", entry.published.text)


def test_ids_are_unique_and_start_with_their_table() -> None:
    assert len({cell.id for cell in CELLS}) == len(CELLS)
    for name, table in TABLES.items():
        assert all(re.fullmatch(rf"{name}/[\w+-]+/[\w+-]+/[\w-]+", c.id) for c in table.cells)
    assert "table1/miniimagenet-5w5s/alfa+maml/conv4" in {cell.id for cell in CELLS}


def test_rows_and_columns_hold_all_entries() -> None:
    for table in TABLES.values():
        rows, columns = ({line.key for line in lines} for lines in (table.rows, table.columns))
        assert len(rows) == len(table.rows)
        assert len(columns) == len(table.columns)
        assert {row for row, _ in table.entries} == rows
        assert {column for _, column in table.entries} == columns


@pytest.mark.parametrize(
    ("table", "row", "texts"),
    [
        ("tableC", "matching-fce/conv4-64", ["43.56 +- 0.84", "55.31 +- 0.73", None, None]),
        ("tableC", "adaresnet/resnet12", ["56.88 +- 0.62", "71.94 +- 0.57", None, None]),
        ("tableC", "leo/wrn-28-10", ["61.76 +- 0.08", "77.59 +- 0.12", "66.33 +- 0.05"]),
        ("tableB", "tadam/resnet12", ["40.1 +- 0.4", "56.1 +- 0.4", None, None]),
        ("tableD", "mscoco", ["48.11 +- 1.14", "59.28"]),
    ],
)
def test_rows_of_other_methods_have_their_figures(table: str, row: str, texts: list) -> None:
    found = [TABLES[table].entries[row, column.key] for column in TABLES[table].columns]
    figures = [entry.published and entry.published.text for entry in found]
    assert figures[: len(texts)] == texts


def test_only_figures_without_a_described_method_cannot_be_run() -> None:
    fixed = {
        (name, row)
        for name, table in TABLES.items()
        for (row, _), entry in table.entries.items()
        if isinstance(entry, Quoted) and entry.published is not None
    }
    assert fixed == {("tableC", "adaresnet/resnet12")}


def test_the_quoted_figures_of_cells_are_those_of_maml_and_other_methods() -> None:
    assert len(OTHER_METHODS) == 52 + 8  # Table C repeats the eight of Table 1.
    others = {cell.id for cell in OTHER_METHODS}
    assert all(cell.quoted for cell in OTHER_METHODS)
    assert {c.published.text for c in CELLS if c.quoted and c.id not in others} == {
        "48.70 +- 1.75",
        "63.11 +- 0.91",
    }


def test_rows_have_the_footnotes_of_the_paper() -> None:
    noted = {
        (name, row.key): len(row.footnotes)
        for name, table in TABLES.items()
        for row in table.rows
        if row.footnotes
    }
    reproduced = [f"{m}/{b}" for m in ("maml", "maml+l2f") for b in ("conv4", "resnet12")]
    assert noted == {
        ("table1", "leo/wrn-28-10"): 2,
        ("table1", "metaoptnet/resnet12-wide"): 1,
        ("tableA", "single"): 1,
        **{("tableB", row): 1 for row in reproduced},
        ("tableB", "protonet/conv4-64"): 1,
        ("tableB", "relation/conv4-64-96-128-256"): 1,
        ("tableB", "metaoptnet/resnet12-wide"): 1,
        ("tableC", "protonet/conv4-64"): 1,
        ("tableC", "relation/conv4-64-96-128-256"): 1,
        ("tableC", "adaresnet/resnet12"): 1,
        ("tableC", "act2param/wrn-28-10"): 1,
        ("tableC", "leo/wrn-28-10"): 1,
        ("tableC", "metaoptnet/resnet12-wide"): 1,
    }


def test_cells_share_a_run_if_and_only_if_they_train_the_same() -> None:
    prints: dict[str, set[str]] = {}
    for cell in CELLS:
        prints.setdefault(cell.run, set()).add(cell.experiment.fingerprint())
    assert all(len(found) == 1 for found in prints.values())
    assert len(set.union(*prints.values())) == len(prints) == 186


def test_tables_c_and_d_repeat_cells_of_others() -> None:
    assert {name: table.repeats for name, table in TABLES.items() if table.repeats} == {
        "tableC": ("table1",),
        "tableD": ("table3",),
    }
    assert all(table.cells or table.repeats for table in TABLES.values())


def test_cross_domain_tables_use_the_models_of_table_1() -> None:
    trained = {cell.run for cell in TABLES["table1"].cells}
    for cell in (*TABLES["table2"].cells, *TABLES["tableE"].cells):
        assert cell.run in trained
        assert cell.test_dataset in cell.id
        assert cell.datasets == ("miniimagenet", cell.test_dataset)


SIZES = {"mlp": ((1,), 1), "conv4": ((3, 16, 16), 5)}
OTHER_IDS = {cell.id for cell in OTHER_METHODS}
OWN = [cell for cell in CELLS if cell.id not in OTHER_IDS]


@pytest.mark.parametrize("cell", [c for c in OWN if c.table != "table3"], ids=lambda cell: cell.id)
def test_a_cell_has_the_layers_and_settings_of_the_paper(cell: Cell) -> None:
    experiment = cell.experiment
    # ResNet12 is large; other tests count its layers.
    if experiment.model.name != "resnet12":
        shape, num_outputs = SIZES[experiment.model.name]
        loss = "mse" if experiment.model.name == "mlp" else "cross_entropy"
        learner = build_learner(experiment, Signature(shape, num_outputs, loss))
        hidden = experiment.model.options.get("hidden", ())
        assert len(learner.init.layers) == (2 * len(hidden) + 2 if hidden else 10)
    if experiment.tasks.name == "images":
        tasks = experiment.tasks.options
        assert tasks["num_query"] == 15
        assert experiment.outer.num_iterations == 50_000
        # The published 1-shot runs of L2F with ResNet12 also have 2 tasks.
        two = tasks["shot"] == 5 or cell.run.endswith("l2f/resnet12")
        assert experiment.outer.num_tasks == (2 if two else 4)
        assert f"-{tasks['way']}w{tasks['shot']}s" in cell.run
        assert tasks["size"] == (84 if "imagenet" in tasks["dataset"] else 32)
        assert (experiment.test.num_tasks, experiment.test.ensemble) == (600, 5)
        assert (experiment.outer.validate_every, experiment.outer.num_val_tasks) == (500, 600)
    assert experiment.inner.order == "second"
    assert experiment.optimizer.options["learning_rate"] == 0.001
    assert experiment.schedule.name == "constant"


METHODS = {
    "random": ("fixed", "sgd", None),
    "alfa+random": ("fixed", "alfa", True),
    "maml": ("learned", "sgd", None),
    "alfa+maml": ("learned", "alfa", False),
    "maml+l2f": ("attenuated", "sgd", None),
    "alfa+maml+l2f": ("attenuated", "alfa", False),
}


@pytest.mark.parametrize("name", ["table1", "table2", "table4", "tableA", "tableB", "tableE"])
def test_rows_have_the_named_init_and_rule(name: str) -> None:
    for cell in OWN:
        if cell.table != name:
            continue
        row = cell.id.split("/")[2].removesuffix("-single").removesuffix("-multi")
        init, rule, decay = METHODS[row]
        assert (cell.experiment.init.name, cell.experiment.rule.name) == (init, rule)
        assert cell.experiment.rule.options.get("per_parameter_decay") == decay
        parts = 2 if "-multi/" in cell.id else 1
        assert cell.experiment.model.options.get("device_parts", 1) == parts


def test_table_5_varies_the_state_and_table_7_the_steps() -> None:
    states = [cell.experiment.rule.options["state"] for cell in TABLES["table5"].cells]
    assert states == [["weights"], ["gradients"], ["weights", "gradients"]]
    steps = [cell.experiment.inner.num_steps for cell in TABLES["table7"].cells]
    assert steps == [5, 1, 2, 3, 4, 5]
    # A separate test covers the settings of Meta-Dataset, Table 3.
    others = [c for c in OWN if c.table not in ("table3", "table7")]
    assert {cell.experiment.inner.num_steps for cell in others} == {5}


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.id)
def test_datasets_have_enough_classes_and_images(cell: Cell) -> None:
    tasks = cell.experiment.tasks.options
    if cell.metric == "mse":
        return
    for dataset in cell.datasets:
        for split, (num_classes, num_images) in SOURCES.get(dataset).published.items():
            if cell.table in ("table3", "tableD"):
                assert tasks["min_way"] <= num_classes
                continue
            way, shot, num_query = (
                tasks.get(f"{split}_{key}", tasks[key]) for key in ("way", "shot", "num_query")
            )
            assert way <= num_classes
            assert shot + num_query <= num_images // num_classes


# The tasks and the outer loop of other methods as published: classes, support images, and query
# images per class in training, tasks per iteration, iterations, and the optimizer with its rate.
PUBLISHED = {
    "matching-fce": ((5, None, 15), 1, 75_000, ("adam", 1e-4)),
    "meta-lstm": ((5, None, 15), 1, {1: 75_000, 5: 50_000}, ("adam", 1e-3)),
    "protonet": (({1: 30, 5: 20}, None, 15), 1, 20_000, ("adam", 1e-3)),
    "relation": ((5, None, {1: 15, 5: 10}), 1, 500_000, ("adam", 1e-3)),
    "tpn": ((5, {1: 5, 5: 10}, 15), 1, 210_000, ("adam", 1e-3)),
    "tadam": ((5, None, {1: 2, 5: 6}), {1: 5, 5: 2}, 30_000, ("sgd", 0.1)),
    "act2param": ((5, None, 15), 1, 12_500, ("sgd", 1e-3)),
    "leo": ((5, None, 15), 12, 100_000, ("adam", {1: 2.7e-4, 5: 4.102361e-4})),
    "metaoptnet": ((5, None, 6), 8, 60_000, ("sgd", 0.1)),
}


@pytest.mark.parametrize(
    "cell",
    [c for c in OTHER_METHODS if c.id.split("/")[2] in PUBLISHED],
    ids=lambda cell: cell.id,
)
def test_other_methods_have_their_published_settings(cell: Cell) -> None:
    method, experiment = cell.id.split("/")[2], cell.experiment
    tasks, outer = experiment.tasks.options, experiment.outer
    shot = tasks["shot"]
    (way, train_shot, num_query), num_tasks, num_iterations, (optimizer, rate) = PUBLISHED[method]

    def value(of: object) -> object:
        return of[shot] if isinstance(of, dict) else of

    if method == "metaoptnet":
        train_shot = {"cifar-fs": 5, "tieredimagenet": 10}.get(tasks["dataset"], 15)
    assert tasks["way"] == 5
    assert tasks["num_query"] == 15
    assert tasks.get("train_way", 5) == value(way)
    assert tasks.get("train_shot", shot) == (value(train_shot) or shot)
    assert tasks.get("train_num_query", 15) == value(num_query)
    assert (outer.num_tasks, outer.num_iterations) == (value(num_tasks), value(num_iterations))
    assert experiment.optimizer.name == optimizer
    assert experiment.optimizer.options["learning_rate"] == value(rate)
    assert (experiment.test.num_tasks, experiment.test.ensemble) == (600, 1)


def test_meta_dataset_is_compared_with_distilled_logistic_regression() -> None:
    cells = TABLES["tableD"].cells
    assert {cell.run for cell in cells} == {"ilsvrc-varied/rfs-distill/resnet18"}
    assert [c.test_dataset for c in cells] == [c.test_dataset for c in TABLES["table3"].cells[::4]]
    experiment = cells[0].experiment
    assert experiment.head is not None
    assert experiment.head.name == "logistic"
    assert experiment.pretraining is not None
    assert experiment.pretraining.num_distillations > 0
    assert experiment.inner.batch_norm == "inductive"


def test_table_6_varies_one_rate() -> None:
    for cell in TABLES["table6"].cells:
        rule = cell.experiment.rule.options
        rate, other = ("alpha", "beta") if "-alpha-" in cell.id else ("beta", "alpha")
        assert rule[other] == {
            "source": "constant",
            "value": 1.0 if other == "beta" else 0.01,
        }
        assert rule[rate]["source"] == ("learned" if "fixed" in cell.id else "generated")
        assert rule[rate]["per_step"] == ("per-step" in cell.id)
        assert rule[rate]["per_layer"] == ("per-layer" in cell.id)
        assert rule["per_parameter_decay"] == ("random-beta" in cell.id)


def test_meta_dataset_has_its_published_settings() -> None:
    by_method = {cell.id.split("/")[2]: cell for cell in TABLES["table3"].cells}
    assert len(by_method) == 4
    for method, cell in by_method.items():
        experiment = cell.experiment
        is_proto, is_alfa = "proto" in method, method.startswith("alfa")
        assert experiment.tasks.options["dataset"] == ["md-ilsvrc"]
        assert experiment.tasks.options["size"] == 126
        assert experiment.init.name == ("prototype-head" if is_proto else "zero-head")
        assert experiment.inner.order == "first"
        assert experiment.inner.batch_norm == "inductive"
        assert experiment.inner.num_steps == (6 if is_proto else 10)
        assert experiment.inner.num_test_steps == (None if is_proto else 15)
        assert experiment.outer.num_iterations == 75_000
        assert experiment.outer.num_tasks == 1
        assert (experiment.optimizer.name, experiment.schedule.name) == ("adam", "step")
        options = {**experiment.optimizer.options, **experiment.schedule.options}
        assert [options[k] for k in ("learning_rate", "gamma", "every", "weight_decay")] == (
            [3.63e-4, 0.648, 2_500, 1.37e-5] if is_proto else [3.60e-4, 0.835, 10_000, 3.06e-4]
        )
        rate = 0.0054 if is_proto else 0.099
        if is_alfa:
            assert experiment.rule.options["alpha"]["start"] == rate
        else:
            assert experiment.rule.options["learning_rate"] == rate


def test_a_model_of_meta_dataset_is_trained_once_for_all_ten_sources() -> None:
    cells = TABLES["table3"].cells
    assert len({cell.run for cell in cells}) == 4
    assert {cell.pretrained for cell in cells} == {"ilsvrc-varied/resnet18"}
    for run in {cell.run for cell in cells}:
        test_datasets = [cell.test_dataset for cell in cells if cell.run == run]
        assert len(set(test_datasets)) == 10
        assert None in test_datasets


def _of_the_paper() -> list[list[str]]:
    """Return the figures of every table in the source of the paper, row by row."""
    text = Path(os.environ["ALFA_TEST_PAPER"]).read_text()
    tables = []
    for body in re.findall(r"\\begin\{tabular\}(.*?)\\end\{tabular\}", text, flags=re.S):
        body = re.split(r"\\midrule|\\hline", body, maxsplit=1)[1]
        # Remove vertical space, which looks like a figure.
        body = re.sub(r"\\\\\s*\[.*?\]", "", body).replace(r"\pm", "+-")
        body = re.sub(r"\\textbf|\\boldsymbol|[\\{}$%\s]", "", body)
        found = re.findall(r"(\d+\.\d+)(?:\+-(\d+\.\d+))?", body)
        tables.append([f"{value} +- {spread}" if spread else value for value, spread in found])
    return tables


@pytest.mark.skipif(
    "ALFA_TEST_PAPER" not in os.environ,
    reason="ALFA_TEST_PAPER is not set to the source of the paper",
)
def test_the_published_figures_are_those_of_the_paper() -> None:
    ours = []
    for table in TABLES.values():
        places = [(row.key, column.key) for row in table.rows for column in table.columns]
        figures = [table.entries[place].published for place in places]
        ours.append([figure.text for figure in figures if figure is not None])
    # The last column of Table D repeats figures without their spread.
    ours[11] = [text.partition(" ")[0] for text in ours[11]]
    assert ours == _of_the_paper()


def test_a_run_of_meta_dataset_is_known_by_its_experiment(tmp_path) -> None:
    """The file of the pretrained backbone is not part of the fingerprint."""
    for cell in TABLES["table3"].cells[:4]:
        (job,) = plan_jobs([cell], tmp_path)
        assert job.experiment.model.options["weights"].startswith(str(tmp_path))
        assert job.experiment.fingerprint() == cell.experiment.fingerprint()
