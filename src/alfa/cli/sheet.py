"""`alfa data show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def show(
    name: Annotated[str, typer.Argument(help="A prepared dataset, or `strokes`.")],
    out: Annotated[
        Path | None, typer.Option(help="The picture; by default the dataset's name and .png.")
    ] = None,
    size: Annotated[int | None, typer.Option(min=1, help="The side of the images.")] = None,
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    way: Annotated[int | None, typer.Option(min=1, help="Classes of a task; by default 5.")] = None,
    shot: Annotated[
        int | None, typer.Option(min=1, help="Support images of a class; by default 5.")
    ] = None,
    num_query: Annotated[
        int | None, typer.Option(min=1, help="Queries of a class; by default 15.")
    ] = None,
    episode: Annotated[int, typer.Option(min=0, help="Which episode.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Decides the episodes.")] = 0,
    varied: Annotated[
        bool,
        typer.Option("--varied", help="Classes and images as Meta-Dataset draws them."),
    ] = False,
) -> None:
    """Draw one episode: what a model learns from, and what it is judged on.

    Examples:

        alfa data show strokes

        alfa data show cub --split val --shot 1 --out cub.png

        alfa data show md-omniglot --varied
    """
    from alfa.cli.plot import check_outputs
    from alfa.data import SPLITS, FewShot, Varied, open_images, related_in
    from alfa.errors import ConfigError, check_choice
    from alfa.report.sheet import contact_sheet

    check_choice("--split", split, SPLITS)
    path = out or Path(f"{name}.png")
    check_outputs([path], (".png",))
    sizes = {"--way": way, "--shot": shot, "--num-query": num_query}
    given = [option for option, value in sizes.items() if value is not None]
    if varied and given:
        raise ConfigError(
            f"{' and '.join(given)} cannot be given with --varied, which draws the sizes of a "
            "task; leave one of them out."
        )
    images = open_images(name, size=size)
    tasks: FewShot | Varied
    if varied:
        tasks = Varied([images], related=related_in(images))
    else:
        tasks = FewShot(images, way=way or 5, shot=shot or 5, num_query=num_query or 15)
    contact_sheet(tasks, path, split=split, index=episode, seed=seed)  # type: ignore[arg-type]
    typer.echo(f"written: {path}")
