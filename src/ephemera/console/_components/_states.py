"""Empty states and problems: what it is, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from nicegui import ui


@dataclass(frozen=True, slots=True)
class Empty:
    """The text of an empty state."""

    title: str
    advice: str
    icon: str = "inbox"


class State:
    """An empty state or a problem; its text may change."""

    def __init__(self, text: Empty, classes: str) -> None:
        with ui.element("div").classes(classes) as self.box:
            self._icon = ui.icon(text.icon, size="32px").props('aria-hidden="true"')
            self._title = ui.label(text.title).classes("e-empty-title")
            self._advice = ui.label(text.advice).classes("e-note")

    def show(self, text: Empty) -> None:
        """Set the text."""
        self._icon.name = text.icon
        self._title.text, self._advice.text = text.title, text.advice


def empty(title: str, advice: str, icon: str = "inbox") -> State:
    """An empty state: nothing is there, and what to do."""
    return State(Empty(title, advice, icon), "e-empty")


def problem(title: str, advice: str, icon: str = "error_outline") -> State:
    """A problem, and what to do."""
    return State(Empty(title, advice, icon), "e-empty e-problem")
