"""Unnoticed 5: results of a match that are written at the same time leave every page fresh."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from ephemera.embedded import Postgres, Valkey
from tests.defects.service_apps import App, opened
from tests.services.league_users import LIVE_MATCH
from tests.services.test_league import PAGES

ROW = f"FROM league.matches WHERE id = {LIVE_MATCH}"


class League:
    """A league in this process, and its database."""

    def __init__(self, app: App, sql: psycopg.AsyncConnection[Any]) -> None:
        self.app, self.sql = app, sql
        self.matches: Any = app.service.matches

    async def together(self, *calls: Any, rows: int) -> list[Any]:
        """Start calls one after the other; `rows` of them wait for the match's row before any continues."""
        tasks = []
        async with self.sql.transaction():
            await self.sql.execute(f"SELECT 1 {ROW} FOR UPDATE")
            for number, call in enumerate(calls, 1):
                tasks.append(asyncio.ensure_future(call))
                async with asyncio.timeout(10):
                    while await self.waiting() < min(number, rows):
                        await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)  # who does not wait for the row waits for a lock in Redis
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)

    async def waiting(self) -> int:
        """How many transactions wait for a row, those on connections that were opened just now included."""
        await self.sql.execute("SELECT pg_stat_clear_snapshot()")  # it lists sessions once in a transaction
        found = await self.sql.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        row = await found.fetchone()
        return int(row[0]) if row else 0

    async def pages(self) -> dict[str, Any]:
        """Every page, as a client gets it."""
        answers = {path: await self.app.ask("GET", path) for path in PAGES}
        assert {answer.status_code for answer in answers.values()} == {200}
        return {path: answer.json() for path, answer in answers.items() if not path.endswith("/versions")}

    async def result(self) -> tuple[Any, ...]:
        """What SQL has: state and goals."""
        found = await self.sql.execute(f"SELECT status, home_goals, away_goals {ROW}")
        row = await found.fetchone()
        assert row is not None
        return tuple(row)


def settings(postgres: Postgres) -> dict[str, str]:
    """The demonstration, on one database, without limits."""
    return {
        "EPHEMERA_LEAGUE_DEMO": "true",
        "EPHEMERA_DATABASE_URL": postgres.database("unnoticed5"),
        "EPHEMERA_LEAGUE_REQUESTS_PER_10_SECONDS": "1000000",
    }


@pytest.fixture
async def league(server: Valkey, postgres: Postgres) -> AsyncIterator[League]:
    """A league with the demonstration's match under way, whose pages have all been read."""
    url = postgres.database("unnoticed5")
    async with opened("league", server, postgres, settings(postgres)) as app:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as sql:
            await sql.execute(
                f"UPDATE league.matches SET status = 'live', ended_at = NULL WHERE id = {LIVE_MATCH}"
            )
            server.ask("FLUSHALL")
            found = League(app, sql)
            await found.pages()
            yield found


async def assert_fresh(league: League, server: Valkey, postgres: Postgres) -> None:
    """What is served is what a process that has nothing yet loads from SQL."""
    served = await league.pages()
    async with opened("league", server, postgres, settings(postgres)) as app:
        loaded = await League(app, league.sql).pages()
    assert [path for path in served if served[path] != loaded[path]] == []


async def test_unnoticed5_two_results_at_once(league: League, server: Valkey, postgres: Postgres) -> None:
    """One of them holds, points are counted once, and every page shows it."""
    points = sum(row["points"] for row in (await league.pages())["/api/league/table"])
    outcomes = await league.together(
        league.matches.finalize(LIVE_MATCH, 2, 0), league.matches.finalize(LIVE_MATCH, 0, 1), rows=1
    )
    assert not [each for each in outcomes if isinstance(each, BaseException)]
    assert await league.result() in {("finished", 2, 0), ("finished", 0, 1)}
    table = (await league.pages())["/api/league/table"]
    assert sum(row["points"] for row in table) == points + 3
    await assert_fresh(league, server, postgres)


@pytest.mark.parametrize("first", ["score", "result"])
async def test_unnoticed5_a_score_beside_a_result(
    league: League, server: Valkey, postgres: Postgres, first: str
) -> None:
    """A score that comes too late is refused; the result holds, whichever was first."""
    calls = [league.matches.set_score(LIVE_MATCH, 89, 4, 4), league.matches.finalize(LIVE_MATCH, 3, 1)]
    outcomes = await league.together(*(calls if first == "score" else reversed(calls)), rows=2)
    score, result = outcomes if first == "score" else reversed(outcomes)
    assert not isinstance(result, BaseException)
    assert isinstance(score, BaseException) == (first == "result")
    assert await league.result() == ("finished", 3, 1)
    pages = await league.pages()
    assert pages[f"/api/matches/{LIVE_MATCH}/live"]["score"] == [3, 1]
    assert pages["/api/matches/live"] == []
    await assert_fresh(league, server, postgres)
