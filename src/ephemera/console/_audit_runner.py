"""Audits started in the console: visible to every browser; each report is kept until the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import time

from ephemera._futures import cancel_all
from ephemera.console._connections import Service, address_of
from ephemera.keyspace import Role
from ephemera.operations.audit import AuditReport, audit
from ephemera.operations.survey import SurveyOptions

BUDGET = 30.0
"""Time limit of an audit of one server, in seconds."""


class ServerAudit:
    """The audit of one server."""

    def __init__(self, service: Service, role: Role | None, url: str, address: str) -> None:
        self.service = service
        self.role = role
        self.address = address
        self.phase, self.done, self.total = "", 0, 0
        self.report: AuditReport | None = None
        self.ended = 0.0
        self._url = url
        self._task: asyncio.Task[AuditReport] | None = None

    @property
    def running(self) -> bool:
        """Whether it is running."""
        return self._task is not None and not self._task.done()

    @property
    def share(self) -> float:
        """How much is done, 0 to 1; counting names is the larger part."""
        part = self.done / self.total if self.total else 0.0
        return min(1.0, 0.7 * part if self.phase != "samples" else 0.7 + 0.3 * part)

    async def run(self) -> AuditReport:
        """Run the audit, or wait for the one that is running, and return its report."""
        if self._task is None or self._task.done():
            self.phase, self.done, self.total = "names", 0, 0
            self._task = asyncio.create_task(self._audit())
        return await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Stop it."""
        if self._task is not None:
            await cancel_all([self._task])

    async def _audit(self) -> AuditReport:
        options = SurveyOptions(budget=BUDGET)
        report = await audit(
            self._url, self.service.catalogues, options, role=self.role, on_progress=self._set_progress
        )
        self.report, self.ended = report, time()
        return report

    def _set_progress(self, phase: str, done: int, total: int) -> None:
        self.phase, self.done, self.total = phase, done, total


class AuditRunner:
    """The audits of all servers."""

    def __init__(self, services: Sequence[Service]) -> None:
        self.servers = [
            ServerAudit(service, role, url, address_of(url))
            for service in services
            for role, url, _ in service.servers
        ]

    async def stop(self) -> None:
        """Stop all running audits."""
        await asyncio.gather(*(each.stop() for each in self.servers))
