"""USE3: `audit` advised `allkeys-lru` beside a Celery queue, then called the result a problem."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue, fixed, permanent
from ephemera.operations.audit import AuditReport, audit, undeclared_uses
from ephemera.operations.configuration import server_settings
from ephemera.operations.health import Check, check_server
from ephemera.operations.infer import infer
from tests.cli.commands import ephemera

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


async def roles(server: Valkey, *, surveyed: bool) -> list[Check]:
    """The checks of the roles, with or without knowing the undeclared keys."""
    unknown = (await audit(server.url, [catalogue])).unknown if surveyed else None
    undeclared = None if unknown is None else undeclared_uses(unknown)
    health = await check_server(server.url, [catalogue], probes=1, undeclared=undeclared)
    return [check for check in health.servers[0].checks if check.name == "roles"]


@pytest.mark.parametrize("keys", MIXED, ids=" and ".join)
async def test_use3_the_doctors_advice_suits_all_keys(server: Valkey, keys: tuple[str, ...]) -> None:
    """A health check that knows the undeclared keys never evicts a queue, and is satisfied once obeyed."""
    for settings in SETTINGS:
        configured(server, settings, keys)
        found = await roles(server, surveyed=True)
        advice = " ".join(text for check in found for text in (check.advice, *check.commands))
        if set(keys) - {"cache", "kept"}:
            assert "allkeys" not in advice
        commands = [command for check in found for command in check.commands]
        if any(command.startswith("ephemera") for command in commands):
            continue  # a server for each role, which `test_use3_following_all_advice_leaves_none` follows
        for command in commands:
            server.ask(*command.split())
        left = [check for check in await roles(server, surveyed=True) if check.commands]
        assert left == [], (settings, commands)


async def test_use3_the_doctor_recommends_no_policy_for_keys_it_did_not_see(server: Valkey) -> None:
    """Without a survey no policy is named: the advice is an audit; without a catalogue nothing is judged."""
    for settings in SETTINGS:
        configured(server, settings, ("cache", "celery queue"))
        found = await roles(server, surveyed=False)
        texts = [text for check in found for text in (check.advice, *check.commands)]
        assert "policy allkeys" not in " ".join(texts)
        assert "use " not in " ".join(texts)
        assert not any("only caches" in check.figure for check in found)
        without = await check_server(server.url, probes=1)
        (unjudged,) = (each for each in without.servers[0].checks if each.name == "roles")
        assert (unjudged.status, "not judged" in unjudged.figure) == ("ok", True)


def test_use3_the_doctors_commands_are_shown(server: Valkey) -> None:
    """`ephemera doctor` prints the commands, with the severity of the audit's finding."""
    configured(
        server, {"maxmemory": "100mb", "maxmemory-policy": "noeviction", "appendonly": "yes"}, ("cache",)
    )
    here = ("--catalogue", "tests.defects.test_use3_advice_for_queues:catalogue", "--watch", "100ms")
    said = ephemera("doctor", "--url", server.url, *here).out
    assert "CONFIG SET maxmemory-policy allkeys-lru" in said
    assert "note roles: write none" in said
    server.ask("LPUSH", "emails", "{}")
    said = ephemera("doctor", "--url", server.url, *here).out
    assert "allkeys-lru" not in said


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
