"""Replaying handled events to one group, from a time or an id on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from ephemera import Catalogue, Store, keyspace
from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.patterns.events import DeliveryPolicy, Events, OnceGuard
from tests.patterns.event_fixtures import Removed, Seen, settled, until
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors"]

CATALOGUE = Catalogue("test-replayed-events")
KEPT = Events(
    CATALOGUE,
    "retained:{name}",
    Removed,
    purpose="Events that stay for an hour",
    delivery=DeliveryPolicy(retention=timedelta(hours=1)),
)


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store for events, on Valkey, Redis 7 and a cluster."""
    async with keyspace.connect(url, CATALOGUE) as opened:
        yield opened


async def _handled(store: Store, key: str, count: int) -> tuple[list[str], Seen, Seen]:
    """Publish events, and have two groups handle them."""
    mailer, other = Seen(), Seen()
    async with (
        store[KEPT].consume("mailer", mailer, concurrency=1, name=key),
        store[KEPT].consume("other", other, concurrency=1, name=key),
    ):
        ids = await store[KEPT].publish_many([Removed(str(number)) for number in range(count)], name=key)
        await settled(store, KEPT, name=key)
    return ids, mailer, other


async def test_events_are_replayed_to_one_group(store: Store, key: str) -> None:
    """From an id to another, events come once more to this group only, with their first ids, in order."""
    ids, _, _ = await _handled(store, key, 6)
    mailer, other = Seen(), Seen()
    done = await store[KEPT].replay_since("mailer", ids[1], until=ids[3], name=key)
    assert (done.replayed, done.following) == (3, None)
    async with (
        store[KEPT].consume("mailer", mailer, concurrency=1, name=key),
        store[KEPT].consume("other", other, name=key),
    ):
        await settled(store, KEPT, name=key)
        again = await store[KEPT].replay_since("mailer", ids[1], until=ids[3], name=key)
        await settled(store, KEPT, name=key)
    assert again.replayed == 3  # the replayed ones are not replayed themselves
    assert mailer.users == ["1", "2", "3"] * 2
    assert [delivery.origin for delivery in mailer.deliveries] == ids[1:4] * 2
    assert other.users == []


async def test_a_time_is_a_bound_and_a_limit_can_be_continued(store: Store, key: str) -> None:
    """Everything since a time is replayed in parts of the limit; nothing is since a later time."""
    ids, _, _ = await _handled(store, key, 250)
    began = datetime.fromtimestamp(int(ids[0].partition("-")[0]) / 1000, UTC)
    first = await store[KEPT].replay_since("mailer", began, limit=120, name=key)
    assert first.replayed == 120
    assert first.following is not None
    second = await store[KEPT].replay_since("mailer", first.following, limit=130, name=key)
    third = await store[KEPT].replay_since("mailer", second.following or "0", until=ids[-1], name=key)
    assert (second.replayed, third.replayed) == (130, 0 if second.following else 250)
    later = await store[KEPT].replay_since("mailer", began + timedelta(days=1), name=key)
    before = await store[KEPT].replay_since("mailer", "0", until=began - timedelta(seconds=1), name=key)
    assert (later.replayed, before.replayed) == (0, 0)


async def test_what_a_group_has_not_handled_is_not_replayed(store: Store, key: str) -> None:
    """Events that were not delivered yet, or are pending, come once."""
    await _handled(store, key, 1)
    call, stream = store.client("queue").call, KEPT.keys({"name": key}).stream
    await store[KEPT].publish_many([Removed("pending"), Removed("new")], name=key)
    await call("XREADGROUP", "GROUP", "mailer", "slow", "COUNT", 1, "STREAMS", stream, ">")
    done = await store[KEPT].replay_since("mailer", "0", name=key)
    assert done.replayed == 1
    mailer = Seen()
    async with store[KEPT].consume("mailer", mailer, concurrency=1, name=key):

        async def both() -> bool:
            return len(mailer.users) == 2

        await until(both)
    assert mailer.users == ["new", "0"]


async def test_a_replay_is_no_new_event_for_sql_unless_it_is_asked_for(store: Store, key: str) -> None:
    """The guard gets the same id after a replay, and a new one with `again`, even for ids of your own."""
    ids, mailer, _ = await _handled(store, key, 1)
    once, first = OnceGuard(), mailer.deliveries[0]
    await store[KEPT].replay_since("mailer", ids[0], name=key)
    await store[KEPT].replay_since("mailer", ids[0], until=ids[0], again=True, name=key)
    async with store[KEPT].consume("mailer", mailer, concurrency=1, name=key):

        async def both() -> bool:
            return len(mailer.deliveries) == 3

        await until(both)
    _, same, new = mailer.deliveries
    assert once.values(same) == once.values(first)
    assert once.values(same, event="mine")["event"] == "mine"
    assert new.origin.startswith(f"{ids[0]}~")
    assert once.values(new)["event"] == new.origin
    assert once.values(new, event="mine")["event"] == f"mine~{new.origin.partition('~')[2]}"


async def test_retained_events_are_trimmed_by_their_age(store: Store, key: str) -> None:
    """Events older than the retention that every group has handled are removed, and the others stay."""
    call, stream = store.client("queue").call, KEPT.keys({"name": key}).stream
    await call("XADD", stream, "1000-0", "event", '{"type":"Removed","user_id":"old"}')
    ids, _, _ = await _handled(store, key, 5)
    assert (await store[KEPT].info(name=key)).length == 5
    whole = await store[KEPT].replay_since("mailer", ids[0], name=key)
    assert (whole.replayed, whole.may_lack) == (5, False)
    assert (await store[KEPT].replay_since("mailer", "500-0", name=key)).may_lack


async def test_wrong_bounds_are_refused(store: Store, key: str) -> None:
    """A group that the stream does not have, a time without a zone, and a limit of nothing are refused."""
    bound = store[KEPT]
    await _handled(store, key, 1)
    with pytest.raises(InvalidValue, match="it has: mailer, other"):
        await bound.replay_since("mialer", "0", name=key)
    with pytest.raises(InvalidValue, match="it has: none"):
        await bound.replay_since("mailer", "0", name=f"{key}-none")
    with pytest.raises(InvalidValue, match="time zone"):
        await bound.replay_since("mailer", datetime(2026, 1, 1), name=key)
    with pytest.raises(InvalidValue, match="until"):
        await bound.replay_since("mailer", "0", until="yesterday", name=key)
    with pytest.raises(InvalidValue, match="limit"):
        await bound.replay_since("mailer", "0", limit=0, name=key)
    with pytest.raises(InvalidDeclaration, match="retention"):
        Events(
            Catalogue("negative-retention"),
            "a:b",
            Removed,
            purpose="Negative",
            delivery=DeliveryPolicy(retention=timedelta(-1)),
        )
