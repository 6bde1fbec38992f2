"""A match day: windows on a moved clock, results on every process at once, and a source that fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from ephemera import connect
from ephemera.embedded import Postgres, Valkey
from ephemera_services.league import catalogue
from ephemera_services.league.keys import TABLE, WINDOWS
from tests.defects.service_apps import opened
from tests.services.league_pages import LeaguePages
from tests.services.league_users import LIVE_MATCH, TOKEN, league, referee, sql, until
from tests.services.services import Served

PREWARM, LASTS, GRACE = timedelta(minutes=45), timedelta(hours=2), timedelta(minutes=30)


@pytest.fixture(scope="module")
def first(places: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One process of a league."""
    with league(tmp_path_factory.mktemp("logs"), places) as running:
        yield running


@pytest.fixture(scope="module")
def second(
    first: Served, places: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Another process of the same league."""
    with league(tmp_path_factory.mktemp("logs"), places) as running:
        yield running


def test_a_week_ends_where_a_window_opens(
    first: Served, valkey: Valkey, places: dict[str, str], tmp_path: Path
) -> None:
    """A page of the eve ends at the opening; inside it lives for seconds, then until the next or a week."""
    (kickoff,) = sql(
        places, "SELECT min(kickoff) FROM league.matches WHERE kickoff > now() + interval '1 day'"
    )[0]
    (last,) = sql(
        places,
        f"SELECT max(kickoff) FROM league.matches WHERE kickoff < '{kickoff + timedelta(days=1)}'",
    )[0]
    eve = kickoff - PREWARM - timedelta(hours=2)
    page = _table_at(eve, valkey, places, tmp_path)
    assert timedelta(hours=1, minutes=58) < _fresh(page) <= timedelta(hours=2)
    sql(places, "UPDATE league.clubs SET name = 'Renamed' WHERE name = 'Vortex'")  # without invalidation
    opened = _table_at(kickoff - PREWARM + timedelta(minutes=1), valkey, places, tmp_path, again=True)
    assert _fresh(opened) == timedelta(seconds=30)
    assert b"Renamed" in opened.body
    assert opened.number > page.number
    closed = last + LASTS + GRACE + timedelta(minutes=1)
    after = _table_at(closed, valkey, places, tmp_path)
    following = sql(places, f"SELECT min(kickoff) FROM league.matches WHERE kickoff > '{closed}'")[0][0]
    assert abs(_fresh(after) - min(timedelta(days=7), following - PREWARM - closed)) < timedelta(minutes=2)
    sql(places, "UPDATE league.clubs SET name = 'Vortex' WHERE name = 'Renamed'")


async def test_three_settings_shape_the_windows(server: Valkey, postgres: Postgres) -> None:
    """A window opens and closes as they say, and a match that is too far ahead has none yet."""
    names = {"LOOKAHEAD_DAYS": "1", "PREWARM_MINUTES": "10", "POST_GRACE_MINUTES": "5"}
    settings = {f"EPHEMERA_LEAGUE_MATCH_WINDOW_{name}": value for name, value in names.items()}
    async with opened("league", server, postgres, {"EPHEMERA_LEAGUE_DEMO": "true", **settings}) as app:
        pages, windows = LeaguePages(app), app.service.store[WINDOWS]
        await pages.sql("UPDATE league.matches SET status = 'cancelled' WHERE id <> 33")

        async def following(hours: int) -> Any:
            kickoff = f"date_trunc('second', now()) + interval '{hours} hours'"
            updated = f"UPDATE league.matches SET kickoff = {kickoff} WHERE id = 33 RETURNING kickoff"
            ((kickoff_,),) = await pages.sql(updated)
            await windows.invalidate()
            return (await windows.now()).next, int(kickoff_.timestamp()) * 1000

        window, kickoff = await following(20)
        minutes = 60_000
        assert (window.opens, window.closes) == (kickoff - 10 * minutes, kickoff + (120 + 5) * minutes)
        assert (await following(25))[0] is None


def _fresh(page: Any) -> timedelta:
    return timedelta(milliseconds=page.fresh)


def _table_at(
    moment: datetime,
    valkey: Valkey,
    places: dict[str, str],
    folder: Path,
    *,
    again: bool = False,
) -> Any:
    """The table's page in Redis after a process has served it, for the first time or `again`."""
    before = asyncio.run(_page(valkey.url))
    ahead = {"EPHEMERA_LEAGUE_REHEARSE_AHEAD": f"{(moment - datetime.now(UTC)).total_seconds():.0f}s"}
    with league(folder, places, EPHEMERA_LEAGUE_PREWARM="false", **ahead) as served:
        if not again:
            asyncio.run(_page(valkey.url, forget=True))
        served.client.get("/api/league/table").raise_for_status()
        if not again:
            return asyncio.run(_page(valkey.url))

        def renewed() -> Any:  # the old page is served once more while it is refreshed
            served.client.get("/api/league/table").raise_for_status()
            page = asyncio.run(_page(valkey.url))
            return page if page is not None and page.number != before.number else None

        return until(renewed)


async def _page(url: str, *, forget: bool = False) -> Any:
    async with connect(url, catalogue) as store:
        if forget:
            await store.call("DEL", TABLE.at().key)
        entry = await store[TABLE.cache.keyspace].get()
        return None if entry is None else entry.value


def test_prewarming_loads_before_the_first_request(
    first: Served, valkey: Valkey, places: dict[str, str], tmp_path: Path
) -> None:
    """After the endpoint has run, the pages of a match day are there: a first visitor causes no load."""
    valkey.ask("FLUSHALL")
    first.client.post("/api/cache/prewarm", headers={"x-prewarm-token": TOKEN}).raise_for_status()
    wanted = {"league:table", "league:schedule", "league:results", "league:stats", "public:matches:live"}
    wanted |= {f"md:{{{LIVE_MATCH}}}:live", "lb:{season}"}
    assert until(lambda: wanted <= set(cast("list[str]", valkey.ask("KEYS", "*"))))


def test_a_result_is_seen_by_the_next_poll_everywhere(first: Served, second: Served) -> None:
    """When a finalization is acknowledged, table and results of both processes have it, and agree."""
    with referee(first) as admin, httpx.Client(base_url=second.url) as other:
        ids = [match["id"] for match in first.client.get("/api/league/schedule").json()]
        league_ids = [each for each in ids if each != LIVE_MATCH][:8]
        for number, match in enumerate(league_ids):
            score = {"home_goals": number % 3, "away_goals": 1, "override": True}
            admin.post(f"/api/admin/matches/{match}/finalize", json=score).raise_for_status()
            for client in (other, first.client):
                results = client.get("/api/league/results").json()
                found = {row["id"]: row["score"] for row in results}
                assert found[match] == [number % 3, 1]
                assert _played(client) == len([row for row in results if row["stage"] == "league"])
                assert match not in [row["id"] for row in client.get("/api/league/schedule").json()]


def _played(client: httpx.Client) -> int:
    """How many matches the table knows of."""
    rows = client.get("/api/league/table").json()
    return int(sum(row["played"] for row in rows)) // 2


@pytest.mark.standalone("pages of several slots are bumped together, but not in one step")
def test_table_and_results_never_disagree(first: Served, second: Served) -> None:
    """A client that saw a result on one page sees it on the other, whichever is requested first."""
    stop = threading.Event()
    wrong: list[str] = []
    rounds = [0]
    with ExitStack() as stack:
        admin = stack.enter_context(referee(first))
        readers = [
            threading.Thread(target=_compare, args=(each.url, order, stop, wrong, rounds))
            for each in (first, second)
            for order in (False, True)
        ]
        for reader in readers:
            reader.start()
        try:
            schedule = first.client.get("/api/league/schedule").json()
            ids = [row["id"] for row in schedule if row["stage"] == "league" and row["id"] != LIVE_MATCH]
            for number, match in enumerate(ids[:12]):
                score = {"home_goals": number % 4, "away_goals": number % 2, "override": True}
                admin.post(f"/api/admin/matches/{match}/finalize", json=score).raise_for_status()
        finally:
            stop.set()
            for reader in readers:
                reader.join()
    assert wrong == []
    assert rounds[0] > 20


def _compare(url: str, table_first: bool, stop: threading.Event, wrong: list[str], rounds: list[int]) -> None:
    """What was seen on the first page must be on the second, which is asked after it."""
    with httpx.Client(base_url=url, timeout=30) as client:
        while not stop.is_set():
            rounds[0] += 1
            if table_first:
                seen, then = _played(client), _finished(client)
            else:
                seen, then = _finished(client), _played(client)
            if then < seen:
                wrong.append(f"{'table' if table_first else 'results'} has {seen}, the other {then}")


def _finished(client: httpx.Client) -> int:
    rows = client.get("/api/league/results").json()
    return len([row for row in rows if row["stage"] == "league"])


def test_a_source_that_fails_leaves_stale_pages_with_a_mark(first: Served, places: dict[str, str]) -> None:
    """While SQL fails the last page is served, and says so; when it is back, so is the truth."""
    path = f"/api/matches/{LIVE_MATCH}/live"
    before = first.client.get(path)
    assert "cache-status" not in before.headers
    sql(places, "ALTER TABLE league.events RENAME TO events_renamed")
    try:
        marked = until(lambda: _stale(first, path), 15)
        assert (marked.status_code, marked.json()) == (200, before.json())
        tag = {"if-none-match": before.headers["etag"]}
        again = first.client.get(path, headers=tag)
        assert (again.status_code, "ttl=-" in again.headers["cache-status"]) == (304, True)
    finally:
        sql(places, "ALTER TABLE league.events_renamed RENAME TO events")
    sql(places, f"UPDATE league.matches SET minute = 77 WHERE id = {LIVE_MATCH}")
    assert until(lambda: first.client.get(path).json().get("minute") == 77)
    assert until(lambda: "cache-status" not in first.client.get(path).headers)


def _stale(served: Served, path: str) -> httpx.Response | None:
    page = served.client.get(path)
    return page if "ttl=-" in page.headers.get("cache-status", "") else None


def test_without_redis_pages_come_from_sql(tmp_path: Path, places: dict[str, str]) -> None:
    """Without Redis the league serves its pages, and a sign-in gets 503 with Retry-After."""
    nowhere = {**places, "EPHEMERA_URL": "redis://127.0.0.1:1"}
    with league(tmp_path, nowhere) as served:
        assert served.client.get("/readyz").json()["status"] == "degraded"
        page = served.client.get("/api/league/table")
        assert page.status_code == 200
        tag = {"if-none-match": page.headers["etag"]}
        assert served.client.get("/api/league/table", headers=tag).status_code == 304
        assert served.client.get(f"/api/matches/{LIVE_MATCH}/live").status_code == 200
        answer = served.client.post("/api/session", json={"name": "ann", "password": "correct horse battery"})
        assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
