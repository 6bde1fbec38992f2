"""Cards, figures, badges and lists of facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeAlias

from nicegui import ui

Tone: TypeAlias = Literal["good", "warn", "bad", "info", "plain"]


@contextmanager
def section(title: str, note: str = "") -> Iterator[ui.element]:
    """A card with a heading; yields its head, for buttons."""
    with ui.element("section").classes("e-card") as card:
        card.props["aria-label"] = title
        with ui.element("header").classes("e-card-head"):
            with ui.element("div").classes("e-card-title"):
                with ui.element("h2"):
                    ui.label(title)
                if note:
                    ui.label(note).classes("e-note")
            head = ui.element("div").classes("e-card-tools")
        with ui.element("div").classes("e-card-body"):
            yield head


@contextmanager
def columns() -> Iterator[None]:
    """Cards side by side, stacked on a phone."""
    with ui.element("div").classes("e-columns"):
        yield


@contextmanager
def tiles() -> Iterator[None]:
    """A row of figures."""
    with ui.element("div").classes("e-tiles"):
        yield


class Tile:
    """One figure with its label and a note."""

    def __init__(self, label: str, note: str) -> None:
        with ui.element("div").classes("e-tile") as self._box:
            ui.label(label).classes("e-tile-label")
            self._value = ui.label("—").classes("e-tile-value")
            self._note = ui.label(note).classes("e-tile-note")
        self._tone: Tone = "plain"

    def show(self, value: str, note: str | None = None, tone: Tone | None = None) -> None:
        """Set its value."""
        self._value.text = value
        if note is not None:
            self._note.text = note
        if tone is not None and tone != self._tone:
            self._box.classes(add=f"e-{tone}", remove=f"e-{self._tone}")
            self._tone = tone


def tile(label: str, note: str = "") -> Tile:
    """A figure, empty at first."""
    return Tile(label, note)


class Badge:
    """A coloured label."""

    def __init__(self, text: str, tone: Tone) -> None:
        self._label = ui.label(text).classes(f"e-badge e-{tone}")
        self._tone = tone

    def show(self, text: str, tone: Tone) -> None:
        """Set its text and colour."""
        self._label.text = text
        if tone != self._tone:
            self._label.classes(add=f"e-{tone}", remove=f"e-{self._tone}")
            self._tone = tone


def badge(text: str, tone: Tone = "plain") -> Badge:
    """A coloured label."""
    return Badge(text, tone)


class Facts:
    """Names and values; existing names keep their position."""

    def __init__(self) -> None:
        self._list = ui.element("dl").classes("e-facts")
        self._values: dict[str, ui.label] = {}

    def show(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Set the values."""
        if list(self._values) != [name for name, _ in pairs]:
            self._list.clear()
            with self._list:
                self._values = {name: self._fact(name) for name, _ in pairs}
        for name, value in pairs:
            self._values[name].text = value

    @staticmethod
    def _fact(name: str) -> ui.label:
        with ui.element("div"):
            with ui.element("dt"):
                ui.label(name)
            with ui.element("dd"):
                return ui.label()


def facts(pairs: Sequence[tuple[str, str]] = ()) -> Facts:
    """A list of facts."""
    found = Facts()
    found.show(pairs)
    return found


def text_block(text: str = "") -> ui.label:
    """Monospaced text that keeps its lines and wraps long ones."""
    return ui.label(text).classes("e-text-block").props('tabindex="0"')
