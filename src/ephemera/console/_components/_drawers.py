"""A panel from the right with the details of one thing; Escape or a click beside it closes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import ui


class Drawer:
    """One panel, which shows one thing after the other."""

    def __init__(self) -> None:
        with ui.dialog().props("position=right full-height") as self._dialog:  # noqa: SIM117
            with ui.element("aside").classes("e-drawer"):
                with ui.element("header").classes("e-drawer-head"):
                    with ui.element("h2"):
                        self._title = ui.label()
                    ui.button(icon="close", on_click=self.close).props('flat round dense aria-label="Close"')
                self._body = ui.element("div").classes("e-drawer-body")

    @contextmanager
    def open(self, title: str) -> Iterator[None]:
        """Show it with what is drawn in this block."""
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
