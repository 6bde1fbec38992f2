"""Import contracts of our own, for import-linter: packages are closed boxes.

- Outside of a package nothing imports a module of it whose name begins with an underscore.
- In `ephemera_services`, whose modules have plain names, nothing outside a service's package imports a module
  inside it: `ephemera_services.identity` is the surface, `ephemera_services.identity.accounts` is not.
"""

from __future__ import annotations

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class ClosedBoxes(Contract):
    """No import reaches past the surface of a package."""

    type_name = "closed_boxes"

    services: Any = fields.StringField(required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Look at every import of the graph."""
        del verbose
        wrong = [
            (importer, imported)
            for importer in sorted(graph.modules)
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if not self._is_allowed(importer, imported)
        ]
        return ContractCheck(kept=not wrong, metadata={"wrong": wrong})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """List the imports that reach inside a package."""
        for importer, imported in check.metadata["wrong"]:
            output.print_error(f"{importer} imports {imported}, which is inside another package", bold=False)

    def _is_allowed(self, importer: str, imported: str) -> bool:
        box = self._box_of(imported)
        return box is None or importer == box or importer.startswith(f"{box}.")

    def _box_of(self, module: str) -> str | None:
        """The package whose inside a module is, or None if it is public."""
        parts = module.split(".")
        if parts[0] == self.services and len(parts) > 2:
            return ".".join(parts[:2])
        for index, part in enumerate(parts):
            if part.startswith("_") and not part.startswith("__"):
                return ".".join(parts[:index])
        return None
