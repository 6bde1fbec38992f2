"""What each kind's own operations do and return."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from ephemera.embedded import valkey
from ephemera.errors import InvalidValue, UndecodableItems, WrongFields
from ephemera.keyspace import Catalogue, Lifetime, Store, Until, connect, fixed, permanent, sliding, until
from tests.keyspace.every_kind import Session

catalogue = Catalogue("accessors")
HOUR = fixed(hours=1)
HASH = catalogue.hash("acc:hash:{id}", Session, lifetime=HOUR, purpose="x")
VALUE = catalogue.value("acc:value:{id}", Session, lifetime=HOUR, purpose="x")
TEXT = catalogue.value("acc:text:{id}", str, lifetime=HOUR, purpose="x")
SLIDING = catalogue.value("acc:sliding:{id}", str, lifetime=sliding(hours=1), purpose="x")
COUNTER = catalogue.counter("acc:counter:{id}", lifetime=HOUR, purpose="x")
FLAG = catalogue.flag("acc:flag:{id}", lifetime=HOUR, purpose="x")
SET = catalogue.set("acc:set:{id}", int, lifetime=HOUR, purpose="x")
SORTED = catalogue.sorted_set("acc:sorted:{id}", str, lifetime=HOUR, purpose="x")
LIST = catalogue.list("acc:list:{id}", Session, max_length=3, lifetime=HOUR, purpose="x")
STREAM = catalogue.stream("acc:stream:{id}", Session, max_length=3, lifetime=HOUR, purpose="x")
MAPPING = catalogue.mapping("acc:mapping:{id}", int, lifetime=HOUR, purpose="x")
CHANNEL = catalogue.channel("acc:channel:{id}", Session, purpose="x")


class Token(msgspec.Struct):
    name: str
    expires: int


TOKEN = catalogue.value("acc:token:{id}", Token, lifetime=until(lambda token: token.expires), purpose="x")


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store with the keyspaces of this module."""
    async with connect(url, catalogue) as opened:
        yield opened


async def test_a_hash_is_replaced_as_a_whole(store: Store, key: str) -> None:
    """A put removes everything that the key held, including fields of other programs."""
    await store.call("HSET", HASH.key(id=key), "junk", "1", "_v", "older1")
    assert await store[HASH].get(id=key) is None
    await store[HASH].put(Session("ann", 3), id=key)
    assert await store[HASH].get(id=key) == Session("ann", 3)
    assert await store.call("HEXISTS", HASH.key(id=key), "junk") == 0
    assert await store[HASH].exists(id=key)
    assert await store[HASH].delete(id=key)
    assert not await store[HASH].delete(id=key)


@pytest.mark.parametrize("fields", [1, 31, 32, 60])
@pytest.mark.parametrize("lifetime", [HOUR, sliding(hours=1)], ids=["fixed", "sliding"])
async def test_records_of_any_size_are_read_alike(
    url: str, key: str, fields: int, lifetime: Lifetime
) -> None:
    """A record with few fields or many is found, missing, or counted as undecodable, including in a batch."""
    record = msgspec.defstruct("Wide", [(f"field_{number}", int) for number in range(fields)])
    sized = Catalogue("sized")
    keyspace = sized.hash("acc:sized:{id}", record, lifetime=lifetime, purpose="x")
    wide = record(*range(fields))
    async with connect(url, sized) as store:
        await store[keyspace].put(wide, id=key)
        await store.call("HSET", keyspace.key(id=f"{key}-old"), "field_0", "1", "_v", "older1")
        keys = [{"id": key}, {"id": f"{key}-old"}, {"id": f"{key}-none"}]
        assert await store[keyspace].get_many(keys) == [wide, None, None]
        assert [await store[keyspace].get(**each) for each in keys] == [wide, None, None]
        stats = store[keyspace].stats
        assert (stats.hits, stats.misses, stats.undecodable) == (2, 4, 2)
        assert stats.bytes_read > 2 * fields


async def test_an_update_never_revives_a_hash(store: Store, key: str) -> None:
    """Updating a hash that is gone, or of another layout, does nothing and returns False."""
    assert not await store[HASH].update({"visits": 1}, id=key)
    assert not await store[HASH].exists(id=key)
    await store.call("HSET", HASH.key(id=key), "user", "x", "_v", "older1")
    assert not await store[HASH].update({"visits": 1}, id=key)
    await store[HASH].put(Session("ann"), id=key)
    assert await store[HASH].update({"visits": 7, "roles": ["x"]}, id=key)
    assert await store[HASH].get(id=key) == Session("ann", 7, ["x"])


async def test_updates_racing_a_deletion_leave_nothing(store: Store, key: str) -> None:
    """However updates and a delete interleave, no part of a hash is left."""
    await store[HASH].put(Session("ann"), id=key)
    updates = [store[HASH].update({"visits": n}, id=key) for n in range(50)]
    await asyncio.gather(*updates[:25], store[HASH].delete(id=key), *updates[25:])
    assert not await store[HASH].exists(id=key)


async def test_a_value_is_put_if_absent(store: Store, key: str) -> None:
    """The first one wins, and a later attempt changes neither the value nor its TTL."""
    assert await store[TEXT].put_if_absent("first", id=key)
    await store.call("PEXPIRE", TEXT.key(id=key), 5_000)
    assert not await store[TEXT].put_if_absent("second", id=key)
    assert await store[TEXT].get(id=key) == "first"
    assert await store.call("PTTL", TEXT.key(id=key)) <= 5_000


async def test_a_lifetime_derived_from_the_value(store: Store, key: str) -> None:
    """A token is stored until it expires, and an expired one is not stored."""
    now = int((await store.call("TIME"))[0])
    assert await store[TOKEN].put(Token("live", now + 60), id=key)
    assert 0 < await store.call("PTTL", TOKEN.key(id=key)) <= 60_000
    assert not await store[TOKEN].put(Token("dead", now - 60), id=key)
    assert (
        await store[TOKEN].put_many([({"id": key}, Token("later", now + 90)), ({"id": "x"}, Token("no", 0))])
        == 1
    )
    assert await store[TOKEN].get(id=key) == Token("later", now + 90)
    assert await store[TOKEN].put_if_absent(Token("x", now + 60), id=key) is False


async def test_a_counter_counts(store: Store, key: str) -> None:
    """Additions return the new count; an absent counter is 0."""
    counter = store[COUNTER]
    assert await counter.get(id=key) == 0
    assert await counter.add(id=key) == 1
    assert await counter.add(-5, id=key) == -4
    assert await counter.add_many([({"id": key}, 4), ({"id": key}, 1)]) == [0, 1]
    assert await counter.get_many([{"id": key}, {"id": key + "none"}]) == [1, 0]
    await store.call("SET", COUNTER.key(id=key), "many")
    assert await counter.get(id=key) == 0
    assert counter.stats.undecodable == 1


async def test_one_caller_sets_a_flag(store: Store, key: str) -> None:
    """Of many who set a flag at once, exactly one gets True."""
    flag = store[FLAG]
    firsts = await asyncio.gather(*(flag.set_if_absent(id=key) for _ in range(20)))
    assert sum(firsts) == 1
    assert await flag.are_set([{"id": key}, {"id": key + "none"}]) == [True, False]
    assert await flag.clear(id=key)
    assert not await flag.clear(id=key)
    assert not await flag.is_set(id=key)


async def test_a_set(store: Store, key: str) -> None:
    """Members are decoded to their type; sizes and counts are the server's."""
    numbers = store[SET]
    assert await numbers.add(1, 2, 2, id=key) == 2
    assert await numbers.add(*range(10_000), id=key) == 9_998
    assert await numbers.size(id=key) == 10_000
    assert await numbers.contains(5, id=key)
    assert not await numbers.contains(-5, id=key)
    assert await numbers.remove(*range(9_999), 77_777, id=key) == 9_999
    assert await numbers.members(id=key) == {9_999}
    await store.call("SADD", SET.key(id=key), "x")
    assert await numbers.members(id=key) == {9_999}
    assert numbers.stats.undecodable == 1


async def test_a_sorted_set(store: Store, key: str) -> None:
    """Members are ranked by score, found by score and removed by score."""
    board = store[SORTED]
    assert await board.add({"a": 1, "b": 2.5, "c": 3}, id=key) == 3
    assert await board.add({"a": 1}, id=key) == 0
    assert await board.range(0, 1, id=key) == [("a", 1.0), ("b", 2.5)]
    assert await board.highest(2, id=key) == [("c", 3.0), ("b", 2.5)]
    assert await board.highest(0, id=key) == []
    assert await board.between(2, float("inf"), id=key) == [("b", 2.5), ("c", 3.0)]
    assert await board.between(0, 9, 1, id=key) == [("a", 1.0)]
    assert await board.increment("a", 4.5, id=key) == 5.5
    assert await board.score("a", id=key) == 5.5
    assert await board.score("none", id=key) is None
    assert await board.remove_between(3, 5.4, id=key) == 1
    assert await board.remove("b", "none", id=key) == 1
    assert await board.size(id=key) == 1


async def test_a_list_keeps_its_newest(store: Store, key: str) -> None:
    """Items are popped oldest first, and above the maximum the oldest are dropped."""
    items = store[LIST]
    people = [Session(name) for name in "abcde"]
    assert await items.push(people[0], id=key) == 1
    assert await items.push(*people[1:], id=key) == 3
    assert await items.range(id=key) == people[2:]
    assert await items.range(-1, -1, id=key) == people[4:]
    assert await items.pop(id=key) == people[2]
    assert await items.pop_many(5, id=key) == people[3:]
    assert await items.pop(id=key) is None
    assert await items.size(id=key) == 0
    assert await items.push(id=key) == 0


async def test_a_stream_keeps_its_newest(store: Store, key: str) -> None:
    """Entries have ids in order, and the length is exact."""
    stream = store[STREAM]
    ids = [await stream.append(Session(name), id=key) for name in "abcd"]
    assert await stream.size(id=key) == 3
    entries = await stream.range(id=key)
    assert [(entry_id, entry.user) for entry_id, entry in entries] == list(zip(ids[1:], "bcd", strict=True))
    assert await stream.range(f"({ids[1]}", "+", 1, id=key) == entries[1:2]
    assert await stream.newest(2, id=key) == entries[:0:-1]
    await store.call("XADD", STREAM.key(id=key), "*", "junk", "1")
    assert len(await stream.range(id=key)) == 3
    assert stream.stats.undecodable == 1


async def test_a_mapping(store: Store, key: str) -> None:
    """Entries are set one by one or replaced together; an undecodable entry is left out."""
    marks = store[MAPPING]
    assert await marks.set({"a": 1, "b": 2}, id=key)
    assert await marks.increment("a", 4, id=key) == 5
    assert await marks.get("a", id=key) == 5
    assert await marks.get("none", id=key) is None
    await store.call("HSET", MAPPING.key(id=key), "junk", "x")
    assert await marks.get_all(id=key) == {"a": 5, "b": 2}
    assert await marks.get_some(["b", "none", "junk"], id=key) == {"b": 2}
    assert await marks.remove("a", "none", id=key) == 1
    assert await marks.put({str(n): n for n in range(5_000)}, id=key)
    assert await marks.size(id=key) == 5_000
    assert await marks.put({}, id=key)
    assert not await marks.exists(id=key)


@pytest.mark.standalone("a node counts its own listeners alone")
async def test_a_channel(store: Store, key: str) -> None:
    """A message reaches subscribers as it was published."""
    channel = store[CHANNEL]
    assert await channel.publish(Session("no subscriber"), id=key) == 0
    async with store.subscribe(channel.name(id=key)) as messages:
        assert await channel.publish(Session("ann"), id=key) == 1
        async for message in messages:
            assert channel.decode(message.data) == Session("ann")
            break
    assert channel.stats.writes == 2


async def test_batches(store: Store, key: str) -> None:
    """Many keys are written, read and deleted together, in the given order."""
    ids = [{"id": f"{key}{n}"} for n in range(500)]
    people = [Session(f"user {n}", n) for n in range(500)]
    assert await store[VALUE].put_many(zip(ids, people, strict=True)) == 500
    assert await store[HASH].put_many(zip(ids[:300], people, strict=False)) == 300
    assert await store[VALUE].get_many(ids) == people
    assert await store[HASH].get_many(ids) == people[:300] + [None] * 200
    assert await store[VALUE].delete_many(ids[:10]) == 10
    assert await store[VALUE].delete_many(ids[:20]) == 10
    assert await store[VALUE].get_many([]) == []
    assert await store[VALUE].put_many([]) == 0


async def test_a_batch_with_a_wrong_item_writes_nothing(store: Store, key: str) -> None:
    """Everything is checked before the first command is sent."""
    good = ({"id": key}, Session("ann"))
    with pytest.raises(WrongFields):
        await store[VALUE].put_many([good, ({"di": key}, Session("bob"))])
    wrong: Any = "bob"
    with pytest.raises(InvalidValue):
        await store[VALUE].put_many([good, ({"id": key}, wrong)])
    assert not await store[VALUE].exists(id=key)


async def test_a_sliding_batch_renews_each_key(store: Store, key: str) -> None:
    """Reading many keys renews them all."""
    ids = [{"id": f"{key}{n}"} for n in range(3)]
    await store[SLIDING].put_many((fields, "x") for fields in ids)
    for fields in ids:
        await store.call("PEXPIRE", SLIDING.key(**fields), 5_000)
    assert await store[SLIDING].get_many(ids) == ["x", "x", "x"]
    assert all([await store.call("PTTL", SLIDING.key(**fields)) > 5_000 for fields in ids])


async def test_a_hostile_id_reaches_no_other_key(store: Store, key: str) -> None:
    """An id made of separators and globs is one key of its own keyspace."""
    hostile = f"{key}:x}}*?[\\%\n"
    await store[TEXT].put("mine", id=hostile)
    await store[TEXT].put("other", id=key)
    assert await store[TEXT].get(id=hostile) == "mine"
    assert catalogue.classify(TEXT.key(id=hostile).encode()) is TEXT
    assert await store[TEXT].delete(id=hostile)
    assert await store[TEXT].get(id=key) == "other"


class Job(msgspec.Struct):
    name: str


class JobWithRetries(msgspec.Struct):
    name: str
    retries: int


async def test_a_queue_keeps_items_that_do_not_fit(url: str, key: str) -> None:
    """Popping from a queue whose items lack a required field raises, and leaves every item there."""
    queued = permanent(reason="until it is done")
    before, after = Catalogue("before"), Catalogue("after")
    written = before.list("acc:queue:{id}", Job, role="queue", lifetime=queued, purpose="x")
    read = after.list("acc:queue:{id}", JobWithRetries, role="queue", lifetime=queued, purpose="x")
    async with connect(url, before) as old, connect(url, after) as new:
        await old[written].push(Job("a"), Job("b"), Job("c"), id=key)
        with pytest.raises(UndecodableItems, match="stay there"):
            await new[read].pop(id=key)
        with pytest.raises(UndecodableItems):
            await new[read].pop_many(10, id=key)
        assert await old[written].pop_many(10, id=key) == [Job("a"), Job("b"), Job("c")]


@pytest.mark.parametrize("lifetime", [until(outlives="x"), sliding(hours=1, outlives="x")])
async def test_undecodable_items_never_leave_a_queue(lifetime: Lifetime, key: str) -> None:
    """A pop that raises changes nothing on the server: no item is lost, and the TTL is the same."""
    queues = Catalogue("queues")
    space = queues.list("acc:work:{id}", Job, role="queue", lifetime=lifetime, purpose="x")
    end = time.time() + 60 if isinstance(lifetime, Until) else None
    with valkey() as server:
        async with connect(server.url, queues) as store:
            await store[space].push(Job("a"), until=end, id=key)
            await store.call("RPUSH", space.key(id=key), b"garbage")
            before = await _changes(store), await store.call("PEXPIRETIME", space.key(id=key))
            with pytest.raises(UndecodableItems):
                await store[space].pop_many(10, id=key)
            assert (await _changes(store), await store.call("PEXPIRETIME", space.key(id=key))) == before
            assert await store[space].pop(id=key) == Job("a")
            assert await store.call("PEXPIRETIME", space.key(id=key)) >= before[1]
            assert await store[space].size(id=key) == 1


async def _changes(store: Store) -> int:
    info: bytes = await store.call("INFO", "persistence")
    return int(info.split(b"rdb_changes_since_last_save:")[1].split()[0])


async def test_concurrent_consumers_get_each_item_once(url: str, key: str) -> None:
    """A consumer that was too slow gets the next items, in order, and no item is delivered twice."""
    queues = Catalogue("queues")
    keeping = permanent(reason="until it is done")
    space = queues.list("acc:work:{id}", Job, role="queue", lifetime=keeping, purpose="x")
    async with connect(url, queues) as one, connect(url, queues) as other:
        await one[space].push(*(Job(f"{number:03}") for number in range(100)), id=key)
        takers = [store[space].pop_many(4, id=key) for store in (one, other) for _ in range(15)]
        taken = [[job.name for job in jobs] for jobs in await asyncio.gather(*takers)]
        assert sorted(name for names in taken for name in names) == [f"{n:03}" for n in range(100)]
        assert all(names == sorted(names) for names in taken)
        assert sorted(map(len, taken)) == [0] * 5 + [4] * 25
        assert await one[space].pop_many(0, id=key) == []


async def test_an_undeclared_object_is_refused(store: Store) -> None:
    """`store["pattern"]` says that a declared keyspace is needed."""
    pattern: Any = "acc:hash:{id}"
    with pytest.raises(TypeError, match="declared keyspace or pattern"):
        store[pattern]
