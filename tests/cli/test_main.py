"""The command line: output, errors, and start-up time."""

from __future__ import annotations

import ast
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import alfa as package
from alfa.cli.main import app
from alfa.config import compose
from alfa.runs import Run


def _parse(text: str):
    """Parse standard JSON, without Python's NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A complete run that a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


# --- errors


def test_an_unknown_command_is_refused(refused) -> None:
    assert "No such command 'trian'" in refused("trian")


@pytest.mark.parametrize("arguments", [[], ["data"]])
def test_without_arguments_the_help_is_printed_and_nothing_else(alfa, arguments) -> None:
    answer = alfa(*arguments)
    assert answer.code == 2
    assert answer.out.strip() == alfa(*arguments, "--help").out.strip()
    assert answer.err == ""


@pytest.mark.parametrize("command", ["train", "evaluate", "demo"])
def test_an_unknown_option_is_refused(refused, command: str) -> None:
    message = refused(command, "--frobnicate")
    assert "--frobnicate" in message
    assert f"{command} --help" in message


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["train", "sinusoid", "--method", "maml", "--sed", "1"], "--seed"),
        (["evaluate", "somewhere", "--num-task", "5"], "--num-tasks"),
        (["demo", "--iteration", "5"], "--iterations"),
    ],
)
def test_a_misspelt_option_has_a_hint(refused, arguments: list[str], hint: str) -> None:
    assert hint in refused(*arguments)


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["evaluate", "somewhere", "--num-tasks", "0"], "--num-tasks"),
        (["evaluate", "somewhere", "--num-tasks", "many"], "--num-tasks"),
        (["evaluate", "somewhere", "--num-steps", "-1"], "--num-steps"),
        (["evaluate", "somewhere", "--split", "tset"], "'test'"),
        (["evaluate", "somewhere", "--checkpoint", "lats"], "'last'"),
        (["train", "sinusoid", "--method", "maml", "--seed", "-1"], "--seed"),
        (["train", "sinusoid", "--method", "maml", "--threads", "0"], "--threads"),
        (["demo", "--iterations", "0"], "--iterations"),
    ],
)
def test_a_value_out_of_range_is_refused(refused, arguments: list[str], option: str) -> None:
    assert option in refused(*arguments)


def test_a_missing_argument_is_refused(refused) -> None:
    assert "Missing argument 'run'" in refused("evaluate")
    assert "TARGET is missing; specify a dataset" in refused("train")


def test_a_missing_file_is_refused(refused, tmp_path: Path) -> None:
    path, out = tmp_path / "gone.toml", tmp_path / "run"
    assert f"cannot read the experiment {path}" in refused("train", path, "--out", out)
    assert not out.exists()


def test_a_misspelled_dataset_is_refused(refused, tmp_path: Path) -> None:
    out = tmp_path / "run"
    message = refused("train", "sinusoids", "--out", out)
    assert "there is no dataset 'sinusoids'; known: cifar-fs, " in message
    assert "Did you mean 'sinusoid'?" in message
    assert not out.exists()


def test_the_faults_of_an_experiment_are_listed_below_one_line(alfa, tmp_path: Path) -> None:
    out = tmp_path / "run"
    faults = ["--set", "rule.name=adamw", "--set", "outer.num_tasks=0", "--set", "model.hiden=[8]"]
    answer = alfa("train", "sinusoid", "--out", out, *faults)
    first, *rest = answer.err.splitlines()
    assert (answer.code, answer.out) == (2, "")
    assert first == "alfa: sinusoid has 3 errors:"
    assert [line[:4] for line in rest] == ["  - "] * 3
    assert not out.exists()


def test_one_fault_of_an_experiment_is_one_line(refused, tmp_path: Path) -> None:
    out = tmp_path / "run"
    message = refused("train", "sinusoid", "--out", out, "--set", "outer.num_tasks=0")
    assert "outer.num_tasks is 0" in message
    assert not out.exists()


def test_what_cannot_be_built_is_refused_without_a_folder(refused, tmp_path: Path) -> None:
    out = tmp_path / "run"
    message = refused("train", "sinusoid", "--out", out, "--set", "init.adapt=['linear9.*']")
    assert "matches no parameter" in message
    assert not out.exists()


@pytest.mark.parametrize("setting", ["seed", "=1"])
def test_a_setting_without_key_or_value_is_refused(refused, setting: str) -> None:
    assert "--set takes key=value" in refused("train", "sinusoid", "--set", setting)


def test_a_folder_that_is_not_a_run_is_refused(refused, tmp_path: Path) -> None:
    assert "has no config.toml" in refused("evaluate", tmp_path)
    assert "does not exist" in refused("evaluate", tmp_path / "gone")
    assert "has no config.toml" in refused("train", "--resume", tmp_path)
    assert "does not exist" in refused("train", "--resume", tmp_path / "gone")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", [["evaluate"], ["train", "--resume"]])
def test_a_truncated_checkpoint_is_refused(refused, contents, run: Path, command) -> None:
    for name in ("best", "last", "previous"):
        path = Run(run).files.checkpoint(name)
        path.write_bytes(path.read_bytes()[:1000])
    before = contents(run)
    assert "is damaged or not from alfa" in refused(*command, run)
    assert contents(run) == before


def test_a_missing_checkpoint_is_refused(refused, run: Path) -> None:
    Run(run).files.checkpoint("best").unlink()
    assert "the checkpoint was deleted or not saved yet" in refused("evaluate", run)


@pytest.mark.parametrize("command", [["evaluate"], ["train", "--resume"]])
def test_a_checkpoint_of_another_experiment_is_refused(
    refused, contents, run: Path, command
) -> None:
    config = Run(run).files.config
    config.write_text(config.read_text().replace("seed = 0", "seed = 1"))
    before = contents(run)
    assert "belongs to another experiment" in refused(*command, run)
    assert contents(run) == before


def test_a_damaged_configuration_is_refused(refused, run: Path) -> None:
    Run(run).files.config.write_text("seed = [")
    assert "config.toml is not valid TOML" in refused("evaluate", run)


def test_a_changed_setting_on_resume_is_refused(refused, contents, run: Path) -> None:
    before = contents(run)
    message = refused("train", "--resume", run, "--set", "optimizer.learning_rate=0.5")
    assert "belongs to another experiment: optimizer.learning_rate is 0.001 and 0.5;" in message
    assert contents(run) == before


def test_a_run_is_not_overwritten(refused, contents, run: Path, settings) -> None:
    before = contents(run)
    message = refused("train", "sinusoid", "--out", run, *settings)
    assert "is not empty; continue it with --resume" in message
    assert contents(run) == before


@pytest.mark.parametrize("extra", [["sinusoid"], ["--out", "elsewhere"]])
def test_resume_takes_no_experiment_and_no_folder(refused, trained: Path, extra) -> None:
    assert "--resume reads the experiment and folder" in refused(
        "train", "--resume", trained, *extra
    )


@pytest.mark.parametrize("device", ["tpu", "cuda:99", "cp u", "meta"])
def test_a_device_that_is_not_there_is_refused(
    refused, tmp_path: Path, trained: Path, settings, device: str
) -> None:
    out = tmp_path / "run"
    message = refused("train", "sinusoid", "--out", out, *settings, "--device", device)
    assert f"--device is '{device}'" in message
    assert not out.exists()
    assert f"--device is '{device}'" in refused("evaluate", trained, "--device", device)


def test_a_folder_below_a_file_is_refused(refused, tmp_path: Path, settings) -> None:
    (tmp_path / "file").write_text("mine")
    message = refused("train", "sinusoid", "--out", tmp_path / "file" / "run", *settings)
    assert str(tmp_path / "file") in message
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused(refused, tmp_path: Path, settings) -> None:
    tmp_path.chmod(0o500)
    try:
        message = refused("train", "sinusoid", "--out", tmp_path / "run", *settings)
    finally:
        tmp_path.chmod(0o700)
    assert "Permission denied" in message
    assert os.listdir(tmp_path) == []


def _limit_files(size: int) -> None:
    """Make writes beyond this size fail, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))


@pytest.fixture(scope="module")
def full_disk(shell, trained: Path, settings, tmp_path_factory: pytest.TempPathFactory):
    """A run and the output of `alfa train` on a disk without space for a checkpoint."""
    # The trained run has compiled and stored the kernels.
    assert trained.is_dir()
    out = tmp_path_factory.mktemp("full") / "run"
    command = ["train", "sinusoid", "--out", out, *settings, "--json"]
    return out, shell(*command, preexec_fn=lambda: _limit_files(4000))


def test_a_full_disk_is_told_in_one_sentence(full_disk) -> None:
    _, answer = full_disk
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("alfa: ")
    assert answer.err.count("\n") == 1
    assert "File too large" in answer.err


def test_a_full_disk_is_told_with_the_files_name(full_disk) -> None:
    out, answer = full_disk
    assert str(out) in answer.err


def test_a_disk_too_full_to_begin_leaves_no_files(
    refused, contents, tmp_path: Path, settings
) -> None:
    out = tmp_path / "run"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.getsignal(signal.SIGXFSZ)
    _limit_files(100)
    try:
        message = refused("train", "sinusoid", "--out", out, *settings, "--json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert "File too large" in message
    # A run that never started leaves only its lock.
    assert not out.exists() or set(contents(out)) <= {".lock"}


def test_a_disk_full_in_training_leaves_a_run_that_goes_on(
    alfa, full_disk, contents, trained: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(full_disk[0], tmp_path / "run"))
    whole = {"config.toml", "signature.json", "metrics.jsonl", "checkpoints", ".lock"}
    assert set(contents(path)) == whole
    assert alfa("train", "--resume", path).code == 0
    assert Run(path).metrics == Run(trained).metrics
    assert Run(path).result["test"] == Run(trained).result["test"]


def test_a_diverging_run_is_told_in_one_sentence(refused, tmp_path: Path, settings) -> None:
    command = ["train", "sinusoid", "--method", "maml", "--out", tmp_path / "run", *settings]
    message = refused(*command, "--json", "--set", "rule.learning_rate=1e30")
    assert "at iteration 0, with the rule sgd" in message


def test_an_interrupt_is_told_in_one_line(alfa, tmp_path: Path, monkeypatch, settings) -> None:
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("alfa.data.Sinusoids.episode", interrupt)
    run = tmp_path / "run"
    answer = alfa("train", "sinusoid", "--method", "maml", "--out", run, *settings)
    told = f"alfa: stopped; resume it with `alfa train --resume {run}`.\n"
    assert (answer.code, answer.out, answer.err) == (130, "", told)


def test_a_reader_that_leaves_early_is_no_error() -> None:
    code = "import sys; from alfa.cli.main import main; main(sys.argv[1:])"
    with subprocess.Popen(
        [sys.executable, "-c", code, "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        assert process.wait(timeout=60) in (1, 141)
        assert process.stderr.read() == b""


# --- output


def test_without_arguments_it_helps(alfa) -> None:
    answer = alfa()
    assert "Usage" in answer.out + answer.err
    assert not answer.err.startswith("alfa: Usage")


def test_version(alfa) -> None:
    answer = alfa("--version")
    assert (answer.code, answer.out, answer.err) == (0, f"alfa {package.__version__}\n", "")


def _commands() -> Iterator[tuple[list[str], Any]]:
    """The words of every command, and the command."""

    def below(words: list[str], command: Any) -> Iterator[tuple[list[str], Any]]:
        subcommands = getattr(command, "commands", {})
        if not subcommands:
            yield words, command
        for name, subcommand in subcommands.items():
            yield from below([*words, name], subcommand)

    return below([], typer.main.get_command(app))


COMMANDS = {" ".join(words): (words, command) for words, command in _commands()}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_it_understands(alfa, name: str) -> None:
    words, command = COMMANDS[name]
    printed = alfa(*words, "--help")
    assert printed.code == 0
    found = re.findall(r"^ *alfa (.*)$", command.help, flags=re.MULTILINE)
    examples = [shlex.split(example) for example in found]
    own = [example for example in examples if example[: len(words)] == words]
    assert own, "its help has no example of it"
    # Each example starts a line; typer dedents a block that directly follows the summary.
    starts = [line.strip()[:60] for line in printed.out.splitlines()]
    assert all(f"alfa {example}"[:60] in starts for example in found)
    for example in examples:
        named = max((n for n in COMMANDS if " ".join(example).startswith(n)), key=len)
        its_words, its_command = COMMANDS[named]
        context = its_command.make_context(named, example[len(its_words) :])
        _check_target(context.params)


def test_no_command_imports_the_module_of_another() -> None:
    modules = {command.callback.__module__ for _, command in COMMANDS.values()}
    for module in modules:
        source = Path(sys.modules[module].__file__).read_text()
        imported = {
            node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)
        }
        assert not (modules - {module}) & imported, module


def _check_target(params: dict[str, Any]) -> None:
    """Raise if an example of training has an unknown dataset, method, or setting."""
    target = params.get("target")
    if target is None or target.endswith(".toml") or "/" in target:
        return
    choices = {key: params.get(key) for key in ("method", "backbone", "way", "shot")}
    compose(target, **choices, overrides=params["settings"] or [])


def test_train_prints_json_and_nothing_else(alfa, tmp_path: Path, settings) -> None:
    out = tmp_path / "run"
    answer = alfa("train", "sinusoid", "--method", "maml", "--out", out, *settings, "--json")
    assert (answer.code, answer.err) == (0, "")
    assert _parse(answer.out) == _parse((out / "result.json").read_text())


def test_train_prints_a_table_and_tells_its_progress_elsewhere(
    alfa, tmp_path: Path, settings
) -> None:
    out = tmp_path / "my-run"
    answer = alfa("train", "sinusoid", "--method", "maml", "--out", out, *settings)
    assert answer.code == 0
    loss = Run(out).result["test"]["loss"]
    assert f"{loss:.4f}" in answer.out
    assert str(out) in answer.out
    assert [line.split(",")[0] for line in answer.err.splitlines()] == [
        "my-run: memory: store",
        "my-run: 5 of 20 it",
        "my-run: 10 of 20 it",
        "my-run: 15 of 20 it",
        "my-run: 20 of 20 it",
    ]


def test_the_run_folder_is_named_after_the_experiment(
    alfa, tmp_path: Path, monkeypatch, settings
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('tasks = {name = "sinusoid"}\nmodel = {name = "mlp"}\n')
    assert alfa("train", "mine.toml", *settings).code == 0
    assert (tmp_path / "runs" / "mine" / "result.json").is_file()


def test_the_seed_option_is_the_experiments_seed(alfa, tmp_path: Path, settings) -> None:
    one_iteration = ["--set", "outer.num_iterations=1", "--seed", "3"]
    command = ["train", "sinusoid", "--out", tmp_path / "run", *settings, *one_iteration]
    answer = alfa(*command, "--json")
    assert _parse(answer.out)["config"]["seed"] == 3


def test_evaluate_gives_the_figure_of_the_training(alfa, trained: Path) -> None:
    answer = alfa("evaluate", trained, "--num-tasks", "5", "--json")
    assert (answer.code, answer.err) == (0, "")
    found = _parse(answer.out)
    assert found.pop("tasks")["name"] == "sinusoid"
    assert found.pop("checkpoint") == "best"
    assert found == Run(trained).result["test"]


def test_evaluate_prints_a_sentence(alfa, trained: Path) -> None:
    answer = alfa("evaluate", trained, "--num-tasks", "5")
    test = Run(trained).result["test"]
    assert f"loss {test['loss']:.4f} +- {test['interval']:.4f}" in answer.out
    assert (answer.out.count("\n"), answer.err) == (1, "")


def test_evaluate_of_one_task_prints_valid_json(alfa, trained: Path) -> None:
    answer = alfa("evaluate", trained, "--num-tasks", "1", "--json")
    assert _parse(answer.out)["num_tasks"] == 1


@pytest.mark.parametrize(
    "options",
    [
        ["--split", "val"],
        ["--seed", "1"],
        ["--num-steps", "2"],
        ["--num-steps", "0"],
        ["--set", "tasks.num_support=5"],
    ],
)
def test_options_of_evaluate_change_the_figure(alfa, trained: Path, options: list[str]) -> None:
    found = _parse(alfa("evaluate", trained, "--num-tasks", "5", "--json", *options).out)
    assert found["loss"] != Run(trained).result["test"]["loss"]


def test_evaluate_leaves_the_run_as_it_is(alfa, contents, run: Path) -> None:
    before = contents(run)
    assert alfa("evaluate", run, "--num-tasks", "3", "--checkpoint", "last").code == 0
    assert contents(run) == before


def test_resume_of_a_complete_run_gives_the_same_result(alfa, run: Path) -> None:
    before = Run(run).result
    answer = alfa("train", "--resume", run, "--json")
    assert answer.code == 0
    assert _parse(answer.out) == before


def test_resume_can_extend_a_run(alfa, run: Path) -> None:
    answer = alfa("train", "--resume", run, "--set", "outer.num_iterations=25", "--json")
    assert _parse(answer.out)["num_iterations"] == 25
    assert [record["iteration"] for record in Run(run).metrics] == [5, 10, 15, 20, 25]


# --- start-up time


def _within(seconds: float, measure) -> bool:
    """Return True if the best of three measurements is below the limit."""
    return any(measure() < seconds for _ in range(3))


def test_help_answers_within_a_second() -> None:
    code = "from alfa.cli.main import main; main(['--help'])"

    def measure() -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        return time.perf_counter() - began

    assert _within(1, measure)


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["--version"]])
def test_help_does_not_import_torch(arguments: list[str]) -> None:
    code = f"""
import sys
from alfa.cli.main import main
try:
    main({arguments!r})
finally:
    heavy = {{"torch", "numpy", "numba", "matplotlib"}} & set(sys.modules)
    print("heavy:", *sorted(heavy), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "heavy:"


def test_import_costs_little_beyond_torch() -> None:
    code = """
import time
import torch
began = time.perf_counter()
import alfa
print(time.perf_counter() - began)
"""

    def measure() -> float:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        return float(done.stdout)

    assert _within(0.3, measure)
