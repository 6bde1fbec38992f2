"""A worker's run for one user: the planner locks, counts and saves; this module builds the clusters."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera.errors import ConnectionFailed, ServerError
from ephemera.patterns.planner import Dataset, RebuildRun
from ephemera_services.feed.clusterer import ClusterPool, near_duplicates
from ephemera_services.feed.embeddings import embed_texts
from ephemera_services.feed.insights import NO_ORIGIN, Origin
from ephemera_services.feed.item_score import score
from ephemera_services.feed.keys import NewVersion
from ephemera_services.feed.service import Aggregator

logger = logging.getLogger(__name__)

_MAX_SOURCES = 10  # of a cluster, the most frequent ones


class Builder:
    """Rebuilds users' clusters."""

    def __init__(self, aggregator: Aggregator, pool: ClusterPool) -> None:
        self._planner = aggregator.planner
        self._engine = aggregator.engine
        self._embedder = aggregator.embedder
        self._cache = aggregator.cache
        self._insights = aggregator.insights
        self._news = aggregator.news
        self._metrics = aggregator.metrics
        self._largest = aggregator.settings.largest_dataset
        self._pool = pool

    async def rebuild(self, user_id: str) -> RebuildRun:
        """Run once, with metrics and a log line; errors are raised, and the run is retried."""
        figures: dict[str, int] = {}

        async def build(dataset: Dataset) -> list[dict[str, Any]]:
            rows = await self._planner.insights(dataset, newest=self._largest)
            vectors = await self._vectors(rows)
            clustering = await self._pool.cluster(vectors)
            figures.update(dataset_size=len(rows), unclustered=len(clustering.unclustered))
            origins = await self._insights.origins([row.insight_id for row in rows])
            seen = {span.channel_id: span.seen for span in dataset.spans}
            now, built = datetime.now(UTC), []
            for indexes in clustering.clusters:
                first = await asyncio.to_thread(near_duplicates, [vectors[index] for index in indexes])
                built.append(_cluster_row([rows[index] for index in indexes], first, origins, seen, now))
            return sorted(built, key=lambda row: -row["score"])

        async def on_save(sql: AsyncConnection, dataset: Dataset) -> None:
            table = self._planner.tables.clusters
            of_user = table.c.user_id == dataset.user_id
            version = table.c.cluster_version
            await sql.execute(sa.update(table).where(of_user, version == dataset.version).values(**figures))

        try:
            run = await self._planner.rebuild(user_id, build, on_save=on_save, invalidate=self._invalidate)
        except Exception:
            self._metrics.errors.labels("run").inc()
            raise
        self._count(run, figures.get("dataset_size", 0))
        return run

    async def _vectors(self, rows: Sequence[sa.Row[Any]]) -> list[bytes]:
        """The rows' vectors for the current model; missing ones are computed and stored."""
        model = self._embedder.model
        missing = [row for row in rows if row.embedding is None or row.embedded_by != model]
        computed: dict[int, bytes] = {}
        if missing:
            vectors = await embed_texts(self._embedder, [row.text for row in missing])
            computed = {row.insight_id: vector for row, vector in zip(missing, vectors, strict=True)}
            table = self._planner.tables.insights
            update = (
                sa.update(table)
                .where(table.c.insight_id == sa.bindparam("id_"))
                .values(embedding=sa.bindparam("vector"), embedded_by=model)
            )
            async with self._engine.begin() as sql:
                await sql.execute(update, [{"id_": key, "vector": computed[key]} for key in sorted(computed)])
        return [computed.get(row.insight_id) or row.embedding for row in rows]

    async def _invalidate(self, user_id: str, version: int) -> None:
        """Notify open readers, and delete feeds of older versions, which are never read again.

        A failure is harmless: readers find the version in SQL a little later.
        """
        try:
            await self._news.append(NewVersion(version), user_id=user_id)
        except (ConnectionFailed, ServerError):
            logger.info("open readers were not notified", extra={"user_id": user_id})
        try:
            await self._cache.delete_older(user_id, before=version)
        except Exception:
            self._metrics.errors.labels("cache").inc()
            logger.exception("could not delete old feeds", extra={"user_id": user_id})

    def _count(self, run: RebuildRun, size: int) -> None:
        self._metrics.runs.labels(run.outcome).inc()
        if run.outcome == "rebuilt":
            self._metrics.bumps.inc()
            self._metrics.run_seconds.observe(run.seconds)
            self._metrics.dataset_size.observe(size)
        logger.info(
            "run",
            extra={
                "user_id": run.user_id,
                "outcome": run.outcome,
                "version": run.version,
                "pending": run.pending,
                "left": run.left,
                "dataset": size,
                "seconds": round(run.seconds, 3),
            },
        )


def _cluster_row(
    members: list[sa.Row[Any]],
    first: list[int],
    origins: dict[int, Origin],
    seen: dict[str, int],
    now: datetime,
) -> dict[str, Any]:
    """A cluster as stored in SQL: its insights, nearest to the centroid first, and what they amount to.

    `first` has for each the one that it repeats, or itself; `seen` the last seq of each channel that earlier
    versions had.
    """
    copies: dict[int, list[int]] = {}
    for each, index in zip(members, first, strict=True):
        if members[index] is not each:
            copies.setdefault(members[index].insight_id, []).append(each.insight_id)
    new = sum(each.seq > seen.get(each.channel_id, 0) for each in members)
    known = {each.insight_id: origins.get(each.insight_id, NO_ORIGIN) for each in members}
    # A time in the future is no reason to rank first.
    newest = max(min(known[each.insight_id].published_at or each.ts, each.ts) for each in members)
    sources = Counter(origin.source for origin in known.values() if origin.source is not None)
    distinct = len(set(first))
    return {
        "insights": [each.insight_id for each in members],
        "copies": copies,
        "channels": sorted({each.channel_id for each in members}),
        "newest": newest.isoformat(),
        "sources": [source for source, _ in sources.most_common(_MAX_SOURCES)],
        "new": new,
        "score": score(distinct=distinct, new=new, size=len(members), newest=newest, now=now),
    }
