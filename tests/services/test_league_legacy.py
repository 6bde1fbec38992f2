"""Old predictions are migrated once, by one process at a time, and users see old and new ones meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store, connect
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import StaleFencingToken
from ephemera_services.league import catalogue
from ephemera_services.league.keys import LEGACY, LEGACY_LOCK, MINE, SITE, WINDOWS, LegacyProgress
from ephemera_services.league.leaderboards import Leaderboards
from ephemera_services.league.legacy_predictions import LegacyPredictions
from ephemera_services.league.supporters import Supporters
from ephemera_services.league.tables import (
    FENCES,
    clubs,
    legacy_predictions,
    matches,
    metadata,
    predictions,
    ranks,
    users,
)
from ephemera_services.runtime import open_engine
from tests.services.league_users import add_season

NOW = datetime.now(UTC).replace(microsecond=0)
YEAR_AGO = NOW - timedelta(days=365)
FINISHED, COMING = 1, 2
"""The matches: 2:1 at home, and one that can be predicted."""
USERS = 40


@pytest.fixture
async def engine(postgres: Postgres) -> AsyncIterator[AsyncEngine]:
    """A database with two matches and some users, and nothing predicted."""
    async with open_engine(postgres.database("league_legacy"), metadata, FENCES) as opened:
        async with opened.begin() as sql:
            for table in reversed(metadata.sorted_tables):
                await sql.execute(table.delete())
            names = [{"id": number, "name": name} for number, name in ((1, "Comet"), (2, "Meteor"))]
            await sql.execute(insert(clubs).values(names))
            season_id = await add_season(sql)
            match = {"season_id": season_id, "stage": "league", "round": 1, "home_id": 1, "away_id": 2}
            match |= {"venue": "Here"}
            finished = {"status": "finished", "home_goals": 2, "away_goals": 1, "kickoff": YEAR_AGO}
            coming = {"status": "scheduled", "home_goals": 0, "away_goals": 0, "kickoff": NOW + timedelta(1)}
            for number, values in ((FINISHED, finished), (COMING, coming)):
                await sql.execute(insert(matches).values({"id": number, **match, **values}))
            people = [
                {"id": number, "name": f"user-{number}", "password_hash": "-", "role": "user"}
                for number in range(1, USERS + 1)
            ]
            await sql.execute(insert(users).values(people))
        yield opened


@pytest.fixture
async def store(valkey: Valkey, engine: AsyncEngine) -> AsyncIterator[Store]:
    """A store of the league."""
    valkey.ask("FLUSHALL")
    async with connect(valkey.url, catalogue, resources={SITE: engine, WINDOWS: engine}) as opened:
        yield opened


def migration(engine: AsyncEngine, store: Store, batch: int = 200) -> LegacyPredictions:
    """A migration as the service has it."""
    return LegacyPredictions(engine, store, Leaderboards(engine, store, timedelta(hours=6)), batch=batch)


async def add(engine: AsyncEngine, *records: tuple[int, int, str, datetime]) -> None:
    """Add old records: user, match, score, when."""
    async with engine.begin() as sql:
        first = (await sql.execute(select(func.coalesce(func.max(legacy_predictions.c.id), 0)))).scalar_one()
        names = ("user_id", "match_id", "score", "placed_at")
        values = [
            {"id": first + number, **dict(zip(names, record, strict=True))}
            for number, record in enumerate(records, 1)
        ]
        await sql.execute(insert(legacy_predictions).values(values))


async def rows(engine: AsyncEngine, *columns: Any) -> Sequence[Any]:
    """The columns of a table, in order."""
    async with engine.connect() as sql:
        return [tuple(row) for row in await sql.execute(select(*columns).order_by(*columns))]


async def test_each_record_becomes_what_it_should(engine: AsyncEngine, store: Store) -> None:
    """Predictions are copied with their points; later ones win; what is unusable is kept with the reason."""
    await add(
        engine,
        (1, FINISHED, "2:1", YEAR_AGO),
        (2, FINISHED, "3:0", YEAR_AGO),
        (3, FINISHED, "0:0", YEAR_AGO),
        (4, COMING, "1:1", NOW - timedelta(days=9)),
        (4, COMING, "4:1", NOW - timedelta(days=8)),  # changed by the user
        (99, COMING, "1:1", YEAR_AGO),
        (1, 77, "1:1", YEAR_AGO),
        (1, COMING, "two to one", YEAR_AGO),
    )
    assert await migration(engine, store).migrate() == 8
    counted = await rows(engine, predictions.c.user_id, predictions.c.home_goals, predictions.c.points)
    assert counted == [(1, 2, 3), (2, 3, 1), (3, 0, 0), (4, 4, None)]
    outcomes = await rows(engine, legacy_predictions.c.id, legacy_predictions.c.outcome)
    kinds = [outcome for _, outcome in outcomes]
    assert kinds == ["copied"] * 3 + ["superseded", "copied", "orphan", "orphan", "unreadable"]
    assert await store[LEGACY].get() == LegacyProgress(copied=4, superseded=1, rejected=3, left=0)
    points = await rows(engine, ranks.c.board, ranks.c.user_id, ranks.c.points)
    assert [row[1:] for row in points if row[0].startswith("season ")] == [(1, 3), (2, 1), (3, 0)]


async def test_a_second_run_changes_nothing(engine: AsyncEngine, store: Store) -> None:
    """Migrated records are not migrated again, also if the user has changed the prediction since."""
    await add(engine, (1, COMING, "1:0", YEAR_AGO))
    legacy = migration(engine, store)
    assert await legacy.migrate() == 1
    await Supporters(engine, store).predict(1, COMING, 5, 5)
    assert await legacy.migrate() == 0
    await add(engine, (1, COMING, "9:9", YEAR_AGO + timedelta(days=1)))
    assert await legacy.migrate() == 1
    assert await rows(engine, predictions.c.home_goals, predictions.c.away_goals) == [(5, 5)]
    assert [
        outcome for _, outcome in await rows(engine, legacy_predictions.c.id, legacy_predictions.c.outcome)
    ] == [
        "copied",
        "superseded",
    ]


async def test_users_see_both_until_it_is_done(engine: AsyncEngine, store: Store) -> None:
    """The page of a user has old and new predictions at once, and the same ones after the migration."""
    await add(engine, (1, FINISHED, "2:1", YEAR_AGO), (2, FINISHED, "5:0", YEAR_AGO))
    await Supporters(engine, store).predict(1, COMING, 3, 0)

    async def seen() -> list[tuple[int, list[int], int | None]]:
        page = await store[MINE].page(user_id="1")
        assert page is not None
        return [(each["id"], each["prediction"], each["points"]) for each in page.json()]

    assert await seen() == [(COMING, [3, 0], None), (FINISHED, [2, 1], None)]
    await migration(engine, store).migrate()
    assert await seen() == [(COMING, [3, 0], None), (FINISHED, [2, 1], 3)]


async def test_an_interrupted_migration_continues(engine: AsyncEngine, store: Store) -> None:
    """After some batches another process does the rest, each record once, and the progress adds up."""
    await add(engine, *((number, FINISHED, "2:1", YEAR_AGO) for number in range(1, USERS + 1)))
    interrupted = migration(engine, store, batch=7)
    async with store[LEGACY_LOCK].hold() as held:
        assert [await interrupted.migrate_batch(held), await interrupted.migrate_batch(held)] == [7, 7]
        assert await interrupted.progress() == LegacyProgress(14, 0, 0, USERS - 14)
        refused = asyncio.create_task(migration(engine, store).migrate())
        assert await refused == 0  # another has the lock
    assert await migration(engine, store, batch=9).migrate() == USERS - 14
    assert await store[LEGACY].get() == LegacyProgress(USERS, 0, 0, 0)
    assert await rows(engine, predictions.c.user_id) == [(number,) for number in range(1, USERS + 1)]


async def test_processes_share_the_work_and_do_it_once(engine: AsyncEngine, store: Store) -> None:
    """Of several that begin at once, one migrates."""
    await add(engine, *((number, FINISHED, "2:1", YEAR_AGO) for number in range(1, USERS + 1)))
    counts = await asyncio.gather(*(migration(engine, store, batch=20).migrate() for _ in range(4)))
    assert sum(counts) == USERS
    assert await rows(engine, func.count(predictions.c.user_id)) == [(USERS,)]


async def test_a_process_that_lost_its_lock_changes_nothing(engine: AsyncEngine, store: Store) -> None:
    """Once a later holder has migrated a batch, the earlier one is refused by SQL."""
    await add(engine, (1, FINISHED, "2:1", YEAR_AGO), (2, FINISHED, "2:1", YEAR_AGO))
    legacy = migration(engine, store, batch=1)
    async with store[LEGACY_LOCK].hold() as earlier:
        pass
    async with store[LEGACY_LOCK].hold() as later:
        assert await legacy.migrate_batch(later) == 1
        with pytest.raises(StaleFencingToken):
            await legacy.migrate_batch(earlier)
    assert await rows(engine, predictions.c.user_id) == [(1,)]


async def test_lost_progress_is_counted_again(engine: AsyncEngine, store: Store) -> None:
    """If Redis loses the progress, the next batch counts the records, and nothing else is lost."""
    await add(engine, *((number, FINISHED, "2:1", YEAR_AGO) for number in range(1, 5)))
    legacy = migration(engine, store, batch=1)
    async with store[LEGACY_LOCK].hold() as held:
        await legacy.migrate_batch(held)
        await legacy.migrate_batch(held)
        await store[LEGACY].delete()
        await legacy.migrate_batch(held)
        assert await legacy.progress() == LegacyProgress(3, 0, 0, 1)
