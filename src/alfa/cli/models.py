"""`alfa models`: list and describe the pretrained models."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from typer import Argument

from alfa.cli import _options as opts
from alfa.cli import lazy
from alfa.cli.show import accuracy_text, print_json, print_table

app = typer.Typer(rich_markup_mode="markdown", invoke_without_command=True)


@app.callback()
def models(context: typer.Context, as_json: opts.Json = False) -> None:
    """List the pretrained models.

    Commands accept the name of a model in place of a run folder.

    Examples:

        alfa models
        alfa models show cifar-fs
        alfa serve strokes
    """
    if context.invoked_subcommand is not None:
        return
    cards = [lazy.runs.model_card(name) for name in lazy.runs.model_names()]
    if as_json:
        print_json([_content(card) for card in cards])
        return
    headers = ("name", "training data", "expected accuracy", "license", "size")
    rows = []
    for card in cards:
        best = card.expected[0]
        accuracy = f"{accuracy_text(best.accuracy, best.interval)} ({best.tasks})"
        rows.append((card.name, card.data, accuracy, card.license, _size(card)))
    print_table(headers, rows, justify="left", wraps=headers[1:4])
    typer.echo("\n`alfa models show NAME` prints the card of a model.")


@app.command("show")
def show(
    name: Annotated[str, Argument(help="Model that `alfa models` lists.")],
    as_json: opts.Json = False,
) -> None:
    """Print the card of a pretrained model.

    The card contains its training data, license, and expected accuracy.

    Examples:

        alfa models show cifar-fs
        alfa models show strokes --json
    """
    card = lazy.runs.model_card(name)
    if as_json:
        print_json(_content(card))
        return
    typer.echo(f"{card.name}: {card.title}\n")
    rows = [
        ("training data", card.data),
        ("method", card.method),
        ("intended use", card.use),
        ("limits", card.limits),
        ("license", card.license),
        ("size", _size(card)),
        ("training", card.command),
        ("folder", str(card.path)),
    ]
    print_table(("", ""), rows, justify="left")
    typer.echo("\naccuracy on unseen classes, with the 95 % interval over tasks:\n")
    print_table(
        ("accuracy", "tasks", "batch normalization"),
        [(accuracy_text(e.accuracy, e.interval), e.tasks, e.batch_norm) for e in card.expected],
        justify="left",
    )


def _content(card: lazy.runs.ModelCard) -> dict[str, Any]:
    return {**asdict(card), "path": str(card.path), "num_bytes": card.num_bytes}


def _size(card: lazy.runs.ModelCard) -> str:
    return f"{card.num_bytes / 1e6:.2f} MB"
