"""A worker's run for one user: the planner locks, counts and saves; this module builds the clusters."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera.patterns.planner import Dataset, RebuildRun
from ephemera_services.feed.clusterer import ClusterPool
from ephemera_services.feed.embeddings import embed_texts
from ephemera_services.feed.service import Aggregator

logger = logging.getLogger(__name__)


class Builder:
    """Rebuilds users' clusters."""

    def __init__(self, aggregator: Aggregator, pool: ClusterPool) -> None:
        self._planner = aggregator.planner
        self._engine = aggregator.engine
        self._embedder = aggregator.embedder
        self._cache = aggregator.cache
        self._metrics = aggregator.metrics
        self._largest = aggregator.settings.largest_dataset
        self._pool = pool

    async def rebuild(self, user_id: str) -> RebuildRun:
        """Run once, with metrics and a log line; errors are raised, and the run is retried."""
        figures: dict[str, int] = {}

        async def build(dataset: Dataset) -> list[dict[str, Any]]:
            rows = await self._planner.insights(dataset, newest=self._largest)
            clustering = await self._pool.cluster(await self._vectors(rows))
            figures.update(dataset_size=len(rows), unclustered=len(clustering.unclustered))
            return [_cluster_row([rows[index] for index in indexes]) for indexes in clustering.clusters]

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
        """Delete feeds of older versions. They are never read again, so a failure is harmless."""
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


def _cluster_row(members: list[sa.Row[Any]]) -> dict[str, Any]:
    """A cluster as stored in SQL: its insights, nearest to the centroid first."""
    return {
        "insights": [row.insight_id for row in members],
        "channels": sorted({row.channel_id for row in members}),
        "newest": max(row.ts for row in members).isoformat(),
    }
