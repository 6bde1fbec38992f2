"""The audit keeps to its time budget, reports what it left out, and can be resumed."""

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
    """A server with many keys of one keyspace."""
    await stock(own_valkey.url)
    async with open_client(own_valkey.url) as client:
        flat = [part for n in range(MANY) for part in (f"seen:{n}", "1")]
        await client.call("MSET", *flat)
    return own_valkey.url


async def test_a_budget_stops_the_audit_and_a_cursor_resumes_it(large: str) -> None:
    """Audits with no time see one page each, and together every key."""
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


async def test_a_partial_scan_estimates_the_total(large: str) -> None:
    """The unseen share is reported, and the number of keys is estimated with bounds."""
    report = await audited(large, budget=1e-9)
    assert any("of them): the time budget was used up" in each for each in report.coverage.not_seen)
    state = state_of(report, "seen:{user_id}")
    assert state.keys < MANY / 2
    assert state.estimated_keys is not None
    assert state.estimated_keys.high is not None
    assert state.estimated_keys.low <= MANY <= state.estimated_keys.high * 1.05
    assert of_kind(report, "empty-keyspace") == []  # unknown after a partial scan


async def test_uninspected_samples_are_counted(large: str) -> None:
    """When the budget ends before the samples are inspected, the report says how many were not."""
    report = await audited(large, budget=1e-9)
    assert any(
        "of the sampled keys: the time budget was used up" in each for each in report.coverage.not_seen
    )
    assert report.impact.lookups == 0


async def test_a_cursor_of_a_restarted_server_is_refused() -> None:
    """A restart changes the order of keys, so an old cursor is refused."""
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
async def test_an_invalid_cursor_is_refused(own_valkey: Valkey, cursor: str) -> None:
    """A cursor in another format is refused with the reason."""
    with pytest.raises(InvalidCursor):
        await audited(own_valkey.url, cursor=cursor)


async def test_progress_is_reported(large: str) -> None:
    """Both phases report their progress up to the end."""
    progress: dict[str, tuple[int, int]] = {}
    await audit(
        large, [catalogue], on_progress=lambda phase, done, total: progress.update({phase: (done, total)})
    )
    assert progress["names"][0] >= progress["names"][1] > MANY
    assert progress["samples"][0] == progress["samples"][1] > 0


async def test_other_databases_are_reported_as_not_seen(own_valkey: Valkey) -> None:
    """Keys in databases that the URL does not select are reported as not seen."""
    await stock(own_valkey.url)
    async with open_client(f"{own_valkey.url}/3") as client:
        await client.call("SET", "else", "where")
    report = await audited(own_valkey.url)
    assert any("db3 (1 keys)" in each for each in report.coverage.not_seen)
    assert report.unknown.keys == 0


async def test_a_lost_connection_leaves_a_report() -> None:
    """When the server dies during the audit, the report covers what was seen."""
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
