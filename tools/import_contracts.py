"""Contracts for import-linter that its own contract types cannot express."""

from __future__ import annotations

import grimp
from importlinter import Contract, ContractCheck, output


class PrivateModules(Contract):
    """A module whose name starts with an underscore is imported only within its package."""

    type_name = "private_modules"

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        broken = sorted(
            f"{importer} imports {imported}"
            for imported in graph.modules
            for importer in graph.find_modules_that_directly_import(imported)
            if _is_private(imported, importer)
        )
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["broken"]:
            output.print_error(f"{line}; import the name from the package instead.", bold=False)


def _is_private(imported: str, importer: str) -> bool:
    """Whether a module is private to a package that the importer does not belong to."""
    parts = imported.split(".")
    owners = [".".join(parts[:i]) for i, part in enumerate(parts) if part.startswith("_")]
    return any(importer != owner and not importer.startswith(f"{owner}.") for owner in owners)
