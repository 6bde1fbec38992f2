"""Confirmation: a dialog that says what an action does and to what, before it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.disableable_element import DisableableElement

from ephemera.console._access import AccountRole
from ephemera.console._components._cards import Tone
from ephemera.console._view import View

_COLOURS = {"bad": "negative", "warn": "warning", "good": "positive", "info": "primary", "plain": "primary"}


async def ask(question: str, label: str, tone: Tone = "bad") -> bool:
    """Ask the user; returns whether they confirmed."""
    with ui.dialog() as dialog, ui.element("div").classes("e-dialog"):
        ui.label(question).classes("e-dialog-text")
        with ui.element("div").classes("e-dialog-buttons"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat no-caps autofocus")
            ui.button(label, on_click=lambda: dialog.submit(True), color=_COLOURS[tone]).props(
                "unelevated no-caps"
            )
    confirmed = bool(await dialog)
    dialog.delete()
    return confirmed


async def confirm_and_run(
    view: View,
    label: str,
    *,
    what: str,
    target: str,
    question: str,
    work: Callable[[], Coroutine[Any, Any, Any]],
    done: str | Callable[[Any], str] = "",
    tone: Tone = "bad",
    then: Callable[[], Any] | None = None,
    needs: AccountRole = "operate",
) -> None:
    """Ask for confirmation, run the action, then call `then`, such as a refresh."""
    if not await ask(question, label, tone):
        return
    outcome = await view.act(what, target, work(), done=done, needs=needs)
    if outcome and then is not None:
        pending = then()
        if inspect.isawaitable(pending):
            await pending


def confirm_button(
    view: View,
    label: str,
    *,
    what: str,
    target: str,
    question: str,
    work: Callable[[], Coroutine[Any, Any, Any]],
    done: str | Callable[[Any], str] = "",
    icon: str | None = None,
    tone: Tone = "bad",
    then: Callable[[], Any] | None = None,
    needs: AccountRole = "operate",
) -> ui.button:
    """A button that asks for confirmation; disabled, with the reason, when the action is not allowed."""

    async def clicked() -> None:
        await confirm_and_run(
            view,
            label,
            what=what,
            target=target,
            question=question,
            work=work,
            done=done,
            tone=tone,
            then=then,
            needs=needs,
        )

    button = ui.button(label, icon=icon, on_click=clicked, color=_COLOURS[tone]).props(
        "outline no-caps dense"
    )
    button.classes("e-button")
    disable_if_refused(view, button, needs)
    return button


def disable_if_refused(view: View, button: DisableableElement, needs: AccountRole) -> None:
    """Disable a button or field of an action that is not allowed, and say why."""
    if (reason := view.refusal(needs)) is not None:
        button.disable()
        with button:
            ui.tooltip(reason)
