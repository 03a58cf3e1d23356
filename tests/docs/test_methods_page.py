"""The page on methods lists every method with the parts of its recipe."""

from __future__ import annotations

from pathlib import Path

from alfa.methods import METHODS, Method

PAGE = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()


def row(method: Method) -> str:
    """Return the row of a method: its title, name, and parts."""
    base = method.init.get("base")
    init = f"{method.init['name']} of {base['name']}" if base else method.init["name"]
    adapt = method.init.get("adapt")
    init += f" ({', '.join(adapt)})" if adapt else ""
    num_steps = method.settings.get("inner", {}).get("num_steps", 5)
    rule = method.rule["name"] if num_steps else "-"
    objective = (method.objective or {"name": "query-loss"})["name"]
    head = method.head["name"] if method.head else "-"
    cells = [method.title, f"`{method.name}`", init, rule, str(num_steps), objective, head]
    return f"| {' | '.join(cells)} |"


def test_the_page_lists_the_parts_of_every_method() -> None:
    lines = PAGE.splitlines()
    missing = [row(method) for method in METHODS.values() if row(method) not in lines]
    assert missing == []


def test_every_method_has_a_reference_on_the_page() -> None:
    assert [m.name for m in METHODS.values() if m.reference not in PAGE.replace("\n  ", " ")] == []
