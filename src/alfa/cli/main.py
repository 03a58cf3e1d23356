"""The command line: `alfa --help`."""

import os
import re
import sys
import warnings
from typing import Any, NoReturn

import typer
from typer import Option

from alfa import __version__
from alfa.cli import (
    adapt,
    bench,
    compare,
    data,
    demo,
    evaluate,
    export,
    models,
    plot,
    pretrain,
    report,
    reproduce,
    serve,
    train,
)
from alfa.cli.stopping import exit_code
from alfa.errors import AlfaError, AlfaWarning

app = typer.Typer(
    name="alfa",
    help="Few-shot learning with gradients: train, evaluate, and inspect meta-learners.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command()(demo.demo)
app.command()(train.train)
app.command()(pretrain.pretrain)
app.command()(evaluate.evaluate)
app.command()(adapt.adapt)
app.command()(export.export)
app.command()(serve.serve)
app.command()(compare.compare)
app.command()(reproduce.reproduce)
app.command()(report.report)
app.command()(bench.bench)
app.add_typer(data.app, name="data")
app.add_typer(plot.app, name="plot")
app.add_typer(models.app, name="models")

_NO_MEMORY = re.compile(r"can't allocate memory|out of memory")
# Recent versions of typer contain a copy of click; this lookup works with and without it.
_UsageError: Any = typer.BadParameter.__mro__[1]
_ClickException: Any = typer.BadParameter.__mro__[2]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"alfa {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = Option(
        False, "--version", help="Print the version.", callback=_print_version, is_eager=True
    ),
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a user error prints one sentence and exits with code 2."""
    warnings.showwarning = _show_warning
    try:
        code = app(arguments, standalone_mode=False)
    except _UsageError as error:
        if not error.format_message():
            # Called without arguments, typer has printed the help.
            sys.exit(2)
        _fail(error.format_message(), command=error.ctx.command_path if error.ctx else "alfa")
    except _ClickException as error:
        _fail(error.format_message())
    except (typer.Abort, KeyboardInterrupt):
        typer.echo("alfa: stopped.", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of the output closed the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except AlfaError as error:
        _fail(str(error), code=exit_code(error))
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        _fail(f"cannot access{where}: {error.strerror or error}.")
    except (MemoryError, RuntimeError) as error:
        # torch has no exception class for exhausted CPU memory.
        if not isinstance(error, MemoryError) and not _NO_MEMORY.search(str(error)):
            raise
        fix = "reduce the size of tasks, images, or the model"
        if (sys.argv[1:] if arguments is None else arguments)[:1] == ["train"]:
            fix += ", or use `--set engine.memory=recompute` and `--set engine.tasks_at_once=1`"
        _fail(f"out of memory; {fix}.")
    sys.exit(code if isinstance(code, int) else 0)


def _show_warning(
    message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Print alfa's warnings as one sentence, and other warnings in Python's format."""
    if issubclass(category, AlfaWarning):
        typer.echo(f"alfa: {message}", err=True)
    else:
        typer.echo(warnings.formatwarning(message, category, filename, lineno, line), err=True)


def _fail(message: str, *, command: str | None = None, code: int = 2) -> NoReturn:
    hint = f" See `{command} --help`." if command else ""
    typer.echo(f"alfa: {message}{hint}", err=True)
    sys.exit(code)
