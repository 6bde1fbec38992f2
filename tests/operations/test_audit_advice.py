"""Every finding has a figure and something to type, and what is typed is accepted."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from datetime import UTC, date, datetime

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.keyspace import connect
from ephemera.operations.audit import KINDS, Acceptance, AuditReport, audit
from ephemera.operations.survey import SurveyOptions
from tests.cli.commands import parsed
from tests.operations.audit_fixtures import catalogue, stock

DISTURBED: tuple[tuple[str | int, ...], ...] = (
    ("SET", "order:7:paid", "x"),
    ("UNLINK", "tags:1"),
    ("UNLINK", "profile:1"),
    ("HSET", "profile:1", "a", "b"),
    ("SET", "profile:2", "{", "EX", 60),
    ("SET", "profile:3", "x" * 2_000_000, "EX", 60),
    ("SET", "profile:4", '{"name": "ann"}'),
    ("SET", "profile:5", '{"name": "ann"}', "EX", 90_000),
    ("EXPIRE", "events:all", 600),
    ("XGROUP", "CREATE", "events:all", "readers", "0"),
)
ABOUT_SERVERS = {  # settings by the kinds that they cause, beside what every disturbed server has
    "evictable-queue": {"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"},
    "unevictable-cache": {"maxmemory": "100mb", "maxmemory-policy": "noeviction"},
    "memory-full": {"maxmemory": "4mb", "maxmemory-policy": "noeviction"},
    "no-memory-limit": {"maxmemory": "0"},
}
NOT_CAUSED = {"fragmented", "persistence-failing", "persisted-cache"}
"""Kinds that need a damaged machine, or a server without a queue."""


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    """A server with every deviation of keys."""
    with embedded.valkey() as running:
        yield running


async def disturbed(server: Valkey, settings: dict[str, str]) -> AuditReport:
    """An audit of a server with these settings and every deviation of keys."""
    for name, value in settings.items():
        server.ask("CONFIG", "SET", name, value)
    expired = Acceptance(finding="no-ttl", reason="a migration", until=date(2026, 1, 1), about="cart:*")
    return await audit(server.url, [catalogue], SurveyOptions(), role="cache", acceptances=[expired])


async def fill(server: Valkey) -> None:
    """Write every deviation of keys."""
    await stock(server.url)
    async with connect(server.url, catalogue) as store:
        for _ in range(300):
            await store.call("XADD", "events:all", "*", "text", "x")
        for command in DISTURBED:
            await store.call(*command)


async def test_every_finding_has_a_figure_and_a_command(server: Valkey) -> None:
    """Whatever the deviation: how much of it there is, why it matters, and what to type."""
    await fill(server)
    seen = set()
    for settings in ABOUT_SERVERS.values():
        for finding in (await disturbed(server, settings)).findings:
            seen.add(finding.kind)
            assert finding.keys is not None or re.search(r"\d", finding.message), finding
            assert finding.commands, finding
            assert finding.why, finding
    partial = await audit(server.url, [catalogue], SurveyOptions(budget=1e-9))
    (incomplete,) = (each for each in partial.findings if each.kind == "incomplete")
    assert incomplete.commands
    seen.add("incomplete")
    assert set(KINDS) - seen == NOT_CAUSED


async def test_the_commands_of_findings_are_accepted(server: Valkey) -> None:
    """The server runs those for it, and the command line knows those for the shell with all their options."""
    await fill(server)
    reports = [await disturbed(server, settings) for settings in ABOUT_SERVERS.values()]
    reports.append(await audit(server.url, [catalogue], SurveyOptions(budget=1e-9)))
    commands = {each for report in reports for finding in report.findings for each in finding.commands}
    for command in commands:
        program, *words = command.split()
        if program == "ephemera":
            options = {option for parameter in parsed(words[0]).params for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= options, command
        elif program == "until":
            assert tomllib.loads(command)["until"] > datetime.now(UTC).date()
        else:
            server.ask(program, *words)  # an error would be raised
