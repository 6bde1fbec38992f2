"""USE3: `audit` advised `allkeys-lru` beside a Celery queue, then called the result a problem."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue, fixed, permanent
from ephemera.operations.audit import AuditReport, audit
from ephemera.operations.configuration import server_settings
from ephemera.operations.infer import infer

catalogue = Catalogue("mixed")
catalogue.counter("cache:{id}", lifetime=fixed(hours=1), purpose="x")
catalogue.counter("kept:{id}", lifetime=permanent(reason="x"), purpose="x")

KEYS = {
    "cache": "SET cache:1 1 EX 3600",
    "kept": "SET kept:1 1",
    "celery queue": "LPUSH celery {}",
    "celery result": "SET celery-task-meta-1 {} EX 86400",
    "unknown": "LPUSH emails {}",
}
MIXED = [
    ("cache",),
    ("kept",),
    ("celery queue",),
    ("cache", "celery queue"),
    ("cache", "unknown"),
    ("kept", "unknown"),
    ("kept", "celery queue"),
    ("cache", "celery queue", "celery result"),
    ("cache", "kept", "celery queue", "celery result", "unknown"),
]
SETTINGS = [
    {"maxmemory": memory, "maxmemory-policy": policy, "appendonly": log}
    for memory, policy, log in product(
        ("0", "100mb"), ("noeviction", "allkeys-lru", "volatile-lru"), ("no", "yes")
    )
]
_KINDS = {"evictable-queue", "unevictable-cache", "no-memory-limit", "unpersisted-queue", "persisted-cache"}


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    """A server that each test configures and empties."""
    with embedded.valkey() as running:
        yield running


def configured(server: Valkey, settings: dict[str, str], keys: tuple[str, ...]) -> None:
    """Give a server these settings and these keys."""
    server.ask("FLUSHALL")
    for name, value in settings.items():
        server.ask("CONFIG", "SET", name, value)
    for key in keys:
        server.ask(*KEYS[key].split())


def advised(report: AuditReport) -> list[str]:
    """The commands of all findings about the server, the ones that it takes itself."""
    found = (each for each in report.findings if each.kind in _KINDS)
    return list(dict.fromkeys(command for each in found for command in each.commands))


@pytest.mark.parametrize("keys", MIXED, ids=" and ".join)
async def test_use3_following_all_advice_leaves_none(server: Valkey, keys: tuple[str, ...]) -> None:
    """Whatever the settings: when all advice about a server has been followed, another audit has none."""
    for settings in SETTINGS:
        configured(server, settings, keys)
        followed = advised(await audit(server.url, [catalogue]))
        if any(command.startswith("ephemera server-config") for command in followed):
            await follow_for_each_role(server, keys)
            continue
        for command in followed:
            server.ask(*command.split())
        assert advised(await audit(server.url, [catalogue])) == [], (settings, followed)


async def follow_for_each_role(server: Valkey, keys: tuple[str, ...]) -> None:
    """A server for each role, configured as advised, holds its keys without further advice."""
    caches = tuple(key for key in keys if key in ("cache", "kept"))
    others = tuple(key for key in keys if key not in caches)
    for role, part in (("cache", caches), ("queue", others)):
        settings = {
            each.name: each.value
            for each in server_settings(role)  # type: ignore[arg-type]
            if each.name in ("maxmemory", "maxmemory-policy", "appendonly")
        }
        configured(server, settings, part)
        assert advised(await audit(server.url, [catalogue])) == [], role


@pytest.mark.parametrize("neighbour", ["celery queue", "unknown"])
async def test_use3_a_queue_is_never_made_evictable(server: Valkey, neighbour: str) -> None:
    """Beside a queue, known or not, no advice names a policy that evicts keys without a TTL."""
    for settings in SETTINGS:
        configured(server, settings, ("cache", "kept", neighbour))
        report = await audit(server.url, [catalogue])
        assert "allkeys" not in " ".join([*advised(report), *(each.advice for each in report.findings)])


async def test_use3_queues_of_other_libraries_are_not_proposed_as_caches(server: Valkey) -> None:
    """The keys of Celery, RQ and arq that hold work are proposed with role queue."""
    server.ask("FLUSHALL")
    for command in (
        "LPUSH celery {}",
        "HSET unacked 1 {}",
        "ZADD unacked_index 1 1",
        "SADD _kombu.binding.celery x",
        "LPUSH rq:queue:mails 1",
        "HSET rq:job:1 data x",
        "ZADD arq:queue 1 1",
        "SET arq:job:1 x EX 60",
    ):
        server.ask(*command.split())
    proposal = await infer(server.url)
    assert {each.role for each in proposal.keyspaces} == {"queue"}
