"""All rows, in the order of the table."""

from __future__ import annotations

from benchmarks import (
    batches,
    cache,
    cache_races,
    django,
    drop_ins,
    events,
    feed,
    footprint,
    hot_keys,
    http_cache,
    identity,
    imports,
    jobs,
    keyspace,
    league,
    limits_storages,
    locks,
    node,
    operations,
    planner,
    progress,
    pubsub,
    quickstart,
    rate_limits,
    scripture,
    sessions,
    synchronous,
    web,
    wire,
    write_behind,
)
from benchmarks.rows import Row

ROWS: tuple[Row, ...] = (
    *wire.ROWS,
    *node.ROWS,
    *batches.ROWS,
    *pubsub.ROWS,
    *synchronous.ROWS,
    *keyspace.ROWS,
    *operations.ROWS,
    *cache.ROWS,
    *cache_races.ROWS,
    *hot_keys.ROWS,
    *locks.ROWS,
    *events.ROWS,
    *sessions.ROWS,
    *rate_limits.ROWS,
    *web.ROWS,
    *quickstart.ROWS,
    *progress.ROWS,
    *jobs.ROWS,
    *http_cache.ROWS,
    *write_behind.ROWS,
    *planner.ROWS,
    *identity.ROWS,
    *scripture.ROWS,
    *feed.ROWS,
    *league.ROWS,
    *drop_ins.ROWS,
    *django.ROWS,
    *limits_storages.ROWS,
    *imports.ROWS,
    *footprint.ROWS,
)


def chosen(only: list[str]) -> list[Row]:
    """The rows whose name holds one of these texts; all of them when there is none."""
    return [row for row in ROWS if not only or any(text.lower() in row.name.lower() for text in only)]
