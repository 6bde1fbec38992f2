"""The migration of old predictions: in the background, in batches, by one process at a time.

The first version of the site stored a prediction as one text, `2:1`, in records of its own. An operator
copies them into `legacy_predictions`, at any time and in any number of runs. From there each becomes a row of
`predictions` and remains as a record with its outcome. A user sees both (`loaders.user_predictions`) until
all are migrated, and of two predictions on a match the one that was placed last.

*Atomicity.* A batch is one transaction: predictions, points and outcomes. A process that dies repeats none
and loses none. The fencing token is checked in that transaction, so a process that has lost its lock unawares
changes nothing. The batch locks its matches, so that no finalization misses the rows that it adds.

*When Redis is down*, no batch begins. The progress in `predictions:legacy` is written after the commit: if it
is lost, the records are counted again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

from sqlalchemy import Row, exists, func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera import Store
from ephemera.errors import EphemeraError
from ephemera.patterns.locks import HeldLock
from ephemera_services.league.keys import ACHIEVEMENTS, LEGACY, LEGACY_LOCK, MINE, SITE, LegacyProgress
from ephemera_services.league.leaderboards import Leaderboards
from ephemera_services.league.loaders import parse_score
from ephemera_services.league.points import points_update
from ephemera_services.league.tables import FENCES, legacy_predictions, matches, predictions, users

logger = logging.getLogger(__name__)

_CHECK_EVERY = 30.0  # seconds: an operator may add records at any time
_PAUSE = 0.1  # seconds between batches, for other queries
_LEFT = legacy_predictions.c.outcome.is_(None)
_KEY = ("user_id", "match_id")


class LegacyPredictions:
    """Migrates old predictions.

    Args:
        engine: The database.
        store: The store.
        leaderboards: What is computed when all are migrated.
        batch: How many records one transaction migrates.

    """

    def __init__(
        self, engine: AsyncEngine, store: Store, leaderboards: Leaderboards, *, batch: int = 200
    ) -> None:
        self._engine = engine
        self._leaderboards = leaderboards
        self._batch = batch
        self._site, self._lock, self._progress = store[SITE], store[LEGACY_LOCK], store[LEGACY]

    async def run(self) -> None:
        """Migrate whatever there is, until cancelled."""
        while True:
            try:
                await self.migrate()
            except (EphemeraError, SQLAlchemyError, OSError):
                logger.warning("old predictions were not migrated", exc_info=True)
            await asyncio.sleep(_CHECK_EVERY)

    async def migrate(self) -> int:
        """Migrate all records unless another process does; how many this one has migrated."""
        if not await self._any_left():
            return 0
        done = 0
        async with self._lock.try_hold() as held:
            while held is not None and (migrated := await self.migrate_batch(held)):
                done += migrated
                await asyncio.sleep(_PAUSE)
        if done:
            logger.info("migrated old predictions", extra={"records": done})
            await self._leaderboards.compute()
        return done

    async def migrate_batch(self, held: HeldLock) -> int:
        """Migrate the next records; their number, 0 if none is left."""
        async with self._engine.begin() as sql:
            admitted = await sql.execute(text(FENCES.named), FENCES.values(held))
            FENCES.admit(held, admitted.one_or_none())
            rows = await self._next_rows(sql)
            outcomes = await _migrate_rows(sql, rows) if rows else {}
        if rows:
            await self._show(
                [row for row in rows if outcomes[row.id] == "copied"], Counter(outcomes.values())
            )
        return len(rows)

    async def progress(self) -> LegacyProgress | None:
        """How far the last migration is; None some minutes after it."""
        return await self._progress.get()

    async def _any_left(self) -> bool:
        async with self._engine.connect() as sql:
            return bool((await sql.execute(select(exists().where(_LEFT)))).scalar())

    async def _next_rows(self, sql: AsyncConnection) -> list[Row[Any]]:
        query = (
            select(legacy_predictions, users.c.id.label("known_user"))
            .outerjoin(users, users.c.id == legacy_predictions.c.user_id)
            .where(_LEFT)
            .order_by(legacy_predictions.c.id)
            .limit(self._batch)
        )
        return list((await sql.execute(query.with_for_update(of=legacy_predictions))).all())

    async def _show(self, copied: list[Row[Any]], outcomes: Counter[str]) -> None:
        """Drop the pages of users who have points now, and say how far the migration is."""
        try:
            affected = sorted({str(row.user_id) for row in copied})
            pages = [page.at(user_id=user) for user in affected for page in (MINE, ACHIEVEMENTS)]
            if pages:
                await self._site.delete(*pages)
            await self._progress.put(await self._counted(outcomes))
        except EphemeraError:
            logger.warning("pages of migrated predictions were not dropped; they are stale until they expire")

    async def _counted(self, outcomes: Counter[str]) -> LegacyProgress:
        """The progress so far: the last one and this batch, or counted."""
        known = await self._progress.get()
        if known is None or known.left < outcomes.total():  # lost, or records were added
            group = select(legacy_predictions.c.outcome, func.count())
            async with self._engine.connect() as sql:
                counted = await sql.execute(group.group_by(legacy_predictions.c.outcome))
                counts: Counter[str] = Counter({outcome or "left": number for outcome, number in counted})
            return _sum(LegacyProgress(0, 0, 0, counts["left"]), counts)
        left = known.left - outcomes.total()
        return _sum(LegacyProgress(known.copied, known.superseded, known.rejected, left), outcomes)


def _sum(progress: LegacyProgress, outcomes: Counter[str]) -> LegacyProgress:
    return LegacyProgress(
        progress.copied + outcomes["copied"],
        progress.superseded + outcomes["superseded"],
        progress.rejected + outcomes["orphan"] + outcomes["unreadable"],
        progress.left,
    )


async def _migrate_rows(sql: AsyncConnection, rows: list[Row[Any]]) -> dict[int, str]:
    """Copy records into predictions; the outcome of each."""
    match_ids = sorted({row.match_id for row in rows})
    locking = select(matches.c.id).where(matches.c.id.in_(match_ids)).order_by(matches.c.id)
    known = set((await sql.execute(locking.with_for_update(read=True))).scalars())
    outcomes: dict[int, str] = {}
    latest: dict[tuple[int, int], tuple[Row[Any], list[int]]] = {}
    for row in sorted(rows, key=lambda each: (each.placed_at, each.id)):
        score = parse_score(row.score)
        if score is None:
            outcomes[row.id] = "unreadable"
        elif row.known_user is None or row.match_id not in known:
            outcomes[row.id] = "orphan"
        else:
            outcomes[row.id] = "superseded"
            latest[row.user_id, row.match_id] = (row, score)
    if latest:
        copied = await _copy(sql, latest)
        outcomes |= {row.id: "copied" for key, (row, _) in latest.items() if key in copied}
        await sql.execute(points_update(sorted({match_id for _, match_id in copied})))
    for outcome in sorted(set(outcomes.values())):
        ids = [number for number, found in outcomes.items() if found == outcome]
        done = update(legacy_predictions).where(legacy_predictions.c.id.in_(ids))
        await sql.execute(done.values(outcome=outcome))
    return outcomes


async def _copy(
    sql: AsyncConnection, latest: dict[tuple[int, int], tuple[Row[Any], list[int]]]
) -> set[tuple[int, int]]:
    """Insert what no later prediction supersedes; the users and matches of these."""
    names = ("home_goals", "away_goals", "placed_at")
    values = [
        dict(zip((*_KEY, *names), (*key, *score, row.placed_at), strict=True))
        for key, (row, score) in sorted(latest.items(), key=lambda item: item[0])
    ]
    adding = insert(predictions).values(values)
    new = {name: adding.excluded[name] for name in names}
    later = adding.excluded.placed_at > predictions.c.placed_at
    placing = adding.on_conflict_do_update(index_elements=_KEY, set_=new, where=later)
    placed = await sql.execute(placing.returning(predictions.c.user_id, predictions.c.match_id))
    return {(row.user_id, row.match_id) for row in placed}
