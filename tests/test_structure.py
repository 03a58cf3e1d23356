"""No code branches on the name or type of a method, rule, init, objective, or head."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import alfa
from alfa.inits import INITS, Init
from alfa.methods import METHODS
from alfa.models import HEADS, Head
from alfa.objectives import OBJECTIVES, Objective
from alfa.rules import RULES, Rule

SOURCE = Path(alfa.__file__).parent
KINDS = {"rules": (RULES, Rule), "inits": (INITS, Init), "objectives": (OBJECTIVES, Objective)}
HEAD_KINDS = {"models": (HEADS, Head)}
NAMES = {*METHODS, *(name for registry, _ in KINDS.values() for name in registry), *HEADS}

# Tables of data that refer to parts by name, and the reason.
DATA = {
    "methods": "recipes name their parts",
    "paper/_tables.py": "the definitions of the cells of the paper's tables",
}
# Single places, as file and text of the expression, and the reason.
_RULE, _OWN_RULE = "isinstance(rule, ALFA)", "isinstance(self.learner.rule, ALFA)"
ALLOWED = {
    ("bench/plain.py", _RULE): "plain torch for the two rules of the workloads",
    ("bench/plain.py", _OWN_RULE): "plain torch for the two rules of the workloads",
    ("bench/worker.py", "engine in ('alfa', 'limit')"): "an engine, not a rule",
    ("bench/workloads.py", "engine != 'alfa'"): "an engine, not a rule",
    ("objectives/_latent.py", "isinstance(learner.init, LatentHead)"): "an error for other inits",
    ("optim/_pretraining.py", "self.optimizer == 'adam'"): "an outer optimizer, not a rule",
    ("optim/_pretraining.py", "self.optimizer != 'sgd'"): "an outer optimizer, not a rule",
    ("build/_describe.py", "name.partition('.')[0] != 'alfa'"): "the package, not a rule",
}
# Assigned tables of data, as file and variable, and the reason.
TABLES = {
    ("cli/demo.py", "PUBLISHED"): "published results by method",
    ("config/_parts.py", "_ALIASES"): "names in the literature, for error messages",
    ("paper/_experiments.py", "_NUM_ONE_SHOT_TASKS"): "published settings by method",
    ("paper/_other_methods.py", "_SETTINGS"): "published settings by method",
}

TRAINED = {"startswith", "endswith", "removeprefix", "removesuffix"}


def concrete_classes(base: type) -> set[str]:
    """Return the names of the package's subclasses of a base class."""
    found = set()
    for kind in base.__subclasses__():
        if kind.__module__.startswith("alfa."):
            found |= {kind.__name__} | concrete_classes(kind)
        else:
            continue
    return found


CLASSES = {
    name: package
    for package, (_, base) in {**KINDS, **HEAD_KINDS}.items()
    for name in concrete_classes(base)
}


def strings(node: ast.AST) -> Iterator[str]:
    """Yield the string constants of an expression, including those in a tuple, list, or set."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for element in node.elts:
            yield from strings(element)


def is_name(text: str) -> bool:
    return text in NAMES or any(
        # A prefix or suffix that separates the parts of a method's name
        text.strip("+") == part and text != part
        for name in METHODS
        for part in name.split("+")
    )


def named_in(node: ast.AST) -> Iterator[str]:
    """Yield the registered names that a node branches on."""
    match node:
        case ast.Compare():
            for side in (node.left, *node.comparators):
                yield from filter(is_name, strings(side))
        case ast.MatchValue():
            yield from filter(is_name, strings(node.value))
        case ast.Call(func=ast.Attribute(attr=attr)) if attr in TRAINED:
            for argument in node.args:
                yield from filter(is_name, strings(argument))
        case ast.Dict():
            keys = [key for key in node.keys if key is not None]
            named = [text for key in keys for text in strings(key) if text in NAMES]
            # A single key may be a keyword, such as {"learned": ...}.
            if len(named) > 1:
                yield from named


def types_in(node: ast.AST) -> Iterator[str]:
    """Yield the concrete classes whose instances a node tells apart."""
    match node:
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
            yield from class_names(kinds)
        case ast.Compare() if any(is_type_call(x) for x in (node.left, *node.comparators)):
            for side in (node.left, *node.comparators):
                yield from class_names(side)
        case ast.MatchClass():
            yield from class_names(node.cls)


def is_type_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", None) == "type"


def class_names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            if name in CLASSES:
                yield name
        case ast.Tuple(elts=elements):
            for element in elements:
                yield from class_names(element)
        case ast.BinOp(left=left, right=right):
            yield from class_names(left)
            yield from class_names(right)


def assigned_name(node: ast.AST) -> str | None:
    """Return the name of the variable that a statement assigns."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target.id if isinstance(target, ast.Name) else None


def violations(source: str, path: str) -> list[str]:
    """Return the places of a file that branch on a name or a concrete class."""
    package = path.partition("/")[0]
    if any(path == place or path.startswith(f"{place}/") for place in DATA):
        return []
    found = []
    tree = ast.parse(source)
    tables = [n for n in ast.walk(tree) if (path, assigned_name(n)) in TABLES]
    skipped = {id(part) for table in tables for part in ast.walk(table)}
    for node in ast.walk(tree):
        text = ast.unparse(node) if isinstance(node, ast.expr | ast.pattern) else ""
        if (path, text) in ALLOWED or id(node) in skipped:
            continue
        types = [name for name in types_in(node) if CLASSES[name] != package]
        found += [f"{path}:{node.lineno}: {name!r} in {text}" for name in (*named_in(node), *types)]
    return found


def test_no_code_branches_on_the_name_or_type_of_a_part() -> None:
    found = [
        violation
        for path in sorted(SOURCE.rglob("*.py"))
        for violation in violations(path.read_text(), path.relative_to(SOURCE).as_posix())
    ]
    assert not found, "\n".join(found)


def test_every_exception_is_needed() -> None:
    for place in DATA:
        assert (SOURCE / place).exists(), f"{place} is gone; remove it from DATA"
    for path, name in TABLES:
        nodes = ast.walk(ast.parse((SOURCE / path).read_text()))
        assert name in map(assigned_name, nodes), f"{name} is gone; remove it from TABLES"
    for path, text in ALLOWED:
        nodes = ast.walk(ast.parse((SOURCE / path).read_text()))
        texts = {ast.unparse(node) for node in nodes if isinstance(node, ast.expr | ast.pattern)}
        assert text in texts, f"{text} is no longer in {path}; remove it from ALLOWED"


@pytest.mark.parametrize(
    "code",
    [
        "if name == 'alfa': pass",
        "if 'maml' != name: pass",
        "if name in ('sgd', 'x'): pass",
        "if name not in {'prototype-head'}: pass",
        "match name:\n case 'sgd': pass",
        "match name:\n case 'x' | 'query-loss': pass",
        "name.startswith('alfa+')",
        "name.endswith('+l2f')",
        "name.removeprefix('alfa+')",
        "make = {'alfa': 1, 'sgd': 2}[name]",
        "isinstance(rule, ALFA)",
        "isinstance(rule, (int, rules.SGD))",
        "isinstance(init, Attenuated | int)",
        "type(init) is LearnedInit",
        "match rule:\n case SGD(): pass",
    ],
)
def test_a_branch_is_found(code: str) -> None:
    assert violations(code, "training/_loop.py")


@pytest.mark.parametrize(
    "code",
    [
        "if name == 'other': pass",
        "isinstance(rule, Rule)",
        "isinstance(model, Headed)",
        "{'name': 'alfa'}",
        "Part(name='learned')",
        "start = {'source': 'generated', 'start': 0.1}",
    ],
)
def test_other_code_is_allowed(code: str) -> None:
    assert not violations(code, "training/_loop.py")
