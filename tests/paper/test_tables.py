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


def test_tables_have_all_cells() -> None:
    assert {name: len(table.cells) for name, table in TABLES.items()} == {
        "table1": 48,
        "table2": 10,
        "table3": 40,
        "table4": 4,
        "table5": 3,
        "table6": 16,
        "table7": 6,
        "table8": 12,
        "tableA": 10,
        "tableB": 48,
        "tableC": 0,
        "tableD": 0,
        "tableE": 15,
    }
    assert len(CELLS) == 212


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
    ("table", "name", "texts"),
    [
        ("tableC", "matching-networks", ["43.56 +- 0.84", "55.31 +- 0.73", None, None]),
        ("table1", "leo-trainval", ["61.76 +- 0.08", "77.59 +- 0.12", "66.33 +- 0.05"]),
        ("tableB", "tadam", ["40.1 +- 0.4", "56.1 +- 0.4", None, None]),
        ("tableD", "mscoco", ["48.11 +- 1.14", "59.28"]),
    ],
)
def test_quoted_figures_are_marked(table: str, name: str, texts: list) -> None:
    found = [TABLES[table].entries[name, column.key] for column in TABLES[table].columns]
    quoted = [entry.published and entry.published.text for entry in found]
    assert quoted[: len(texts)] == texts
    expected = [table != "tableD"] * (len(found) - 1) + [True]
    assert [isinstance(entry, Quoted) for entry in found] == expected


def test_the_quoted_figures_of_cells_are_those_of_maml() -> None:
    assert {cell.published.text for cell in CELLS if cell.quoted} == {
        "48.70 +- 1.75",
        "63.11 +- 0.91",
    }


def test_cells_share_a_run_if_and_only_if_they_train_the_same() -> None:
    prints: dict[str, set[str]] = {}
    for cell in CELLS:
        prints.setdefault(cell.run, set()).add(cell.experiment.fingerprint())
    assert all(len(found) == 1 for found in prints.values())
    assert len(set.union(*prints.values())) == len(prints) == 143


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


@pytest.mark.parametrize(
    "cell", [c for c in CELLS if c.table != "table3"], ids=lambda cell: cell.id
)
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
    for cell in TABLES[name].cells:
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
    others = [c for c in CELLS if c.table not in ("table3", "table7")]
    assert {cell.experiment.inner.num_steps for cell in others} == {5}


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.id)
def test_datasets_have_enough_classes_and_images(cell: Cell) -> None:
    tasks = cell.experiment.tasks.options
    if cell.metric == "mse":
        return
    for dataset in cell.datasets:
        for split, (num_classes, num_images) in SOURCES.get(dataset).published.items():
            if cell.table == "table3":
                assert tasks["min_way"] <= num_classes
                continue
            way = tasks.get("val_way", tasks["way"]) if split == "val" else tasks["way"]
            assert way <= num_classes
            assert tasks["shot"] + tasks["num_query"] <= num_images // num_classes


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
