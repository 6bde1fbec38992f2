"""What a page is given: the places, who looks, what is permitted, and how to stay up to date."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import urlencode

from nicegui import ui

from ephemera.console._actions import Actor, Outcome, act
from ephemera.console._connections import Place
from ephemera.console._console import Console
from ephemera.console._problems import Trouble
from ephemera.errors import ConnectionFailed, EphemeraError

P = TypeVar("P")
T = TypeVar("T")
log = logging.getLogger(__name__)
_Notice: TypeAlias = Literal["positive", "negative", "warning", "info"]
_NOTICES: dict[str, _Notice | None] = {
    "good": "positive",
    "bad": "negative",
    "warn": "warning",
    "info": "info",
    "plain": None,
}


class View:
    """One page in one browser."""

    def __init__(
        self, console: Console, actor: Actor, arguments: Mapping[str, str], trouble: Trouble
    ) -> None:
        self.console = console
        self.arguments = arguments
        self._actor = actor
        self._trouble = trouble
        self._client = ui.context.client

    @property
    def places(self) -> Sequence[Place]:
        """The places that are looked at."""
        return self.console.places

    @property
    def user(self) -> str:
        """Who is signed in."""
        return self._actor.signed_in.user

    @property
    def may_act(self) -> bool:
        """Whether actions are allowed; `act` checks it again."""
        return self._actor.may_act

    def patterns(self, *kinds: type[P]) -> list[tuple[Place, P]]:
        """The declared patterns of these types, each with its place."""
        return [
            (place, pattern)
            for place in self.places
            for catalogue in place.catalogues
            for pattern in catalogue.patterns
            if isinstance(pattern, kinds)
        ]

    def every(self, seconds: float, refresh: Callable[[], Awaitable[None] | None]) -> Refreshing:
        """Call `refresh` when the page is there, and then every so many seconds; what it raises is shown."""
        return Refreshing(seconds, refresh, self._trouble, self._actor)

    async def act(
        self,
        what: str,
        target: str,
        work: Coroutine[Any, Any, T],
        *,
        done: str | Callable[[T], str] = "",
        changes: bool = True,
    ) -> Outcome[T]:
        """Do something if this person may, log it, and show how it ended."""
        outcome = await act(self._actor, what, target, work, changes=changes)
        if not outcome:
            self.tell(outcome.told, "bad")
        elif done:
            self.tell(done if isinstance(done, str) else done(outcome.result))  # type: ignore[arg-type]
        return outcome

    def tell(self, text: str, tone: str = "good") -> None:
        """Show a short notice, also when the user has gone to another page meanwhile."""
        if self._client.is_deleted:
            return
        with self._client:
            ui.notify(
                text,
                type=_NOTICES[tone],
                position="bottom",
                close_button="Close" if tone == "bad" else False,
            )

    def link(self, path: str, **arguments: str) -> str:
        """A URL of the console."""
        return f"{path}?{urlencode(arguments)}" if arguments else path

    def go(self, path: str, **arguments: str) -> None:
        """Show another page."""
        ui.navigate.to(self.link(path, **arguments))


class Refreshing:
    """Keeps a part of a page up to date."""

    def __init__(
        self, seconds: float, refresh: Callable[[], Awaitable[None] | None], trouble: Trouble, actor: Actor
    ) -> None:
        self._refresh = refresh
        self._trouble = trouble
        self._actor = actor
        self._one = asyncio.Lock()  # never two at once
        self._timer = ui.timer(seconds, self._once)

    async def now(self) -> None:
        """Refresh at once, as after an action."""
        await self._once()

    def stop(self) -> None:
        """No more."""
        self._timer.cancel()

    async def _once(self) -> None:
        if not self._actor.signed_in.valid or self._one.locked() or self._timer.is_deleted:
            return
        async with self._one:
            try:
                pending = self._refresh()
                if inspect.isawaitable(pending):
                    await pending
            except EphemeraError as error:
                away = isinstance(error, ConnectionFailed)
                self._trouble.report(self, str(error), away=away)
            except Exception as error:
                # The text of other errors may repeat what was read.
                log.exception("a page could not be refreshed")
                self._trouble.report(
                    self, f"{type(error).__name__}; the console's log says where.", away=False
                )
            else:
                self._trouble.clear(self)
