"""A worker's run on one user: the planner locks, recounts and saves; here a dataset becomes clusters."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera.patterns.planner import Dataset, Run
from ephemera_services.feed.clusterer import Clusterizer
from ephemera_services.feed.embeddings import vectors_of
from ephemera_services.feed.service import Aggregator

logger = logging.getLogger(__name__)

_VERSIONS_KEPT = 3  # of a user's clusters: the present one, and two for whoever reads meanwhile


class Builder:
    """Rebuilds users' clusters."""

    def __init__(self, aggregator: Aggregator, clusterizer: Clusterizer) -> None:
        self._planner = aggregator.planner
        self._engine = aggregator.engine
        self._embedder = aggregator.embedder
        self._cache = aggregator.cache
        self._metrics = aggregator.metrics
        self._largest = aggregator.settings.largest_dataset
        self._clusterizer = clusterizer

    async def rebuild(self, user_id: str) -> Run:
        """One run, counted and logged; what fails is raised, and comes again."""
        made: dict[str, int] = {}

        async def build(dataset: Dataset) -> list[dict[str, Any]]:
            rows = await self._planner.insights(dataset, newest=self._largest)
            found = await self._clusterizer.cluster(await self._vectors(rows))
            made.update(dataset_size=len(rows), unclustered=len(found.unclustered))
            return [_described([rows[place] for place in places]) for places in found.clusters]

        async def also_save(sql: AsyncConnection, dataset: Dataset) -> None:
            table = self._planner.tables.clusters
            theirs = table.c.user_id == dataset.user_id
            version = table.c.cluster_version
            await sql.execute(sa.update(table).where(theirs, version == dataset.version).values(**made))
            await sql.execute(sa.delete(table).where(theirs, version <= dataset.version - _VERSIONS_KEPT))

        try:
            run = await self._planner.rebuild(
                user_id, build, also_save=also_save, invalidate=self._invalidate
            )
        except Exception:
            self._metrics.errors.labels("run").inc()
            raise
        self._count(run, made.get("dataset_size", 0))
        return run

    async def _vectors(self, rows: Sequence[sa.Row[Any]]) -> list[bytes]:
        """The rows' vectors, all of the present model: what is missing is made, and kept."""
        model = self._embedder.model
        missing = [row for row in rows if row.embedding is None or row.embedded_by != model]
        made: dict[int, bytes] = {}
        if missing:
            vectors = await vectors_of(self._embedder, [row.text for row in missing])
            made = {row.insight_id: vector for row, vector in zip(missing, vectors, strict=True)}
            table = self._planner.tables.insights
            kept = (
                sa.update(table)
                .where(table.c.insight_id == sa.bindparam("of"))
                .values(embedding=sa.bindparam("vector"), embedded_by=model)
            )
            async with self._engine.begin() as sql:
                await sql.execute(kept, [{"of": key, "vector": made[key]} for key in sorted(made)])
        return [made.get(row.insight_id) or row.embedding for row in rows]

    async def _invalidate(self, user_id: str, version: int) -> None:
        """Forget feeds of older versions; nobody reads them, so it may fail."""
        try:
            await self._cache.forget(user_id, before=version)
        except Exception:
            self._metrics.errors.labels("cache").inc()
            logger.exception("old feeds were not removed", extra={"user_id": user_id})

    def _count(self, run: Run, size: int) -> None:
        self._metrics.runs.labels(run.ending).inc()
        if run.ending == "rebuilt":
            self._metrics.bumps.inc()
            self._metrics.run_seconds.observe(run.seconds)
            self._metrics.dataset_size.observe(size)
        logger.info(
            "run",
            extra={
                "user_id": run.user_id,
                "ending": run.ending,
                "version": run.version,
                "pending": run.pending,
                "left": run.left,
                "dataset": size,
                "seconds": round(run.seconds, 3),
            },
        )


def _described(members: list[sa.Row[Any]]) -> dict[str, Any]:
    """A cluster as SQL keeps it: its insights, those nearest its middle first."""
    return {
        "insights": [row.insight_id for row in members],
        "channels": sorted({row.channel_id for row in members}),
        "newest": max(row.ts for row in members).isoformat(),
    }
