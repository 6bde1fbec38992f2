"""The banner above every page: unavailable servers, and refreshes that failed.

It appears and disappears by itself, and the page below keeps what it shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from ephemera.console._connections import Service

_RETRY = "The console keeps trying, and this page recovers by itself."


class ProblemBanner:
    """The banner in one browser."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = services
        self._problems: dict[object, tuple[str, bool]] = {}
        self._shown: tuple[str, ...] | None = None
        self._strip = ui.element("div").classes("e-problems").props('role="status" aria-live="polite"')

    def report(self, source: object, text: str, *, unavailable: bool) -> None:
        """Show a failure of a source; `unavailable`: its server cannot be reached."""
        self._problems[source] = (text, unavailable)
        self.update()

    def clear(self, source: object) -> None:
        """Remove the failure of a source."""
        if self._problems.pop(source, None) is not None:
            self.update()

    def reset(self) -> None:
        """Remove all failures, for another page."""
        self._problems.clear()
        self.update()

    def update(self) -> None:
        """Draw the current problems, if they have changed."""
        lines = tuple(dict.fromkeys(self._lines()))
        if lines == self._shown:
            return
        self._shown = lines
        self._strip.clear()
        self._strip.set_visibility(bool(lines))
        with self._strip:
            for line in lines:
                with ui.element("div").classes("e-problems-line"):
                    ui.icon("cloud_off", size="20px")
                    ui.label(line)

    def _lines(self) -> list[str]:
        down = [
            f"{address} ({service.name}) cannot be reached: is it running? {_RETRY}"
            for service in self._services
            for address in service.down
        ]
        failed = [
            f"{text} {_RETRY}" for text, unavailable in self._problems.values() if not (unavailable and down)
        ]
        return [*down, *failed]
