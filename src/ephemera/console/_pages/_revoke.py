"""Making one token, or all of a family, void: a form on the page of sessions and tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui

from ephemera.console._actions import READ_ONLY
from ephemera.console._components._confirm import asked_and_done
from ephemera.console._connections import Place
from ephemera.console._view import View
from ephemera.patterns.revocation import Revocation

_FAMILY = "family"
_LONGEST = 512  # characters of an id


class RevokeForm:
    """A kind, an id, and a button that asks first."""

    def __init__(
        self,
        view: View,
        revocations: Mapping[str, tuple[Place, Revocation]],
        then: Callable[[], Any],
    ) -> None:
        self._view = view
        self._then = then
        self._kinds = {
            f"{name}/{kind}": (place, declared, kind)
            for name, (place, declared) in revocations.items()
            for kind in (*declared.kinds, _FAMILY)
        }
        options = {name: _named(*each, many=len(revocations) > 1) for name, each in self._kinds.items()}
        with ui.element("form").classes("e-row").on("submit.prevent", self._ask):
            self._kind = ui.select(options, value=next(iter(options)), label="What").props("dense outlined")
            self._id = ui.input("Id").props(f"dense outlined clearable maxlength={_LONGEST}")
            button = ui.button("Revoke", icon="key_off").props('type="submit" outline no-caps')
        if not view.may_act:
            button.disable()
            with button:
                ui.tooltip(READ_ONLY)

    async def _ask(self) -> None:
        named = (self._id.value or "").strip()
        if not named or len(named) > _LONGEST or self._kind.value not in self._kinds:
            self._view.tell("Give the id of a token (its jti) or of a family first.", "warn")
            return
        place, declared, kind = self._kinds[self._kind.value]
        what = _named(place, declared, kind, many=len(self._view.places) > 1)
        await asked_and_done(
            self._view,
            "Revoke",
            what="token.revoke-family" if kind == _FAMILY else "token.revoke",
            target=f"{what} {named}",
            question=f"Make the {what} {named} void? It cannot be undone.",
            work=lambda: _revoke(place, declared, kind, named),
            done="It is void from now on.",
            then=self._then,
        )


async def _revoke(place: Place, declared: Revocation, kind: str, named: str) -> None:
    live = place.store[declared]
    if kind == _FAMILY:
        await live.revoke_family(named)
        return
    # When it expires is not known here: none of its kind lives longer than this.
    await live.revoke_token(kind, named, until=time.time() + declared.kinds[kind].lives.total_seconds())


def _named(place: Place, _: Revocation, kind: str, *, many: bool) -> str:
    what = kind if kind == _FAMILY else f"{kind} token"
    return f"{place.name}: {what}" if many else what
