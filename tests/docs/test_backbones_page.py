"""The page on pretrained backbones lists the facts of their cards."""

from __future__ import annotations

from pathlib import Path

from alfa.backbones import backbone_cards

PAGE = (Path(__file__).parents[2] / "docs" / "backbones.md").read_text()


def _values(values: tuple[float, ...]) -> str:
    return ", ".join(map(str, values))


def test_the_page_lists_every_backbone() -> None:
    rows = [line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| `")]
    for card in backbone_cards():
        prepared = card.preprocessing
        facts = (
            *(f"| `{card.name}`", str(card.num_features), f"{card.num_parameters / 1e6:.1f} M"),
            *(f"{prepared.size} pixels", f"{card.top_1} %", card.license, f"`{card.install}` |"),
        )
        assert " | ".join(facts) in PAGE
        steps = (
            *(f"| `{card.name}`", str(prepared.resize), str(prepared.size), prepared.resample),
            *(_values(prepared.mean), f"{_values(prepared.std)} |"),
        )
        assert " | ".join(steps) in PAGE
        # The facts, the preprocessing, and the time.
        assert rows.count(f"| `{card.name}`") == 3
