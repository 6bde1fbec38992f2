"""A panel on the right with the details of one item; Escape or a click outside closes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import ui


class Drawer:
    """One panel, reused for each item."""

    def __init__(self) -> None:
        dialog = ui.dialog().props("position=right full-height")
        with dialog, ui.element("aside").classes("e-drawer"):
            with ui.element("header").classes("e-drawer-head"):
                with ui.element("h2"):
                    self._title = ui.label()
                ui.button(icon="close", on_click=self.close).props('flat round dense aria-label="Close"')
            self._body = ui.element("div").classes("e-drawer-body")
        self._dialog = dialog

    @contextmanager
    def open(self, title: str) -> Iterator[None]:
        """Open it with the content drawn in this block."""
        self._title.text = title
        self._body.clear()
        with self._body:
            yield
        self._dialog.open()

    def close(self) -> None:
        """Hide it."""
        self._dialog.close()

    @property
    def shown(self) -> bool:
        """Whether it is open."""
        return bool(self._dialog.value)


def drawer() -> Drawer:
    """A panel, closed at first."""
    return Drawer()
