"""Who is being throttled: whom a limiter denied and would deny again, at the limit that really held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ephemera.errors import ConnectionFailed
from ephemera.keyspace import Store, connect
from ephemera.operations.inspect import LimitStatus, limit_status, reset_limit, throttled_subjects
from ephemera.patterns.rate_limits import MAX_LOGGED, Claim
from tests.patterns.limit_fixtures import (
    BUCKET,
    CATALOGUE,
    KINDS,
    LIMITS,
    LOG,
    TIERED_LOG,
    WINDOW,
    new_subject,
)
from tests.patterns.lock_fixtures import until


@pytest.fixture(params=["server", "cluster"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A server, and a cluster; whom other tests had denied is not listed."""
    async with connect(request.getfixturevalue(request.param).url, CATALOGUE) as opened:
        await opened[LIMITS.denied].delete()
        yield opened


async def deny(store: Store, claim: Claim, cost: int = 1) -> None:
    """Use a claim until it is denied."""
    while (await store[LIMITS].check(claim, cost=cost)).allowed:
        pass


async def listed(store: Store, subject: str) -> list[LimitStatus]:
    """The throttled claims of a subject, once it is listed."""
    found: list[LimitStatus] = []

    async def there() -> bool:
        found[:] = [each for each in await throttled_subjects(store, LIMITS) if each.subject == (subject,)]
        return bool(found)

    await until(there)
    return found


@pytest.mark.parametrize("rule", KINDS, ids=lambda rule: rule.name)
async def test_whom_a_rule_denied_is_listed_with_the_rule(store: Store, rule: Any) -> None:
    """Of every algorithm: the subject, the rule, its limit, nothing left, and how long it must wait."""
    subject = new_subject()
    await deny(store, rule.on(subject))
    (seen,) = await listed(store, subject)
    assert (seen.rule, seen.limit, seen.remaining, seen.cost) == (rule.name, 5, 0, 1)
    assert seen.is_throttled
    assert seen.retry_after is not None
    assert seen.retry_after > 0


async def test_the_limit_that_held_is_what_is_listed(store: Store) -> None:
    """A tier's limit and one agreed with a customer are listed as they were, whatever is declared."""
    tiered, agreed = new_subject(), new_subject()
    await deny(store, TIERED_LOG["pro"].on(tiered))
    await deny(store, LOG.at(2).on(agreed))
    (seen,) = await listed(store, tiered)
    assert (seen.limit, seen.tier) == (6, "pro")
    (seen,) = await listed(store, agreed)
    assert (seen.limit, seen.tier) == (2, "")


async def test_who_asked_for_too_much_is_throttled_for_that(store: Store) -> None:
    """A denial of four units with three left is one, and says so."""
    subject = new_subject()
    await store[LIMITS].check(LOG.on(subject), cost=2)
    await deny(store, LOG.on(subject), cost=4)
    (seen,) = await listed(store, subject)
    assert (seen.cost, seen.remaining) == (4, 3)


async def test_a_reset_makes_room_and_takes_off_the_list(store: Store) -> None:
    """After a reset the subject passes again, here and in a process that remembers the denial."""
    subject = new_subject()
    await deny(store, WINDOW.on(subject))
    await listed(store, subject)
    await reset_limit(store, LIMITS, "window", [subject])
    assert [each for each in await throttled_subjects(store, LIMITS) if each.subject == (subject,)] == []
    assert await store[LIMITS.denied].size() == 0
    assert (await store[LIMITS].check(WINDOW.on(subject))).allowed


async def test_whatever_can_be_counted_can_be_listed_and_reset(store: Store) -> None:
    """Text with an escaped byte, as JSON may carry it, and bytes are denied, shown, and named by a reset."""
    for odd in (f"{new_subject()}:\udcff%", f"{new_subject()}é".encode()):
        await deny(store, WINDOW.on(odd))
        text = odd if isinstance(odd, str) else odd.decode()
        (seen,) = await listed(store, text)
        assert seen.subject_text.encode().decode() == text.replace("\udcff", "\\udcff")
        await reset_limit(store, LIMITS, "window", seen.subject)
        assert await store[LIMITS.denied].size() == 0
        assert (await store[LIMITS].check(WINDOW.on(odd))).allowed


async def test_who_has_room_again_is_left_out(store: Store) -> None:
    """What is listed is asked for again: a refund makes room before the denial's time."""
    subject = new_subject()
    decision = await store[LIMITS].check(BUCKET.on(subject), cost=5)
    await deny(store, BUCKET.on(subject))
    await listed(store, subject)
    assert await store[LIMITS].refund(decision)
    assert [each for each in await throttled_subjects(store, LIMITS) if each.subject == (subject,)] == []


async def test_anybody_can_be_looked_up(store: Store) -> None:
    """A subject's standing at each tier, without taking anything."""
    subject = new_subject()
    await store[LIMITS].check(TIERED_LOG["pro"].on(subject))
    free, pro = await limit_status(store, LIMITS, "tiered-log", [subject])
    assert [(each.tier, each.remaining, each.is_throttled) for each in (free, pro)] == [
        ("free", 1, False),
        ("pro", 5, False),
    ]
    again, _ = await limit_status(store, LIMITS, "tiered-log", [subject])
    assert again.remaining == free.remaining


async def test_the_list_is_bounded_and_ends(store: Store) -> None:
    """However many are denied, so many are listed, under a key that lives no longer than its denials."""
    await asyncio.gather(*(deny(store, LOG.at(0).on(f"crowd-{number}")) for number in range(300)))

    async def there() -> bool:
        return await store[LIMITS.denied].size() >= 200

    await until(there)
    assert await store[LIMITS.denied].size() <= MAX_LOGGED
    left = await store.call("PTTL", LIMITS.denied.key())
    assert 0 < left <= 86_400_000


async def test_what_others_wrote_into_the_list_is_passed_over(store: Store) -> None:
    """Texts that are no denials, and denials of rules that are gone, do not keep others from being seen."""
    subject = new_subject()
    await deny(store, WINDOW.on(subject))
    await listed(store, subject)
    strange = ("<b>", '["gone",1,1,["x"]]', '["window",1,1,["a","b"]]', '["window",-5,1,["a"]]')
    for text in strange:
        await store.call("ZADD", LIMITS.denied.key(), "9e15", text)
    assert [each.subject for each in await throttled_subjects(store, LIMITS)] == [(subject,)]


async def test_without_a_server_it_says_so() -> None:
    """Nobody is shown as free because nobody could be asked."""
    async with connect("redis://127.0.0.1:1", CATALOGUE, required=False) as away:
        with pytest.raises(ConnectionFailed):
            await throttled_subjects(away, LIMITS)
