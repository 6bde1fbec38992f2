"""Audits that were begun in the console: seen by all who look, its report kept until the next."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import time

from ephemera.console._connections import Place
from ephemera.keyspace import Role
from ephemera.operations.audit import AuditReport, audit
from ephemera.operations.survey import SurveyOptions

BUDGET = 30.0
"""Seconds that an audit of one server takes at most."""


class ServerAudit:
    """The audit of one server."""

    def __init__(self, place: Place, role: Role | None, url: str, address: str) -> None:
        self.place = place
        self.role = role
        self.address = address
        self.phase, self.done, self.total = "", 0, 0
        self.report: AuditReport | None = None
        self.ended = 0.0
        self._url = url
        self._under_way: asyncio.Task[AuditReport] | None = None

    @property
    def running(self) -> bool:
        """Whether it is under way."""
        return self._under_way is not None and not self._under_way.done()

    @property
    def share(self) -> float:
        """How much of it is done, 0 to 1: counting names is the larger part."""
        part = self.done / self.total if self.total else 0.0
        return min(1.0, 0.7 * part if self.phase != "samples" else 0.7 + 0.3 * part)

    async def run(self) -> AuditReport:
        """Its report; who asks while it is under way waits for the same one."""
        if self._under_way is None or self._under_way.done():
            self.phase, self.done, self.total = "names", 0, 0
            self._under_way = asyncio.create_task(self._audit())
        return await asyncio.shield(self._under_way)

    async def stop(self) -> None:
        """End it where it is."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.gather(self._under_way, return_exceptions=True)

    async def _audit(self) -> AuditReport:
        plan = SurveyOptions(budget=BUDGET)
        report = await audit(self._url, self.place.catalogues, plan, role=self.role, on_progress=self._tell)
        self.report, self.ended = report, time()
        return report

    def _tell(self, phase: str, done: int, total: int) -> None:
        self.phase, self.done, self.total = phase, done, total


class Audits:
    """One for each server."""

    def __init__(self, places: Sequence[Place]) -> None:
        from ephemera.console._connections import address_of

        self.servers = [
            ServerAudit(place, role, url, address_of(url))
            for place in places
            for role, url, _ in place.servers
        ]

    async def stop(self) -> None:
        """End all that are under way."""
        await asyncio.gather(*(each.stop() for each in self.servers))
