"""The sources of a run's plugins, so that a changed plugin does not go unnoticed.

A run folder stores the source files of every plugin in ``plugins/``, and their hashes in
``plugins.json``. Alfa never executes the stored files.
"""

import hashlib
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from alfa._io import write_atomic, write_json
from alfa.errors import AlfaWarning, CheckpointError

Hashes = dict[str, dict[str, str]]
"""The SHA-256 digest of every source file, by the module's name and the file's relative path."""

# The number of digits of a hash in messages.
_NUM_DIGITS = 12


def plugin_sources(modules: Iterable[str], folder: Path) -> dict[str, dict[str, Path]]:
    """Return the source files of modules that can be found, by module and relative path.

    This imports nothing. For an imported module, it is the module's own file; otherwise, the search
    covers the current folder, `folder`, and `sys.path`, as the import of plugins does.
    """
    found = {}
    for module in modules:
        if (path := _locate(module, folder)) is not None:
            found[module] = _files(module, path)
    return found


def store_plugins(modules: Sequence[str], *, listing: Path, folder: Path) -> None:
    """Store the sources of modules in a folder and their hashes in `listing`."""
    hashes: Hashes = {}
    for module, files in plugin_sources(modules, folder.parent).items():
        contents = {name: path.read_bytes() for name, path in files.items()}
        for name, content in contents.items():
            write_atomic(folder / name, content)
        hashes[module] = {name: _digest(content) for name, content in contents.items()}
    # The listing comes last, so that it never names files that are not stored.
    write_json(listing, hashes)


def read_hashes(listing: Path) -> Hashes:
    """Return the stored hashes; none if the run has no plugins."""
    if not listing.is_file():
        return {}
    try:
        return TypeAdapter(Hashes).validate_json(listing.read_bytes())
    except ValueError:
        raise CheckpointError(f"{listing} is damaged; restore it from a copy of the run.") from None


def warn_of_changes(stored: Hashes, folder: Path) -> None:
    """Warn of every plugin whose current source differs from the stored hashes."""
    for module, files in plugin_sources(stored, folder).items():
        current = {name: _digest(path.read_bytes()) for name, path in files.items()}
        if current != stored[module]:
            warnings.warn(
                f"the plugin {module!r} has changed since {folder} was trained: its hash was "
                f"{combined_hash(stored[module])[:_NUM_DIGITS]} and is "
                f"{combined_hash(current)[:_NUM_DIGITS]}, so results may differ; the source of the "
                f"training is in {folder / 'plugins'}.",
                AlfaWarning,
                stacklevel=4,
            )


def combined_hash(files: Mapping[str, str]) -> str:
    """Return one hash for the files of a module; for a single file, its own."""
    if len(files) == 1:
        return next(iter(files.values()))
    lines = (f"{name} {digest}\n" for name, digest in sorted(files.items()))
    return _digest("".join(lines).encode())


def _locate(module: str, folder: Path) -> Path | None:
    """Return the source file of a module, or None if it is unknown."""
    loaded = getattr(sys.modules.get(module), "__file__", None)
    if loaded is not None:
        path = Path(str(loaded))
        return path if path.suffix == ".py" and path.is_file() else None
    parts = module.split(".")
    for base in [Path.cwd(), folder, *map(Path, sys.path)]:
        module_path = base.joinpath(*parts)
        for path in (module_path / "__init__.py", module_path.with_suffix(".py")):
            if path.is_file():
                return path
    return None


def _files(module: str, path: Path) -> dict[str, Path]:
    """Return the source files of a module, all Python files of a package, by relative path."""
    own = Path(*module.split("."))
    if path.name != "__init__.py":
        return {own.with_suffix(".py").as_posix(): path}
    return {
        (own / file.relative_to(path.parent)).as_posix(): file
        for file in sorted(path.parent.rglob("*.py"))
        if file.is_file()
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
