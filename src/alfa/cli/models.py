"""`alfa models`: list and describe the pretrained models."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alfa.cli._options import Json

if TYPE_CHECKING:
    from alfa.runs import ModelCard

app = typer.Typer(
    help="List and describe the pretrained models of the package.",
    rich_markup_mode="markdown",
    invoke_without_command=True,
)


@app.callback()
def models(context: typer.Context, as_json: Json = False) -> None:
    """List the pretrained models of the package.

    Use a name in place of a run folder: `alfa serve strokes`.

    Examples:

        alfa models

        alfa models show cifar-fs
    """
    from rich.console import Console
    from rich.table import Table

    from alfa.runs import model_card, model_names

    if context.invoked_subcommand is not None:
        return
    cards = [model_card(name) for name in model_names()]
    if as_json:
        typer.echo(json.dumps([_content(card) for card in cards], indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("name", "training data", "expected accuracy", "license", "size"):
        table.add_column(header, overflow="fold")
    for card in cards:
        best = card.expected[0]
        accuracy = f"{100 * best.accuracy:.1f} +- {100 * best.interval:.1f} % ({best.tasks})"
        table.add_row(card.name, card.data, accuracy, card.license, _size(card))
    Console().print(table)
    typer.echo("\n`alfa models show NAME` prints the card of a model.")


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A model that `alfa models` lists.")],
    as_json: Json = False,
) -> None:
    """Print the card of a pretrained model.

    Examples:

        alfa models show cifar-fs

        alfa models show strokes --json
    """
    from alfa.runs import model_card

    card = model_card(name)
    if as_json:
        typer.echo(json.dumps(_content(card), indent=2))
        return
    rows = {
        "training data": card.data,
        "method": card.method,
        "intended use": card.use,
        "limits": card.limits,
        "license": card.license,
        "size": _size(card),
        "trained by": card.command,
        "folder": str(card.path),
    }
    typer.echo(f"{card.name}: {card.title}\n")
    for key, value in rows.items():
        typer.echo(f"{key + ':':<16}{value}")
    typer.echo("\naccuracy on unseen classes, with the 95 % interval over tasks:")
    for row in card.expected:
        accuracy = f"{100 * row.accuracy:.1f} +- {100 * row.interval:.1f} %"
        typer.echo(f"  {accuracy:<16} {row.tasks}, {row.batch_norm} batch normalization")


def _content(card: ModelCard) -> dict[str, Any]:
    return {**asdict(card), "path": str(card.path), "num_bytes": card.num_bytes}


def _size(card: ModelCard) -> str:
    return f"{card.num_bytes / 1e6:.2f} MB"
