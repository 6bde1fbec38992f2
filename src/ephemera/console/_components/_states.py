"""When there is nothing to show, or something is wrong: what it is, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from nicegui import ui


@dataclass(frozen=True, slots=True)
class Empty:
    """What is said where nothing is."""

    title: str
    advice: str
    icon: str = "inbox"


class State:
    """What is said where nothing is, which may change."""

    def __init__(self, told: Empty, classes: str) -> None:
        with ui.element("div").classes(classes) as self.box:
            self._icon = ui.icon(told.icon, size="32px").props('aria-hidden="true"')
            self._title = ui.label(told.title).classes("e-empty-title")
            self._advice = ui.label(told.advice).classes("e-note")

    def say(self, told: Empty) -> None:
        """Say something else."""
        self._icon.name = told.icon
        self._title.text, self._advice.text = told.title, told.advice


def empty(title: str, advice: str, icon: str = "inbox") -> State:
    """Nothing is there, and what to do."""
    return State(Empty(title, advice, icon), "e-empty")


def problem(title: str, advice: str, icon: str = "error_outline") -> State:
    """Something is wrong, and what to do."""
    return State(Empty(title, advice, icon), "e-empty e-problem")
