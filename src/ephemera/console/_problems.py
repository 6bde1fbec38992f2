"""What is wrong at the moment, above every page: a server that is away, a refresh that failed.

It comes and goes by itself, and the page below keeps what it shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from ephemera.console._connections import Place

_AGAIN = "The console goes on trying, and this page comes back by itself."


class Trouble:
    """The strip above the page of one browser."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._told: dict[object, tuple[str, bool]] = {}
        self._shown: tuple[str, ...] | None = None
        self._strip = ui.element("div").classes("e-trouble").props('role="status" aria-live="polite"')

    def report(self, source: object, text: str, *, away: bool) -> None:
        """Something failed."""
        self._told[source] = (text, away)
        self.update()

    def clear(self, source: object) -> None:
        """It works again."""
        if self._told.pop(source, None) is not None:
            self.update()

    def forget(self) -> None:
        """Another page is shown."""
        self._told.clear()
        self.update()

    def update(self) -> None:
        """Show what is wrong now, if that has changed."""
        lines = tuple(dict.fromkeys(self._lines()))
        if lines == self._shown:
            return
        self._shown = lines
        self._strip.clear()
        self._strip.set_visibility(bool(lines))
        with self._strip:
            for line in lines:
                with ui.element("div").classes("e-trouble-line"):
                    ui.icon("cloud_off", size="20px")
                    ui.label(line)

    def _lines(self) -> list[str]:
        away = [
            f"{address} ({place.name}) cannot be reached: is it running? {_AGAIN}"
            for place in self._places
            for address in place.down
        ]
        failed = [f"{text} {_AGAIN}" for text, is_away in self._told.values() if not (is_away and away)]
        return [*away, *failed]
