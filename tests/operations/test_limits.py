"""Throttled subjects: those that a limit denied and would deny again."""

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
    """A server, and a cluster; subjects denied by other tests are not listed."""
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
async def test_a_denied_subject_is_listed_with_the_rule(store: Store, rule: Any) -> None:
    """For every algorithm: subject, rule, limit, nothing remaining, and the wait."""
    subject = new_subject()
    await deny(store, rule.on(subject))
    (seen,) = await listed(store, subject)
    assert (seen.rule, seen.limit, seen.remaining, seen.cost) == (rule.name, 5, 0, 1)
    assert seen.is_throttled
    assert seen.retry_after is not None
    assert seen.retry_after > 0


async def test_the_applied_limit_is_listed(store: Store) -> None:
    """A tier's limit and an individual limit are listed as they were applied."""
    tiered, agreed = new_subject(), new_subject()
    await deny(store, TIERED_LOG["pro"].on(tiered))
    await deny(store, LOG.at(2).on(agreed))
    (seen,) = await listed(store, tiered)
    assert (seen.limit, seen.tier) == (6, "pro")
    (seen,) = await listed(store, agreed)
    assert (seen.limit, seen.tier) == (2, "")


async def test_a_denied_cost_is_listed(store: Store) -> None:
    """A denial of four units with three left is listed with its cost."""
    subject = new_subject()
    await store[LIMITS].check(LOG.on(subject), cost=2)
    await deny(store, LOG.on(subject), cost=4)
    (seen,) = await listed(store, subject)
    assert (seen.cost, seen.remaining) == (4, 3)


async def test_a_reset_allows_the_subject_again(store: Store) -> None:
    """After a reset the subject is allowed again, including in a process that remembers the denial."""
    subject = new_subject()
    await deny(store, WINDOW.on(subject))
    await listed(store, subject)
    await reset_limit(store, LIMITS, "window", [subject])
    assert [each for each in await throttled_subjects(store, LIMITS) if each.subject == (subject,)] == []
    assert await store[LIMITS.denied].size() == 0
    assert (await store[LIMITS].check(WINDOW.on(subject))).allowed


async def test_any_subject_can_be_listed_and_reset(store: Store) -> None:
    """Text with an escaped byte and bytes are denied, shown, and reset."""
    for odd in (f"{new_subject()}:\udcff%", f"{new_subject()}é".encode()):
        await deny(store, WINDOW.on(odd))
        text = odd if isinstance(odd, str) else odd.decode()
        (seen,) = await listed(store, text)
        assert seen.subject_text.encode().decode() == text.replace("\udcff", "\\udcff")
        await reset_limit(store, LIMITS, "window", seen.subject)
        assert await store[LIMITS.denied].size() == 0
        assert (await store[LIMITS].check(WINDOW.on(odd))).allowed


async def test_subjects_that_are_allowed_again_are_left_out(store: Store) -> None:
    """Listed subjects are checked again: a refund removes them early."""
    subject = new_subject()
    decision = await store[LIMITS].check(BUCKET.on(subject), cost=5)
    await deny(store, BUCKET.on(subject))
    await listed(store, subject)
    assert await store[LIMITS].refund(decision)
    assert [each for each in await throttled_subjects(store, LIMITS) if each.subject == (subject,)] == []


async def test_any_subject_can_be_looked_up(store: Store) -> None:
    """A subject's state at each tier is shown without consuming anything."""
    subject = new_subject()
    await store[LIMITS].check(TIERED_LOG["pro"].on(subject))
    free, pro = await limit_status(store, LIMITS, "tiered-log", [subject])
    assert [(each.tier, each.remaining, each.is_throttled) for each in (free, pro)] == [
        ("free", 1, False),
        ("pro", 5, False),
    ]
    again, _ = await limit_status(store, LIMITS, "tiered-log", [subject])
    assert again.remaining == free.remaining


async def test_the_list_is_bounded_and_expires(store: Store) -> None:
    """The number of listed subjects is bounded, and the key expires with its denials."""
    await asyncio.gather(*(deny(store, LOG.at(0).on(f"crowd-{number}")) for number in range(300)))

    async def there() -> bool:
        return await store[LIMITS.denied].size() >= 200

    await until(there)
    assert await store[LIMITS.denied].size() <= MAX_LOGGED
    left = await store.call("PTTL", LIMITS.denied.key())
    assert 0 < left <= 86_400_000


async def test_invalid_list_entries_are_ignored(store: Store) -> None:
    """Invalid texts and denials of removed rules do not hide others."""
    subject = new_subject()
    await deny(store, WINDOW.on(subject))
    await listed(store, subject)
    strange = ("<b>", '["gone",1,1,["x"]]', '["window",1,1,["a","b"]]', '["window",-5,1,["a"]]')
    for text in strange:
        await store.call("ZADD", LIMITS.denied.key(), "9e15", text)
    assert [each.subject for each in await throttled_subjects(store, LIMITS)] == [(subject,)]


async def test_an_unavailable_server_raises() -> None:
    """With Redis down the call raises instead of showing an empty list."""
    async with connect("redis://127.0.0.1:1", CATALOGUE, required=False) as unavailable:
        with pytest.raises(ConnectionFailed):
            await throttled_subjects(unavailable, LIMITS)
