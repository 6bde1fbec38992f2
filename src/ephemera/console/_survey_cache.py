"""Surveys of the services' servers, run in the background and shared by all pages.

    surveys.refresh_if_stale()       # a page is open: start a survey, unless the last one is recent
    surveys.of(service).keyspaces    # pattern -> result, without a round trip

See `ephemera.operations.survey`: names by SCAN, then a sample of each keyspace, in at most `BUDGET` seconds.
Surveys run only while a page is open. Values of sensitive keyspaces are not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import time
from typing import Any

from ephemera._futures import cancel_all
from ephemera.console._connections import Service, address_of, commands_sent
from ephemera.console._sampled_entries import UNDECODABLE, SampledEntry, content_reader, sampled_entries
from ephemera.errors import EphemeraError
from ephemera.keyspace import RESERVED, Keyspace, Role
from ephemera.operations.audit import (
    NO_TTL,
    Coverage,
    KeyspaceReport,
    KeyUse,
    UnknownKeys,
    coverage_of,
    estimate_all_keys,
    keyspace_report,
    read_signs,
    undeclared_uses,
    unknown_keys,
)
from ephemera.operations.libraries import needs_content
from ephemera.operations.survey import ServerInfo, Survey, SurveyOptions, open_servers, survey

log = logging.getLogger(__name__)
BUDGET = 5.0
"""Time limit of a survey of one server, in seconds."""
MAX_AGE = 20.0
"""Seconds after which a result is stale."""
_SAMPLE = 60  # keys inspected per keyspace
_RETRY_AFTER = 3.0  # seconds after a failure


@dataclass(frozen=True)
class KeyspaceSurvey:
    """The survey of one declared keyspace."""

    keyspace: Keyspace[Any]
    report: KeyspaceReport
    entries: list[SampledEntry]
    undecodable: int
    """Sampled keys whose contents do not decode as declared."""

    @property
    def without_ttl(self) -> int:
        """Sampled keys without a TTL."""
        return self.report.ttl.get(NO_TTL, 0)


@dataclass(frozen=True)
class ServiceSurvey:
    """The survey of one service."""

    at: float = 0.0
    """Unix time; 0: not surveyed yet."""
    keyspaces: dict[str, KeyspaceSurvey] = field(default_factory=dict)
    unknown: list[tuple[str, UnknownKeys]] = field(default_factory=list)
    """Undeclared keys by server."""
    undeclared: dict[Role | None, list[KeyUse]] = field(default_factory=dict)
    """What those need of the server of a role."""
    coverage: list[Coverage] = field(default_factory=list)
    servers: list[ServerInfo] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether every key was counted."""
        return all(each.complete for each in self.coverage)


class SurveyCache:
    """The last survey of each service."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = services
        self._surveys: dict[Service, ServiceSurvey] = {}
        self._failed: dict[Service, float] = {}  # when
        self._task: asyncio.Task[None] | None = None
        self.progress: tuple[str, int, int] = ("", 0, 0)
        """The current phase, how much of it is done, and the total."""

    def of(self, service: Service) -> ServiceSurvey:
        """The last survey of a service."""
        return self._surveys.get(service, ServiceSurvey())

    @property
    def running(self) -> bool:
        """Whether a survey is running."""
        return self._task is not None and not self._task.done()

    def refresh_if_stale(self) -> None:
        """Start a survey of the services whose last one is stale."""
        if self.running:
            return
        now = time()
        due = [
            service
            for service in self._services
            if now - self.of(service).at >= MAX_AGE and now - self._failed.get(service, 0.0) >= _RETRY_AFTER
        ]
        if due:
            self._task = asyncio.create_task(self._run(due))

    async def stop(self) -> None:
        """Stop the running survey."""
        if self._task is not None:
            await cancel_all([self._task])

    async def _run(self, due: list[Service]) -> None:
        for service in due:
            try:
                self._surveys[service] = await self._survey(service)
            except EphemeraError:  # the banner shows it; keep the last result
                self._failed[service] = time()
            except Exception:
                self._failed[service] = time()
                log.exception("a survey failed")

    async def _survey(self, service: Service) -> ServiceSurvey:
        keyspaces = [each for each in (*RESERVED, *service.keyspaces) if each.kind != "channel"]
        found = ServiceSurvey(at=time())
        started = time()
        for role, url, _ in service.servers:
            async with open_servers(url) as nodes:
                options = SurveyOptions(sample=_SAMPLE, budget=BUDGET)
                try:
                    result = await survey(
                        nodes,
                        keyspaces,
                        options,
                        content_reader,
                        self._set_progress,
                        read_signs,
                        needs_content,
                    )
                finally:
                    sent = commands_sent(node for node, _ in nodes)
                    service.survey_commands[address_of(url)] += sent
            _add(found, result, role)
        return replace(found, at=time(), seconds=time() - started)

    def _set_progress(self, phase: str, done: int, total: int) -> None:
        self.progress = (phase, done, total)


def _add(found: ServiceSurvey, result: Survey, role: Role | None) -> None:
    """Add one server's survey of the keyspaces that belong there."""
    declared = []
    for sample in result.samples:
        keyspace = sample.keyspace
        if keyspace is None or keyspace.catalogue == RESERVED.name:
            continue
        declared.append(keyspace)
        if role in (None, keyspace.role):
            undecodable = sum(key.content == UNDECODABLE for key in sample.keys)
            report = keyspace_report(sample, keyspace, estimate_all_keys(result, sample.count))
            entries = sampled_entries(sample, keyspace)
            found.keyspaces[keyspace.pattern] = KeyspaceSurvey(keyspace, report, entries, undecodable)
    for scan in result.scans[:1]:
        unknown = unknown_keys(result, declared)
        found.unknown.append((scan.info.name, unknown))
        found.undeclared[role] = undeclared_uses(unknown)
    found.coverage.append(coverage_of(result))
    found.servers.extend(scan.info for scan in result.scans)
