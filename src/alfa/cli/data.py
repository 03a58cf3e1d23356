"""`alfa data`: list, prepare, verify and download datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alfa.cli._options import Json

if TYPE_CHECKING:
    from alfa.data import Store
    from alfa.data.sources import Source

app = typer.Typer(
    help="Get datasets of images, and prepare them for training.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Name = Annotated[str, typer.Argument(help="A dataset that `alfa data list` shows.")]
Place = Annotated[
    Path | None,
    typer.Argument(help="Its folder or archive; by default where `download` puts it."),
]
Size = Annotated[
    int | None, typer.Option(min=1, help="The side of the images; by default the dataset's own.")
]
Called = Annotated[str | None, typer.Option("--name", help="What to call it from now on.")]
OnProblem = Annotated[
    str, typer.Option(help="stop, or skip the images and classes that cannot be used.")
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="How many decode side by side; by default one for every core."),
]
Force = Annotated[bool, typer.Option("--force", help="Make it anew if it is there already.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--set", help="An option of the dataset, such as `split=ratio`."),
]
# Notes on images that a summary shows.
_SHOWN = 5


@app.command("list")
def list_datasets(as_json: Json = False) -> None:
    """Show the known datasets, and which of them are prepared.

    Examples:

        alfa data list

        alfa data list --json
    """
    from rich.console import Console
    from rich.table import Table

    from alfa.data import data_folder

    rows = _list()
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("name", "dataset", "side", "classes", "images", "to get it", "prepared"):
        table.add_column(header, no_wrap=header in ("name", "classes", "to get it"))
    for row in rows:
        published = row["published"].values()
        table.add_row(
            row["name"],
            row["title"],
            _text(row["size"]),
            "/".join(str(split["classes"]) for split in published) or "-",
            _total([split["images"] for split in published]),
            row["get"].replace(" (untried)", "*"),
            ", ".join(str(store["size"]) for store in row["prepared"]) or "-",
        )
    Console().print(table)
    typer.echo(
        "\nclasses of train/val/test and images as published; prepared: the sides that are there"
        f"\n* the address could not be tried when this was written\nkept in {data_folder()}"
    )


@app.command()
def prepare(
    name: Name,
    path: Place = None,
    size: Size = None,
    called: Called = None,
    on_problem: OnProblem = "stop",
    workers: Workers = None,
    force: Force = False,
    settings: Options = None,
    as_json: Json = False,
) -> None:
    """Bring a dataset into the form that training reads, once.

    A run that was stopped at any moment goes on where it was.

    Examples:

        alfa data prepare cifar-fs

        alfa data prepare cub ~/CUB_200_2011.tgz --size 84 --on-problem skip

        alfa data prepare folder ~/pets --name pets --set split=ratio --set seed=1
    """
    from alfa.cli._prepare import prepare_with_progress

    source = _source(name, settings or [])
    store, notes = prepare_with_progress(
        source,
        _default_path(name) if path is None else path,
        name=called or name,
        size=size,
        on_problem=on_problem,
        workers=workers,
        force=force,
        quiet=as_json,
    )
    summary = _summary(store, source)
    if as_json:
        typer.echo(json.dumps({**summary, "notes": notes}, indent=2))
    else:
        _print(summary)


@app.command()
def verify(name: Name, size: Size = None, as_json: Json = False) -> None:
    """Compare every image of a prepared dataset with its checksum.

    Examples:

        alfa data verify cifar-fs

        alfa data verify cub --size 84 --json
    """
    from alfa.cli.progress import meter
    from alfa.data import open_store
    from alfa.data.sources import SOURCES
    from alfa.errors import DataError

    store = open_store(name, size=size)
    total = store.index.shape[0]
    with meter(name, quiet=as_json) as shown:
        faults = store.verify(lambda done: shown.update(name, done, total, unit="images"))
    source = SOURCES.get(name) if name in SOURCES else None
    summary = {**_summary(store, source), "faults": faults}
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
        raise typer.Exit(2 if faults else 0)
    if faults:
        listed = "".join(f"\n  - {fault}" for fault in faults)
        anew = f"`alfa data prepare {name} --size {store.index.size} --force`"
        how = anew if name in SOURCES else "the command that prepared it, and --force"
        raise DataError(
            f"the prepared dataset {store.path} is damaged; make it anew with {how}:{listed}"
        )
    _print(summary)
    typer.echo(f"all {len(store.index.classes)} checksums are right")


@app.command()
def download(
    name: Name,
    to: Annotated[
        Path | None, typer.Option(help="A folder; by default where `prepare` looks for it.")
    ] = None,
) -> None:
    """Download a dataset, or say what must be fetched by hand.

    A download that was cut off goes on where it was.

    Examples:

        alfa data download omniglot

        alfa data download cub --to /data/cub
    """
    from alfa.cli.progress import meter
    from alfa.data import download as run
    from alfa.data import raw_dataset_path
    from alfa.data.sources import SOURCES

    SOURCES.get(name)
    folder = to or raw_dataset_path(name)
    with meter(name) as shown:
        files = run(
            name,
            folder,
            on_progress=lambda file, done, total: shown.update(file, done, total, unit="bytes"),
        )
    for file in files:
        typer.echo(f"downloaded: {file}")
    place = f" {folder}" if to else ""
    typer.echo(f"next: alfa data prepare {name}{place}")


def _default_path(name: str) -> Path:
    """The folder that `alfa data download` puts a dataset into."""
    from alfa.data import raw_dataset_path
    from alfa.data.sources import SOURCES
    from alfa.errors import DataError

    path = raw_dataset_path(name)
    if not path.exists():
        source = SOURCES.get(name)
        known = source.downloads or source.manual_download
        get = f"get {name} with `alfa data download {name}`, or " if known else ""
        raise DataError(
            f"there is no {path}; {get}say where it is: `alfa data prepare {name} PATH`."
        )
    return path


def _source(name: str, settings: list[str]) -> Source:
    import tomllib

    from pydantic import TypeAdapter, ValidationError

    from alfa.data.sources import SOURCES
    from alfa.errors import ConfigError, did_you_mean

    known, options = SOURCES.options(name), {}
    for setting in settings:
        key, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or not key:
            raise ConfigError(f"--set takes key=value, such as split=ratio, but got {setting!r}.")
        if key not in known:
            listed = f"it has {', '.join(known)}" if known else "it has none"
            raise ConfigError(f"{name} has no option {key!r}; {listed}.{did_you_mean(key, known)}")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except (tomllib.TOMLDecodeError, RecursionError):
            value = text
        try:
            options[key] = TypeAdapter(known[key].annotation).validate_python(value)
        except ValidationError as error:
            message = error.errors()[0]["msg"].removeprefix("Input should be ")
            raise ConfigError(f"--set {setting}: {key} must be {message}.") from None
    return SOURCES.get(name)(**options)


def _list() -> list[dict[str, Any]]:
    """All known datasets, and all prepared ones."""
    from alfa.data import GENERATED_DATASETS, prepared, store_path
    from alfa.data.sources import SOURCES

    stores = prepared()
    rows = []
    for name in [*SOURCES, *sorted({*GENERATED_DATASETS, *stores} - set(SOURCES))]:
        row: dict[str, Any] = {
            "name": name,
            "title": "",
            "size": None,
            "published": {},
            "get": "your own",
            "addresses": [],
            "prepared": [
                {"size": size, "path": str(store_path(name, size))} for size in stores.get(name, [])
            ],
        }
        if name in GENERATED_DATASETS:
            free = ", of any size and place" if GENERATED_DATASETS[name].roam else ""
            row |= {"title": f"random characters{free}", "get": "generated"}
        elif name in SOURCES:
            source = SOURCES.get(name)
            files = source.downloads
            untried = "" if all(file.tried for file in files) else " (untried)"
            by_hand = "your own" if source.manual_download is None else "by hand"
            row |= {
                "title": source.title,
                "size": source.size,
                "published": _counts(source.published),
                "get": f"download{untried}" if files else by_hand,
                "addresses": [file.url for file in files],
            }
        rows.append(row)
    return rows


def _summary(store: Store, source: type[Source] | Source | None) -> dict[str, Any]:
    index = store.index
    return {
        "dataset": index.dataset,
        "path": str(store.path),
        "size": index.size,
        "num_channels": index.num_channels,
        "splits": _counts(index.counts()),
        "published": _counts(source.published if source is not None else {}),
        "left_out": list(index.left_out),
        "changed": list(index.changed),
    }


def _counts(counts: Any) -> dict[str, dict[str, int | None]]:
    return {
        split: {"classes": classes, "images": images} for split, (classes, images) in counts.items()
    }


def _print(summary: dict[str, Any]) -> None:
    """Print the counts beside the published ones, and the images left out or changed."""
    from rich.console import Console
    from rich.table import Table

    from alfa.data import SPLITS

    found, published = summary["splits"], summary["published"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(summary["dataset"], no_wrap=True)
    headers = ["classes", "images", *(["published classes", "images"] if published else [])]
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    for split in [split for split in SPLITS if split in found or split in published]:
        cells = [found.get(split, {"classes": 0, "images": 0})]
        cells += [published.get(split, {})] if published else []
        table.add_row(split, *(_text(cell.get(k)) for cell in cells for k in ("classes", "images")))
    Console().print(table)
    for title, key in (("left out", "left_out"), ("worth knowing", "changed")):
        lines = summary[key]
        if lines:
            shown = "".join(f"\n  - {line}" for line in lines[:_SHOWN])
            more = f"\n  and {len(lines) - _SHOWN} more, in index.json" if lines[_SHOWN:] else ""
            typer.echo(f"{title}: {len(lines)}{shown}{more}")
    typer.echo(f"\nprepared: {summary['path']}")


def _total(counts: list[int | None]) -> str:
    """The sum, if all are known."""
    known = [count for count in counts if count is not None]
    return _text(sum(known) if known and len(known) == len(counts) else None)


def _text(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"
