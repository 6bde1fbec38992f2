"""The running console: its services, and the background tasks that all browsers share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ephemera._futures import cancel_all
from ephemera.console._access import Account, ConsoleAccess
from ephemera.console._audit_runner import AuditRunner
from ephemera.console._connections import ConsoleService, Service, open_service
from ephemera.console._history import History
from ephemera.console._server_monitor import ServerMonitor
from ephemera.console._survey_cache import SurveyCache
from ephemera.errors import EphemeraError

_EXPIRY_INTERVAL = 2.0  # seconds


@dataclass(frozen=True)
class ConsoleSettings:
    """The settings of a console."""

    services: tuple[ConsoleService, ...]
    user: str
    password: str = field(repr=False)
    host: str = "127.0.0.1"
    port: int = 8085
    public_url: str | None = None
    allow_actions: bool = False
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks whose X-Forwarded-For is trusted."""
    accounts: tuple[Account, ...] = ()
    """Further accounts, each with a role; `user` administers."""
    history: Path | None = None
    """A small file with the hit ratios and latencies of the last hours, which then outlive the process.

    So do the browsers that signed in before, by the random key in a second file, with `.key` at its end.
    """


class Console:
    """The state that all pages share."""

    def __init__(self, settings: ConsoleSettings, access: ConsoleAccess) -> None:
        self.allow_actions = settings.allow_actions
        self.access = access
        self.failure: EphemeraError | None = None
        """Why it did not start."""
        self.services: list[Service] = []
        self.surveys = SurveyCache(())
        self.monitor = ServerMonitor((), self.surveys)
        self.audits = AuditRunner(())
        self.history = History(settings.history)
        self._settings = settings

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the services open and the background tasks running."""
        async with AsyncExitStack() as stack:
            self.services = [
                await stack.enter_async_context(open_service(each)) for each in self._settings.services
            ]
            self.surveys = SurveyCache(self.services)
            self.monitor = ServerMonitor(self.services, self.surveys)
            self.audits = AuditRunner(self.services)
            stack.push_async_callback(self.surveys.stop)
            stack.push_async_callback(self.audits.stop)
            ratios = (service.hit_ratios.run() for service in self.services)
            work = [
                asyncio.create_task(each)
                for each in (
                    self._expire_sign_ins(),
                    self.monitor.run(),
                    self.history.run(self.services),
                    *ratios,
                )
            ]
            stack.push_async_callback(cancel_all, work)
            yield

    async def _expire_sign_ins(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_INTERVAL)
            self.access.remove_expired()
