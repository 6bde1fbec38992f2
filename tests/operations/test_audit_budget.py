"""The audit keeps to its budget, says what it left out, and goes on from there."""

from __future__ import annotations

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.errors import InvalidCursor
from ephemera.operations.audit import audit
from ephemera.operations.survey import _scan as scanning
from ephemera.wire import open_client
from tests.operations.audit_fixtures import audited, catalogue, of_kind, state_of, stock

MANY = 20_000


@pytest.fixture
async def large(own_valkey: Valkey) -> str:
    """A server with many keys of one space."""
    await stock(own_valkey.url)
    async with open_client(own_valkey.url) as client:
        flat = [part for n in range(MANY) for part in (f"seen:{n}", "1")]
        await client.call("MSET", *flat)
    return own_valkey.url


async def test_a_budget_stops_it_and_a_cursor_goes_on(large: str) -> None:
    """Audits with no time at all see a page each, and together every key."""
    cursor, counted, rounds = None, 0, 0
    while True:
        report = await audited(large, sample=0, budget=1e-9, cursor=cursor)
        counted += state_of(report, "seen:{user_id}").keys
        rounds += 1
        cursor = report.coverage.cursor
        assert report.coverage.resumed == (rounds > 1)
        if cursor is None:
            break
        assert not report.coverage.complete
        assert of_kind(report, "incomplete")
    assert counted >= MANY  # SCAN may give a name twice
    assert rounds >= MANY / scanning.PAGE_SIZE / 2


async def test_a_part_gives_an_estimate_of_the_whole(large: str) -> None:
    """What was not seen is told as a share, and the number of keys is estimated between bounds."""
    report = await audited(large, budget=1e-9)
    assert any("of them): the time budget was used up" in each for each in report.coverage.not_seen)
    state = state_of(report, "seen:{user_id}")
    assert state.keys < MANY / 2
    assert state.estimated_keys is not None
    assert state.estimated_keys.high is not None
    assert state.estimated_keys.low <= MANY <= state.estimated_keys.high * 1.05
    assert of_kind(report, "empty-keyspace") == []  # nobody can tell


async def test_samples_that_found_no_time_are_counted(large: str) -> None:
    """A budget that ends before the samples are looked at says how many were not."""
    report = await audited(large, budget=1e-9)
    assert any(
        "of the sampled keys: the time budget was used up" in each for each in report.coverage.not_seen
    )
    assert report.impact.lookups == 0


async def test_a_cursor_of_a_server_that_was_restarted_is_refused() -> None:
    """A restart gives keys another order, so an old cursor would skip some: it is refused."""
    with embedded.valkey() as server:
        async with open_client(server.url) as client:
            await client.call("MSET", *[part for n in range(5000) for part in (f"seen:{n}", "1")])
        cursor = (await audited(server.url, sample=0, budget=1e-9)).coverage.cursor
        assert cursor is not None
        server.kill()
        server.restart()
        with pytest.raises(InvalidCursor, match="restarted"):
            await audited(server.url, cursor=cursor)


@pytest.mark.parametrize("cursor", ["", "12", "x@12345678", "12@xyz", "12@12345678,"])
async def test_what_is_no_cursor_is_refused(own_valkey: Valkey, cursor: str) -> None:
    """A cursor that no report printed is refused with the reason."""
    with pytest.raises(InvalidCursor):
        await audited(own_valkey.url, cursor=cursor)


async def test_progress_is_told(large: str) -> None:
    """Both phases say how far they are, up to their end."""
    told: dict[str, tuple[int, int]] = {}
    await audit(
        large, [catalogue], on_progress=lambda phase, done, total: told.update({phase: (done, total)})
    )
    assert told["names"][0] >= told["names"][1] > MANY
    assert told["samples"][0] == told["samples"][1] > 0


async def test_other_databases_are_mentioned(own_valkey: Valkey) -> None:
    """Keys in databases that the URL does not name were not seen, and that is said."""
    await stock(own_valkey.url)
    async with open_client(f"{own_valkey.url}/3") as client:
        await client.call("SET", "else", "where")
    report = await audited(own_valkey.url)
    assert any("db3 (1 keys)" in each for each in report.coverage.not_seen)
    assert report.unknown.keys == 0


async def test_a_server_that_is_lost_leaves_a_report() -> None:
    """When the server dies on the way, what was seen is reported, and what was not."""
    with embedded.valkey() as server:
        async with open_client(server.url) as client:
            await client.call("MSET", *[part for n in range(50_000) for part in (f"seen:{n}", "1")])

        def kill(phase: str, done: int, total: int) -> None:
            if done >= 10_000:
                server.kill()

        report = await audit(server.url, [catalogue], on_progress=kill)
    assert report.coverage.lost == [report.servers[0].name]
    assert 10_000 <= report.coverage.names < 50_000
    assert any("the rest of the names of" in each for each in report.coverage.not_seen)
