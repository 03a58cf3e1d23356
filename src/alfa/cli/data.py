"""`alfa data`: list, prepare, verify, download, and draw datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from alfa.cli import _options as opts
from alfa.cli import lazy
from alfa.cli.image_folder import prepare_with_progress
from alfa.cli.progress import meter
from alfa.cli.show import print_json, print_list, print_table
from alfa.cli.start import open_best
from alfa.errors import ConfigError, DataError, did_you_mean

app = typer.Typer(
    help="Download image datasets, and prepare them for training.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Name = Annotated[str, Argument(help="Dataset, as listed by `alfa data list`.")]
Size = Annotated[int | None, Option(min=1, help="Image side in pixels; defaults to the dataset's.")]


@app.command("list")
def list_datasets(as_json: opts.Json = False) -> None:
    """List the known datasets, and show which are prepared.

    Examples:

        alfa data list
    """
    datasets = _datasets()
    if as_json:
        print_json(datasets)
        return
    rows = []
    for dataset in datasets:
        published = dataset["published"].values()
        classes = "/".join(str(split["classes"]) for split in published) or "-"
        counts = [split["images"] for split in published]
        images = "-" if None in counts or not counts else f"{sum(counts):,}"
        source = dataset["get"].replace(" (untried)", "*")
        prepared = ", ".join(str(store["size"]) for store in dataset["prepared"]) or "-"
        facts = [dataset["name"], dataset["title"], _text(dataset["size"])]
        rows.append([*facts, classes, images, source, prepared])
    headers = ("name", "dataset", "side", "classes", "images", "source", "prepared")
    print_table(headers, rows, justify="left", wraps=("dataset", "side", "images", "prepared"))
    typer.echo(
        "\nclasses (train/val/test) and images: as published; prepared: image sides\n"
        f"* untested download address\ndata folder: {lazy.data.data_folder()}"
    )


@app.command()
def prepare(
    name: Name,
    path: Annotated[Path | None, Argument(help="Folder or archive of the dataset.")] = None,
    size: Size = None,
    prepared_name: Annotated[str | None, Option("--name", help="New name of the dataset.")] = None,
    on_problem: opts.OnProblem = "stop",
    workers: Annotated[int | None, Option(min=1, help="Processes; defaults to all cores.")] = None,
    force: Annotated[bool, Option("--force", help="Replace a prepared dataset.")] = False,
    settings: Annotated[
        list[str] | None, Option("--set", help="Option of the dataset, such as `split=ratio`.")
    ] = None,
    as_json: opts.Json = False,
) -> None:
    """Convert a dataset into the format for training.

    PATH defaults to the folder of `download`. Run an interrupted command again to continue.

    Examples:

        alfa data prepare cifar-fs
        alfa data prepare cub ~/CUB_200_2011.tgz --size 84 --on-problem skip
        alfa data prepare folder ~/pets --name pets --set split=ratio --set seed=1
    """
    source = _source(name, settings or [])
    store, notes = prepare_with_progress(
        source,
        _default_path(name) if path is None else path,
        name=prepared_name or name,
        size=size,
        on_problem=on_problem,
        workers=workers,
        force=force,
        quiet=as_json,
    )
    summary = _summary(store, source)
    if as_json:
        print_json({**summary, "notes": notes})
    else:
        _print(summary)


@app.command()
def verify(name: Name, size: Size = None, as_json: opts.Json = False) -> None:
    """Verify the checksums of a prepared dataset.

    Names the damaged classes, and then exits with code 2.

    Examples:

        alfa data verify cifar-fs
        alfa data verify cub --size 84 --json
    """
    store, sources = lazy.data.open_store(name, size=size), lazy.data.SOURCES
    total = store.index.shape[0]
    with meter(name, quiet=as_json) as shown:
        faults = store.verify(lambda done: shown.update(name, done, total, unit="images"))
    summary = _summary(store, sources.get(name) if name in sources else None)
    if as_json:
        print_json({**summary, "faults": faults})
        raise typer.Exit(2 if faults else 0)
    if faults:
        listed = "".join(f"\n  - {fault}" for fault in faults)
        known = f"`alfa data prepare {name} --size {store.index.size} --force`"
        fix = known if name in sources else "the command that prepared it with --force"
        raise DataError(f"the prepared dataset {store.path} is damaged; run {fix}:{listed}")
    _print(summary)
    typer.echo(f"all {len(store.index.classes)} checksums are correct")


@app.command()
def download(
    name: Name,
    to: Annotated[Path | None, Option(help="Folder; defaults to the one `prepare` reads.")] = None,
) -> None:
    """Download a dataset, or explain how to get it manually.

    If the command is interrupted, run it again to continue.

    Examples:

        alfa data download omniglot
        alfa data download cub --to /data/cub
    """
    lazy.data.SOURCES.get(name)
    with meter(name) as shown:
        files = lazy.data.download(
            name,
            to or lazy.data.raw_dataset_path(name),
            on_progress=lambda file, done, total: shown.update(file, done, total, unit="bytes"),
        )
    for file in files:
        typer.echo(f"downloaded: {file}")
    typer.echo(f"next: alfa data prepare {name}{f' {to}' if to else ''}")


@app.command()
def show(
    source: Annotated[str, Argument(help="Prepared or generated dataset, or run folder.")],
    out: Annotated[Path | None, Option(help="PNG file; defaults to the name of SOURCE.")] = None,
    dataset: Annotated[str | None, Option(help="For a run: use another dataset.")] = None,
    size: Annotated[int | None, Option(min=1, help="Prepared size of the dataset.")] = None,
    split: opts.Split = "test",
    way: opts.Way = None,
    shot: opts.Shot = None,
    num_query: opts.NumQuery = None,
    episode: Annotated[int, Option(min=0, help="Index of the episode.")] = 0,
    seed: Annotated[int | None, Option(min=0, help="Seed; defaults to the run's or 0.")] = None,
    varied: Annotated[bool, Option("--varied", help="Sample sizes like Meta-Dataset.")] = False,
) -> None:
    """Draw one episode of a dataset: its support set and its queries.

    For a run, the episode comes from its tasks, and each query shows the class that the adapted
    model predicts. By default, a task of a dataset has 5 classes with 5 support images and 15
    queries each. A dataset takes precedence over a run folder of the same name; write `./NAME` for
    the folder.

    Examples:

        alfa data show strokes
        alfa data show cub --split val --shot 1 --out cub.png
        alfa data show md-omniglot --varied
        alfa data show runs/cifar --dataset cub --episode 3 --out cub.png
    """
    from alfa.report.episode_figure import episode_figure

    opts.check_choices(split=split)
    path = out or Path(f"{Path(source).resolve().name}.png")
    opts.check_outputs([path], (".png",))
    sizes = {"way": way, "shot": shot, "num_query": num_query}
    given = [opts.flag(name) for name, value in sizes.items() if value is not None]
    if varied and given:
        raise ConfigError(
            f"--varied samples the task sizes, so it cannot be combined with {' and '.join(given)}."
        )
    data = lazy.data
    options: dict[str, Any] = {"split": split, "index": episode}
    is_dataset = source in {*data.GENERATED_DATASETS, *data.prepared()}
    if not is_dataset and lazy.runs.RunFiles(source).exists:
        if varied:
            raise ConfigError("--varied applies only to datasets; omit it for a run.")
        run, learner, tasks = open_best(Path(source), dataset, size, **sizes)
        if not isinstance(tasks, data.FewShot | data.Varied):
            raise ConfigError(
                f"{source} was not trained on images; use `alfa plot fit` for curves."
            )
        options["seed"] = run.experiment.seed if seed is None else seed
        options |= _predictions(learner, tasks, **options)
    elif dataset is not None:
        raise ConfigError(f"--dataset applies only to runs, but {source} is not a run; omit it.")
    else:
        images = data.open_images(source, size=size)
        options["seed"] = seed or 0
        if varied:
            tasks = data.Varied([images], related=data.related_in(images))
        else:
            tasks = data.FewShot(images, way=way or 5, shot=shot or 5, num_query=num_query or 15)
    episode_figure(tasks, path, **options)
    typer.echo(f"written: {path}")


def _default_path(name: str) -> Path:
    """Return the folder into which `alfa data download` saves a dataset."""
    path = lazy.data.raw_dataset_path(name)
    if not path.exists():
        source = lazy.data.SOURCES.get(name)
        known = source.downloads or source.manual_download
        get = f"run `alfa data download {name}`, or " if known else ""
        raise DataError(f"{path} does not exist; {get}run `alfa data prepare {name} PATH`.")
    return path


def _source(name: str, settings: list[str]) -> lazy.data.Source:
    """Construct a source with the options of --set."""
    import tomllib

    from pydantic import TypeAdapter, ValidationError

    known, options = lazy.data.SOURCES.options(name), {}
    for setting in settings:
        key, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or not key:
            raise ConfigError(f"--set must be KEY=VALUE, such as split=ratio, got {setting!r}.")
        if key not in known:
            listed = f"its options are {', '.join(known)}" if known else "it has no options"
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
    return lazy.data.SOURCES.get(name)(**options)


def _datasets() -> list[dict[str, Any]]:
    """Describe all known and all prepared datasets."""
    sources, generated = lazy.data.SOURCES, lazy.data.GENERATED_DATASETS
    stores = lazy.data.prepared()
    rows = []
    for name in [*sources, *sorted({*generated, *stores} - set(sources))]:
        places = {size: str(lazy.data.store_path(name, size)) for size in stores.get(name, [])}
        row: dict[str, Any] = {"name": name, "title": "", "size": None, "published": {}}
        row |= {"get": "your own", "addresses": []}
        row["prepared"] = [{"size": size, "path": path} for size, path in places.items()]
        if name in generated:
            varied = ", of varying size and position" if generated[name].roam else ""
            row |= {"title": f"random characters{varied}", "get": "generated"}
        elif name in sources:
            source = sources.get(name)
            row |= {"title": source.title, "size": source.size}
            row |= {"published": _counts(source.published)}
            if source.downloads:
                are_tried = all(file.tried for file in source.downloads)
                row |= {"get": "download" if are_tried else "download (untried)"}
                row |= {"addresses": [file.url for file in source.downloads]}
            elif source.manual_download is not None:
                row |= {"get": "by hand"}
        rows.append(row)
    return rows


def _summary(
    store: lazy.data.Store, source: type[lazy.data.Source] | lazy.data.Source | None
) -> dict[str, Any]:
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
    """Print the counts next to the published ones, and the skipped and changed images."""
    found, published = summary["splits"], summary["published"]
    rows = []
    for split in [split for split in lazy.data.SPLITS if split in found or split in published]:
        cells = [found.get(split, {"classes": 0, "images": 0})]
        cells += [published.get(split, {})] if published else []
        rows.append([split, *(_text(each.get(k)) for each in cells for k in ("classes", "images"))])
    headers = ["classes", "images", *(["published classes", "images"] if published else [])]
    print_table([summary["dataset"], *headers], rows)
    print_list("skipped", summary["left_out"], rest="index.json")
    print_list("notes", summary["changed"], rest="index.json")
    typer.echo(f"\nprepared: {summary['path']}")


def _text(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _predictions(
    learner: lazy.learner.Learner,
    tasks: lazy.data.Tasks,
    *,
    split: lazy.data.Split,
    index: int,
    seed: int,
) -> dict[str, Any]:
    """Return a learner's predictions for the queries of an episode, and a note with the score."""
    import torch

    episode = tasks.episode(index, num_tasks=1, split=split, seed=seed)
    with torch.no_grad():
        outcome = learner(episode.to("cpu", learner.dtype), order="none")
    predictions = outcome.outputs[0].argmax(1)
    hits = int((predictions == episode.query_y[0]).sum())
    note = f"{hits} of {len(predictions)} correct after {learner.num_steps} steps"
    return {"predictions": predictions, "note": note}
