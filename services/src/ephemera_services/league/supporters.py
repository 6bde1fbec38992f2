"""User actions: predictions and comments are written to SQL at once, votes through a write-behind queue.

A committed prediction or comment stands even if Redis is down: its page is updated when it expires, and at
once in this process. A vote is acknowledged when Redis has it; it reaches SQL within seconds, exactly once,
and a second vote of the same user on the same match changes nothing.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from sqlalchemy import func, literal, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.errors import ConnectionFailed, LoadFailed, StillLoading
from ephemera.patterns.http_cache import PageRef
from ephemera.patterns.write_behind import Batch, Flusher, RecordTable
from ephemera.web import unavailable
from ephemera_services.league.administration.edits import count_live_revisions
from ephemera_services.league.keys import (
    ACHIEVEMENTS,
    ADMINS,
    COMMENTS,
    LIVE,
    META,
    MINE,
    SITE,
    VERSIONS,
    VOTES,
    AdminEvent,
    Vote,
)
from ephemera_services.league.tables import comments, matches, predictions, votes
from ephemera_services.runtime import problem

logger = logging.getLogger(__name__)

_NO_MATCH = "There is no such match."
_TAKEOVER = timedelta(seconds=10)
"""After which another process takes over the flush of a process that died."""


class Supporters:
    """Predictions, comments and votes."""

    def __init__(self, engine: AsyncEngine, store: Store) -> None:
        self._engine = engine
        self._site, self._live = store[SITE], store[LIVE]
        self._votes = store[VOTES]
        self._admins = store[ADMINS]
        sink = RecordTable(engine, votes, unique=["user_id", "match_id"], keep="first")
        self.flusher = Flusher(
            self._votes,
            sink,
            on_applied=self._show_votes,
            claim_timeout=_TAKEOVER,
            write_delay=timedelta(0),  # SQL keeps one vote of a user, so a batch may come again
        )

    async def predict(self, user_id: int, match_id: int, home_goals: int, away_goals: int) -> None:
        """Place or change a prediction, until the kickoff; 409 later."""
        values = {"home_goals": home_goals, "away_goals": away_goals}
        row = select(literal(user_id), matches.c.id, *(literal(goals) for goals in values.values())).where(
            matches.c.id == match_id, matches.c.status == "scheduled", matches.c.kickoff > func.now()
        )
        adding = insert(predictions).from_select(["user_id", "match_id", *values], row)
        placing = adding.on_conflict_do_update(
            index_elements=["user_id", "match_id"], set_={**values, "placed_at": func.now()}
        )
        async with self._engine.begin() as sql:
            placed = (await sql.execute(placing.returning(predictions.c.match_id))).scalar_one_or_none()
            if placed is None:
                await self._status(sql, match_id)
                raise problem(409, "The match has started: it can no longer be predicted.")
        await self._invalidate(MINE.at(user_id=str(user_id)), ACHIEVEMENTS.at(user_id=str(user_id)))

    async def comment(self, user_id: int, match_id: int, text: str) -> int:
        """Post a comment; its id."""
        async with self._engine.begin() as sql:
            await self._status(sql, match_id)
            adding = insert(comments).values(user_id=user_id, match_id=match_id, text=text)
            posted = (await sql.execute(adding.returning(comments.c.id))).scalar_one()
            count = update(matches).where(matches.c.id == match_id)
            await sql.execute(count.values(comments_revision=matches.c.comments_revision + 1))
        of_match = {"match_id": str(match_id)}
        earned = ACHIEVEMENTS.at(user_id=str(user_id))
        await self._invalidate(COMMENTS.at(**of_match), VERSIONS.at(**of_match), earned)
        return int(posted)

    async def vote(self, vote: Vote) -> bool:
        """Queue a vote on a match that is not over; False if this user has voted on it.

        That is a flag in Redis, kept for a month. SQL is not queried, so votes are accepted while it is down.
        After a month, or if Redis has lost the flag, a second vote is queued like a first one, and SQL
        ignores it: the first one stays.
        """
        try:
            page = await self._live.page(match_id=str(vote.match_id))
        except (LoadFailed, StillLoading):
            raise unavailable("The match cannot be looked up at the moment; please try again.") from None
        if page is None:
            raise problem(404, _NO_MATCH)
        if (status := page.json()["status"]) in ("finished", "cancelled"):
            raise problem(409, f"The match is {status}.")
        who = f"{vote.user_id}.{vote.match_id}"
        return await self._votes.append(vote, partition_key=str(vote.match_id), idempotency_key=who)

    async def waiting(self) -> int:
        """The number of votes that are not in SQL yet."""
        return await self._votes.backlog()

    async def _show_votes(self, batch: Batch) -> None:
        """Invalidate the pages of votes that are in SQL; retried if it fails."""
        match_ids = sorted({int(record["match_id"]) for record in batch.records()})
        async with self._engine.begin() as sql:
            counting = count_live_revisions(match_ids).returning(matches.c.id, matches.c.status)
            final = [row.id for row in await sql.execute(counting) if row.status == "finished"]
        targets = [page.at(match_id=str(each)) for each in match_ids for page in (LIVE, VERSIONS)]
        targets += [META.at(match_id=str(each)) for each in final]  # they voted before its end
        await self._site.bump(*targets)
        logger.info("flushed votes", extra={"votes": len(batch.rows), "matches": len(match_ids)})
        for each in match_ids:
            voted = sum(record["match_id"] == each for record in batch.records())
            await self._admins.broadcast(AdminEvent("votes", each, voted))

    async def _status(self, sql: Any, match_id: int) -> str:
        found = (await sql.execute(select(matches.c.status).where(matches.c.id == match_id))).scalar()
        if found is None:
            raise problem(404, _NO_MATCH)
        return str(found)

    async def _invalidate(self, *targets: PageRef) -> None:
        try:
            await self._site.bump(*targets)
        except ConnectionFailed:
            logger.warning("pages were not invalidated; they are stale until they expire")
