"""The form that revokes a token or a token family, on the page of sessions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui

from ephemera.console._components._confirm import confirm_and_run, disable_if_refused
from ephemera.console._connections import Service
from ephemera.console._view import View
from ephemera.patterns.revocation import Revocation

_FAMILY = "family"
_MAX_ID_LENGTH = 512  # characters of an id


class RevokeForm:
    """A kind, an id, and a button that asks for confirmation."""

    def __init__(
        self,
        view: View,
        revocations: Mapping[str, tuple[Service, Revocation]],
        then: Callable[[], Any],
    ) -> None:
        self._view = view
        self._then = then
        self._kinds = {
            f"{name}/{kind}": (service, declared, kind)
            for name, (service, declared) in revocations.items()
            for kind in (*declared.kinds, _FAMILY)
        }
        options = {name: _named(*each, many=len(revocations) > 1) for name, each in self._kinds.items()}
        with ui.element("form").classes("e-row").on("submit.prevent", self._ask):
            self._kind = ui.select(options, value=next(iter(options)), label="Type").props("dense outlined")
            self._id = ui.input("Id").props(f"dense outlined clearable maxlength={_MAX_ID_LENGTH}")
            button = ui.button("Revoke", icon="key_off").props('type="submit" outline no-caps')
        disable_if_refused(view, button, "operate")

    async def _ask(self) -> None:
        named = (self._id.value or "").strip()
        if not named or len(named) > _MAX_ID_LENGTH or self._kind.value not in self._kinds:
            self._view.notify("Enter the id of a token (its jti) or of a family first.", "warn")
            return
        service, declared, kind = self._kinds[self._kind.value]
        what = _named(service, declared, kind, many=len(self._view.services) > 1)
        await confirm_and_run(
            self._view,
            "Revoke",
            what="token.revoke-family" if kind == _FAMILY else "token.revoke",
            target=f"{what} {named}",
            question=f"Revoke the {what} {named}? This cannot be undone.",
            work=lambda: _revoke(service, declared, kind, named),
            done="It is revoked.",
            then=self._then,
        )


async def _revoke(service: Service, declared: Revocation, kind: str, named: str) -> None:
    bound = service.store[declared]
    if kind == _FAMILY:
        await bound.revoke_family(named)
        return
    # Its expiry is not known here; no token of its kind is valid for longer than this.
    await bound.revoke_token(kind, named, until=time.time() + declared.kinds[kind].lifetime.total_seconds())


def _named(service: Service, _: Revocation, kind: str, *, many: bool) -> str:
    what = kind if kind == _FAMILY else f"{kind} token"
    return f"{service.name}: {what}" if many else what
