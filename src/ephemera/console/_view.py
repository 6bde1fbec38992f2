"""What a page works with: the services, the user and their permissions, refreshes and actions."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, cast
from urllib.parse import urlencode

from nicegui import ui

from ephemera.console._access import ROLES, AccountRole
from ephemera.console._actions import ActionOutcome, Actor, act
from ephemera.console._connections import Service
from ephemera.console._console import Console
from ephemera.console._problems import ProblemBanner
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


@dataclass(frozen=True, slots=True)
class ConsolePage:
    """One page; `PAGES` lists them in the order of the navigation."""

    path: str
    title: str
    icon: str
    """A name of Material Icons."""
    build: Callable[[View], None]
    """Draws the page at once; it must not wait for a server, see `View.every`."""
    listed: bool = True
    """Whether the navigation shows it."""


class View:
    """One page in one browser."""

    def __init__(
        self, console: Console, actor: Actor, arguments: Mapping[str, str], problems: ProblemBanner
    ) -> None:
        self.console = console
        self.arguments = arguments
        self._actor = actor
        self._problems = problems
        self._client = ui.context.client

    @property
    def services(self) -> Sequence[Service]:
        """The services that the console shows."""
        return self.console.services

    @property
    def user(self) -> str:
        """The signed-in user."""
        return self._actor.signed_in.user

    @property
    def may_act(self) -> bool:
        """Whether usual actions are allowed; `act` checks again."""
        return self.refusal("operate") is None

    def refusal(self, needs: AccountRole) -> str | None:
        """Why actions that need this role are not allowed; None if they are. `act` checks again."""
        return self._actor.refusal(needs)

    def has_role(self, needs: AccountRole) -> bool:
        """Whether the user's account has this role or a higher one, even where nothing may be changed."""
        return ROLES.index(self._actor.signed_in.role) >= ROLES.index(needs)

    def patterns(self, *kinds: type[P]) -> list[tuple[Service, P]]:
        """The declared patterns of these types, each with its service."""
        return [
            (service, pattern)
            for service in self.services
            for catalogue in service.catalogues
            for pattern in catalogue.patterns
            if isinstance(pattern, kinds)
        ]

    def every(self, seconds: float, refresh: Callable[[], Awaitable[None] | None]) -> RefreshTimer:
        """Call `refresh` when the page is shown, and then at an interval; its errors appear in the banner."""
        return RefreshTimer(seconds, refresh, self._problems, self._actor)

    async def act(
        self,
        what: str,
        target: str,
        work: Coroutine[Any, Any, T],
        *,
        done: str | Callable[[T], str] = "",
        changes: bool = True,
        needs: AccountRole = "operate",
    ) -> ActionOutcome[T]:
        """Run an action if the user may, log it, and show its outcome."""
        outcome = await act(self._actor, what, target, work, changes=changes, needs=needs)
        if not outcome:
            self.notify(outcome.message, "bad")
        elif done:
            self.notify(done if isinstance(done, str) else done(cast("T", outcome.result)))
        return outcome

    def notify(self, text: str, tone: str = "good") -> None:
        """Show a short notification, even if the user has opened another page in the meantime."""
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
        """Open another page."""
        ui.navigate.to(self.link(path, **arguments))


class RefreshTimer:
    """Keeps a part of a page up to date."""

    def __init__(
        self,
        seconds: float,
        refresh: Callable[[], Awaitable[None] | None],
        problems: ProblemBanner,
        actor: Actor,
    ) -> None:
        self._refresh = refresh
        self._problems = problems
        self._actor = actor
        self._lock = asyncio.Lock()  # one refresh at a time
        self._timer = ui.timer(seconds, self._run)

    async def now(self) -> None:
        """Refresh now, for example after an action."""
        await self._run()

    def stop(self) -> None:
        """Stop refreshing."""
        self._timer.cancel()

    async def _run(self) -> None:
        if not self._actor.signed_in.valid or self._lock.locked() or self._timer.is_deleted:
            return
        async with self._lock:
            try:
                pending = self._refresh()
                if inspect.isawaitable(pending):
                    await pending
            except EphemeraError as error:
                unavailable = isinstance(error, ConnectionFailed)
                self._problems.report(self, str(error), unavailable=unavailable)
            except Exception as error:
                # The text of other errors may contain what was read.
                log.exception("a page could not be refreshed")
                self._problems.report(
                    self, f"{type(error).__name__}; see the console's log.", unavailable=False
                )
            else:
                self._problems.clear(self)
