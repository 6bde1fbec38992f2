"""Insights with their origin: published one by one or in bulk, and read back.

*Origin.* Source, URL, published time and language are a row of `insight_origins`, for insights that have any
of them. A URL is stored without its fragment and tracking parameters.

*Near-duplicates.* A channel has an insight of a URL once: publishing it again returns the first one, and is
no novelty for anyone. Insights that say the same in different places are all kept, since each of their
channels has its own readers; the worker merges them within an item (`clusterer.near_duplicates`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.patterns.embedders import Embedder
from ephemera.patterns.planner import BoundPlanner
from ephemera_services.feed.embeddings import embedding_columns
from ephemera_services.feed.metrics import Metrics
from ephemera_services.feed.tables import ORIGIN, FeedTables, is_one_of
from ephemera_services.runtime import advisory_lock

_TRACKING = ("utm_", "fbclid", "gclid", "mc_cid", "mc_eid")


class NewInsight(NamedTuple):
    """An insight to be published."""

    channel_id: str
    text: str
    source: str | None = None
    url: str | None = None
    published_at: datetime | None = None
    language: str | None = None

    @property
    def origin(self) -> dict[str, Any]:
        """The columns of its origin that it has."""
        return {name: value for name in ORIGIN if (value := getattr(self, name)) is not None}


class PublishedInsight(NamedTuple):
    """A published insight; `duplicate` when its channel had one of this URL, which it is then."""

    insight_id: int
    channel_id: str
    seq: int
    ts: datetime
    duplicate: bool = False


class InsightDetail(NamedTuple):
    """An insight as it was published."""

    insight_id: int
    channel_id: str
    seq: int
    ts: datetime
    text: str
    source: str | None
    url: str | None
    published_at: datetime | None
    language: str | None


class Origin(NamedTuple):
    """What ranking needs of an insight's origin."""

    source: str | None
    published_at: datetime | None


NO_ORIGIN = Origin(None, None)


class Insights:
    """The insights of one database."""

    def __init__(
        self,
        engine: AsyncEngine,
        planner: BoundPlanner,
        tables: FeedTables,
        embedder: Embedder,
        metrics: Metrics,
    ) -> None:
        self._engine = engine
        self._planner = planner
        self._insights = planner.tables.insights
        self._origins = tables.insight_origins
        self._embedder = embedder
        self._metrics = metrics

    async def publish(self, forms: Sequence[NewInsight]) -> list[PublishedInsight]:
        """Publish insights in one transaction, each with its embedding if the embedder answers."""
        embeddings = await embedding_columns(self._embedder, [form.text for form in forms])
        if not any(embeddings):
            self._metrics.errors.labels("embedder").inc()
        published: dict[int, PublishedInsight] = {}
        created = []
        # By channel, whose rows are locked until the commit: so two transactions never deadlock.
        order = sorted(range(len(forms)), key=lambda index: forms[index].channel_id)
        async with self._engine.begin() as sql:
            by_url = await self._locked_urls(sql, forms)
            for index in order:
                form = forms[index]
                key = (form.channel_id, form.url)
                if form.url is not None and key in by_url:
                    published[index] = by_url[key]._replace(duplicate=True)
                    continue
                insight = await self._planner.publish_in(
                    sql, form.channel_id, text=form.text, **embeddings[index]
                )
                if form.origin:
                    row = {"insight_id": insight.insight_id, "channel_id": form.channel_id, **form.origin}
                    await sql.execute(sa.insert(self._origins).values(row))
                created.append(insight)
                published[index] = by_url[key] = PublishedInsight(
                    insight.insight_id,
                    insight.channel_id,
                    insight.seq,
                    datetime.fromtimestamp(insight.ts / 1000, UTC),
                )
        if created:
            await self._planner.mark_dirty(*created)
        self._metrics.published.inc(len(created))
        return [published[index] for index in range(len(forms))]

    async def _locked_urls(
        self, sql: AsyncConnection, forms: Sequence[NewInsight]
    ) -> dict[tuple[str, str | None], PublishedInsight]:
        """Lock the URLs of the channels in question, and return the insights that have the given ones."""
        urls = [form.url for form in forms if form.url is not None]
        channels = sorted({form.channel_id for form in forms if form.url is not None})
        for channel in channels:
            await advisory_lock(sql, f"feed: URLs of {channel}")
        if not urls:
            return {}
        insights, origins = self._insights.c, self._origins.c
        query = (
            sa.select(origins.url, insights.insight_id, insights.channel_id, insights.seq, insights.ts)
            .join(self._insights, insights.insight_id == origins.insight_id)
            .where(origins.channel_id.in_(channels), origins.url.in_(urls))
        )
        return {(row.channel_id, row.url): PublishedInsight(*row[1:]) for row in await sql.execute(query)}

    async def get(self, insight_ids: Sequence[int]) -> dict[int, InsightDetail]:
        """Return the insights of these ids that exist."""
        found = await self._details(is_one_of(self._insights.c.insight_id, insight_ids))
        return {each.insight_id: each for each in found}

    async def origins(self, insight_ids: Sequence[int]) -> dict[int, Origin]:
        """Return the origins of those of these insights that have one."""
        c = self._origins.c
        query = sa.select(c.insight_id, c.source, c.published_at).where(is_one_of(c.insight_id, insight_ids))
        async with self._engine.connect() as sql:
            return {insight_id: Origin(*origin) for insight_id, *origin in await sql.execute(query)}

    async def of_channel(self, channel_id: str, *, before: int | None, limit: int) -> list[InsightDetail]:
        """Return the insights of a channel, newest first, those with a seq before one."""
        insights = self._insights.c
        conditions = [insights.channel_id == channel_id]
        if before is not None:
            conditions.append(insights.seq < before)
        return await self._details(*conditions, newest=limit)

    async def _details(
        self, *conditions: sa.ColumnElement[bool], newest: int | None = None
    ) -> list[InsightDetail]:
        insights, origins = self._insights.c, self._origins.c
        columns = (insights.insight_id, insights.channel_id, insights.seq, insights.ts, insights.text)
        query = (
            sa.select(*columns, *(origins[name] for name in ORIGIN))
            .outerjoin(self._origins, origins.insight_id == insights.insight_id)
            .where(*conditions)
        )
        if newest is not None:
            query = query.order_by(insights.seq.desc()).limit(newest)
        async with self._engine.connect() as sql:
            return [InsightDetail(*row) for row in await sql.execute(query)]


def canonical_url(url: str) -> str:
    """Return a URL without fragment and tracking parameters; `ValueError` if it is not of http.

    What is refused is what a page must not link to: other schemes, credentials, spaces, control characters.
    """
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise ValueError("a URL has printable ASCII characters only; encode others with %")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError("a URL begins with http:// or https:// and a host, without credentials")
    _ = parts.port  # raises ValueError
    query = "&".join(each for each in parts.query.split("&") if not each.lower().startswith(_TRACKING))
    return urlunsplit((parts.scheme, parts.netloc.lower(), parts.path or "/", query, ""))
