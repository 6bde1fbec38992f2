"""A small service's catalogue and its keys on a server, for tests of the audit."""

from __future__ import annotations

from typing import Any

import msgspec

from ephemera.keyspace import Catalogue, connect, fixed, permanent, sliding
from ephemera.operations.audit import AuditReport, Finding, KeyspaceReport, audit
from ephemera.operations.survey import SurveyOptions


class Profile(msgspec.Struct):
    name: str
    visits: int = 0


class Event(msgspec.Struct):
    text: str


catalogue = Catalogue("shop")
SESSION = catalogue.hash(
    "session:{session_id}", Profile, lifetime=sliding(hours=1), sensitive=True, purpose="Who is signed in"
)
PROFILE = catalogue.value("profile:{user_id}", Profile, lifetime=fixed(minutes=5), purpose="Profiles")
HITS = catalogue.counter("hits:{page}:{day}", lifetime=fixed(days=2), purpose="Page views")
CART = catalogue.mapping("cart:{user_id}", int, lifetime=fixed(hours=1), purpose="Carts")
TAGS = catalogue.set("tags:{user_id}", str, lifetime=fixed(hours=1), purpose="Tags")
RANKS = catalogue.sorted_set("ranks:{board}", str, lifetime=fixed(hours=1), purpose="Ranks")
NEWS = catalogue.list("news:{user_id}", str, lifetime=fixed(hours=1), purpose="News")
SEEN = catalogue.flag("seen:{user_id}", lifetime=fixed(hours=1), purpose="Users who have seen it")
EVENTS = catalogue.stream(
    "events:{topic}",
    Event,
    max_length=100,
    lifetime=permanent(reason="trimmed by length"),
    role="queue",
    purpose="What happened",
)

KEYS = 9
"""Keys that `stock` writes, of every space one."""


async def stock(url: str) -> None:
    """Write a key of every keyspace, as declared, to an empty server."""
    async with connect(url, catalogue) as store:
        for node in store.client().nodes():
            await node.call("FLUSHALL")
        await store[SESSION].put(Profile("ann"), session_id="s3cret")
        await store[PROFILE].put(Profile("ann"), user_id=1)
        await store[HITS].add(page="home", day="2026-01-01")
        await store[CART].set({"apple": 2}, user_id=1)
        await store[TAGS].add("new", user_id=1)
        await store[RANKS].add({"ann": 1.0}, board="top")
        await store[NEWS].push("hello", user_id=1)
        await store[SEEN].set(user_id=1)
        await store[EVENTS].append(Event("start"), topic="all")


async def audited(url: str, **options: Any) -> AuditReport:
    """The report on a server."""
    return await audit(url, [catalogue], SurveyOptions(**options))


def of_kind(report: AuditReport, kind: str) -> list[Finding]:
    """The findings of one kind."""
    return [finding for finding in report.findings if finding.kind == kind]


def state_of(report: AuditReport, pattern: str) -> KeyspaceReport:
    """The report on one keyspace."""
    return next(space for space in report.keyspaces if space.pattern == pattern)
