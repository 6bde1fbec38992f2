"""The two tables of jobs, in PostgreSQL: what is true of a job, and what each of its steps came to.

They are part of the application's own metadata when it gives one, so that its migrations know them. Times are
the database's, never a worker's. `fence` grows with every claim, cancellation and retry; whoever writes names
the fence it holds, and an older one changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    false,
    func,
)
from sqlalchemy.dialects.postgresql import JSONB

STATES = ("waiting", "running", "done", "failed", "cancelled", "dead")
"""`failed` gave up by itself, `dead` was given up after its last attempt."""
OPEN = ("waiting", "running")

_TIME = DateTime(timezone=True)


class Tables(NamedTuple):
    """The tables of one declaration."""

    jobs: Table
    steps: Table


def job_tables(metadata: MetaData, name: str) -> Tables:
    """Declare the tables `name` and `name_steps`."""
    now = func.clock_timestamp()
    jobs = Table(
        name,
        metadata,
        Column("id", Text, primary_key=True),
        Column("kind", Text, nullable=False),
        Column("queue", Text, nullable=False),
        Column("arguments", JSONB, nullable=False),
        Column("state", Text, nullable=False, server_default="waiting"),
        Column("attempts", Integer, nullable=False, server_default="0"),
        Column("fence", BigInteger, nullable=False, server_default="0"),
        Column("worker", Text, comment="who ran it last: host:process"),
        Column("lease_until", _TIME, comment="a running job may be taken over after this"),
        Column("step", Text, comment="the last step that was recorded"),
        Column("steps", Integer, nullable=False, server_default="0", comment="how many were recorded"),
        Column("error", Text, comment="of the last attempt"),
        Column("result", JSONB),
        Column("available_at", _TIME, nullable=False, server_default=now, comment="not to be run before"),
        Column("published_at", _TIME, comment="when its last message was put in the queue"),
        Column("resent", Boolean, nullable=False, server_default=false(), comment="more than one message"),
        Column("created_at", _TIME, nullable=False, server_default=now),
        Column("started_at", _TIME, comment="of its first attempt"),
        Column("finished_at", _TIME),
        CheckConstraint(f"state IN {STATES}", name=f"{name}_state"),
    )
    # Leases are in no index, so that their renewal touches the row's page alone.
    Index(f"{name}_open", jobs.c.queue, jobs.c.available_at, postgresql_where=jobs.c.state.in_(OPEN))
    Index(f"{name}_published", jobs.c.queue, jobs.c.published_at)
    Index(f"{name}_listed", jobs.c.created_at)
    Index(f"{name}_finished", jobs.c.finished_at)
    steps = Table(
        f"{name}_steps",
        metadata,
        Column("job_id", Text, ForeignKey(jobs.c.id, ondelete="CASCADE"), primary_key=True),
        Column("name", Text, primary_key=True),
        Column("result", Text, nullable=False, comment="JSON"),
        Column("fence", BigInteger, nullable=False, comment="of the attempt that did it"),
        Column("done_at", _TIME, nullable=False, server_default=now),
    )
    return Tables(jobs, steps)
