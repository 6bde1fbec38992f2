"""New rows: one statement for any number of jobs, and the existing job where uniqueness forbids another.

A row that conflicts, because its id exists or its unique key is held, is not inserted; the row in its way is
read afterwards. A holder whose period is over and that has ended gives up its key to the new job. All of it
works in the caller's transaction, too: PostgreSQL makes the second of two transactions with one key wait for
the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
from sqlalchemy import (
    ARRAY,
    JSON,
    Integer,
    Text,
    and_,
    cast,
    column,
    func,
    literal,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera.errors import InvalidValue
from ephemera.patterns.jobs._job_definition import Job, JobOptions, encode_arguments, unique_key
from ephemera.patterns.jobs._tables import OPEN_STATES, JobTables

MAX_BATCH = 10_000
"""Rows of one statement."""


class Enqueued(NamedTuple):
    """The outcome of enqueuing one job."""

    id: str
    is_new: bool
    """False if the job existed already: it is unique, or has the same `job_id`."""


class NewJob(NamedTuple):
    """A job to insert; the columns that are the same for all jobs of a statement are not in it."""

    id: str
    arguments: bytes
    """JSON."""
    unique_key: str | None


def new_job(job: Job[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
    """The row of a call; `InvalidValue` if its arguments are refused."""
    arguments = encode_arguments(job, args, kwargs)
    encoded = msgspec.json.encode(arguments)
    return NewJob(job.enqueue_options.job_id or str(uuid4()), encoded, unique_key(job, arguments))


def is_delayed(options: JobOptions) -> bool:
    """Whether a job may not run yet, so that its message is sent later."""
    return options.at is not None or bool(options.delay)


async def insert_jobs(
    sql: AsyncConnection,
    tables: JobTables,
    job: Job[..., Any],
    new: Sequence[NewJob],
    *,
    published: bool,
) -> list[Enqueued]:
    """Insert jobs, and say for each which row it has: its own, or the one that was there."""
    ids: dict[str, str] = {}
    # Across all batches: two transactions with the same keys cannot wait for each other.
    ordered = sorted(new, key=lambda each: each.unique_key or "")
    for first in range(0, len(ordered), MAX_BATCH):
        batch = ordered[first : first + MAX_BATCH]
        ids |= await _insert_batch(sql, tables, job, batch, published=published)
    return [Enqueued(ids.get(each.id, each.id), each.id not in ids) for each in new]


async def _insert_batch(
    sql: AsyncConnection,
    tables: JobTables,
    job: Job[..., Any],
    new: Sequence[NewJob],
    *,
    published: bool,
) -> dict[str, str]:
    """Insert jobs; returns, for those that were not, the ids of the rows in their way."""
    ids: dict[str, str] = {}
    wanted = list(new)
    while wanted:
        inserted = {row.id for row in await sql.execute(_insert(tables, job, wanted, published=published))}
        wanted = [each for each in wanted if each.id not in inserted]
        if not wanted or await _free_expired_keys(sql, tables, wanted):
            continue
        found = await _existing(sql, tables, job.kind, wanted)
        ids |= found
        wanted = [each for each in wanted if each.id not in found]  # their holders have ended since
    return ids


def _insert(tables: JobTables, job: Job[..., Any], new: Sequence[NewJob], *, published: bool) -> Any:
    options, now = job.enqueue_options, func.statement_timestamp()
    # One JSON text for all rows: arrays of as many texts take psycopg a quarter of the whole time to escape.
    rows = [{"id": each.id, "arguments": msgspec.Raw(each.arguments), "key": each.unique_key} for each in new]
    columns = (column("id", Text), column("arguments", JSONB), column("key", Text))
    records = func.json_to_recordset(cast(literal(msgspec.json.encode(rows).decode(), Text), JSON))
    given = records.table_valued(*columns, name="given").render_derived(with_types=True)
    period = options.unique.period if options.unique else None
    values = {
        "id": given.c.id,
        "kind": literal(job.kind, Text),
        "queue": literal(job.queue, Text),
        "arguments": given.c.arguments,
        "priority": literal(options.priority, Integer),
        "available_at": options.at or now + (options.delay or timedelta(0)),
        "published_at": now if published else null(),
        "unique_key": given.c.key,
        "unique_until": null() if period is None else now + period,
    }
    selected = select(*(_typed(tables, name, value) for name, value in values.items()))
    statement = upsert(tables.jobs).from_select(list(values), selected)
    return statement.on_conflict_do_nothing().returning(tables.jobs.c.id)


def _typed(tables: JobTables, name: str, value: Any) -> Any:
    return cast(value, tables.jobs.c[name].type)


async def _free_expired_keys(sql: AsyncConnection, tables: JobTables, new: Sequence[NewJob]) -> bool:
    """Take the keys from ended jobs whose period is over; False if there are none."""
    c = tables.jobs.c
    keys = [each.unique_key for each in new if each.unique_key is not None]
    if not keys:
        return False
    expired = and_(c.unique_until <= func.clock_timestamp(), c.state.not_in(OPEN_STATES))
    held = select(c.id).where(_is_any(c.unique_key, keys), expired).order_by(c.unique_key)
    locked = held.with_for_update(key_share=True).cte("locked")  # in one order: two callers cannot deadlock
    freed = update(tables.jobs).where(c.id == locked.c.id).values(unique_until=None)
    return (await sql.execute(freed.returning(c.id))).first() is not None


async def _existing(
    sql: AsyncConnection, tables: JobTables, kind: str, new: Sequence[NewJob]
) -> dict[str, str]:
    """The ids of the rows that are in the way of new ones."""
    c = tables.jobs.c
    ids = [each.id for each in new]
    keys = [each.unique_key for each in new if each.unique_key is not None]
    held = and_(_is_any(c.unique_key, keys), or_(c.unique_until.is_not(None), c.state.in_(OPEN_STATES)))
    rows = (await sql.execute(select(c.id, c.kind, c.unique_key).where(or_(_is_any(c.id, ids), held)))).all()
    by_key = {row.unique_key: row.id for row in rows}
    by_id = {row.id: row.kind for row in rows}
    found: dict[str, str] = {}
    for each in new:
        if by_id.get(each.id, kind) != kind:
            raise InvalidValue(kind, "an id that no other job has", f"{each.id!r}, a {by_id[each.id]!r}")
        if each.id in by_id:
            found[each.id] = each.id
        elif each.unique_key is not None and each.unique_key in by_key:
            found[each.id] = by_key[each.unique_key]
    return found


def _is_any(column: Any, values: Sequence[str]) -> Any:
    return column == func.any(cast(literal(list(values), ARRAY(Text)), ARRAY(Text)))
