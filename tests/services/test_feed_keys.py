"""What feed keeps in Redis is what its design says, documented, what an audit finds, and lives as long."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from ephemera.embedded import Valkey
from ephemera.operations.audit import audit
from ephemera.operations.documentation import as_markdown
from ephemera_services.feed import catalogue
from tests.cli.commands import ephemera
from tests.services.feed_fixtures import World, feed_fixtures

PAGE = Path(__file__).parents[2] / "docs" / "services" / "feed.md"
DAY = 86_400

DESIGNED = [
    ("ch:{channel_id}", "hash", 2 * DAY),
    ("hwm:{user_id}", "mapping", 2 * DAY),
    ("us:{user_id}", "hash", 2 * DAY),
    ("dirty:channels", "sorted_set", 7 * DAY),
    ("enq:user:{user_id}", "flag", 300),
    ("lock:user:{user_id}", "value", 10),
    ("lock:planner", "value", 30),
    ("lock:feed:{user_id}", "value", 30),
]


@pytest.mark.parametrize(("pattern", "kind", "seconds"), DESIGNED)
def test_the_designs_keys_are_declared_as_designed(pattern: str, kind: str, seconds: int) -> None:
    """Each key of the design has its pattern, kind and longest life."""
    (space,) = [each for each in catalogue if each.pattern == pattern]
    assert space.kind == kind
    assert space.lifetime.milliseconds == seconds * 1000


def test_the_page_is_made_from_the_catalogue() -> None:
    """docs/services/feed.md is what `ephemera catalogue feed --format markdown` prints."""
    assert PAGE.read_text(encoding="utf-8") == as_markdown(catalogue)
    assert ephemera("catalogue", "feed", "--format", "markdown").out == as_markdown(catalogue)


async def test_every_lifetime_is_read_back_from_the_server(valkey: Valkey, places: dict[str, str]) -> None:
    """Each key that a working service leaves has its keys lifetime, from now on, or none by design."""
    async with feed_fixtures(places, pro_novelty=3) as world:
        await _work(world)
        client = world.aggregator.store.client()
        seen = set()
        for key in cast("list[str]", valkey.ask("KEYS", "*")):
            space = world.declared.catalogue.classify(key.encode())
            assert space is not None, key
            left, longest = await client.call("PTTL", key), space.lifetime.milliseconds
            if longest is None:
                assert left == -1, key
            else:
                assert longest - 60_000 < left <= longest, (key, left, longest)
            seen.add(space.pattern)
        assert {pattern for pattern, _, _ in DESIGNED} <= seen
        assert "cluster_update" in seen


async def test_an_audit_of_a_server_it_has_worked_on_finds_nothing_wrong(
    valkey: Valkey, places: dict[str, str]
) -> None:
    """After all kinds of work: nothing unknown, endless, of a wrong type, too long-lived or unreadable."""
    async with feed_fixtures(places, pro_novelty=3) as world:
        await _work(world)
        report = await audit(valkey.url, [catalogue])
    wrong = {"unknown", "no-ttl", "wrong-type", "ttl-above-policy", "undecodable", "big-key", "misplaced"}
    assert [finding for finding in report.findings if finding.kind in wrong] == []
    assert report.unknown.keys == 0
    options = ("--url", valkey.url, "--catalogue", "feed", "--fail-on", ",".join(sorted(wrong)))
    shown = await asyncio.to_thread(ephemera, "audit", *options)
    assert shown.code == 0, shown.out


async def _work(world: World) -> None:
    """Leave something in every space: publish, tick, cluster, read, hand over, and hold each lock."""
    await world.aggregator.subscribe("ann", "news", "pro")
    await world.aggregator.subscribe("bob", "news", "pro")
    await world.publish("news", 4)
    await world.tick()
    await world.rebuild("ann")
    await world.aggregator.feed("ann")
    await world.publish("news", 3)
    await world.tick()
    await world.publish("news", 1)
    locks = [
        world.aggregator.store[world.declared.planner.keys.user_lock].hold(user_id="bob"),
        world.aggregator.store[world.declared.planner.keys.tick_lock].hold(),
        world.aggregator.store[world.declared.reading].hold(user_id="bob"),
    ]
    for lock in locks:
        await world.exits.enter_async_context(lock)
