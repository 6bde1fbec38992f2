"""The tables of jobs in PostgreSQL, and how results and errors of any content are stored in them.

The tables are part of the application's own metadata if it passes one; `ephemera.sql` migrates them.

*Values.* No value that a job returns can keep it from ending. JSON in PostgreSQL has no NUL and no NaN, and
UTF-8 has no lone surrogates, but results of models and parsers do. A step's result is text: the values that
msgspec cannot write are written by Python's own `json`, which escapes every one of them and reads it back. A
job's result is `jsonb`, so that it can be queried: one that `jsonb` cannot hold is stored as an object with
the one field `$json`, the same text as a string.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    Interval,
    MetaData,
    Table,
    Text,
    and_,
    false,
    func,
    literal_column,
    or_,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from ephemera.errors import InvalidValue
from ephemera.keyspace import convert, encode_json, json_decoder, to_builtins

JOB_STATES = ("waiting", "running", "done", "failed", "cancelled", "dead")
"""A `failed` job gave up by itself (`JobFailed`); a `dead` one used up its attempts."""
OPEN_STATES = ("waiting", "running")
SUSPECT = 2
"""A job whose processes crashed this many times in a row runs alone in a process, until it has an outcome."""
TIME = DateTime(timezone=True)
WAITING: Any = literal_column("'waiting'")
RUNNING: Any = literal_column("'running'")
SUSPECT_LITERAL: Any = literal_column(str(SUSPECT))
"""Literals rather than parameters: a prepared statement must see that they match the partial indexes."""
_MAX_ERROR = 4000  # characters of an error that the row keeps
_ESCAPED = "$json"


class JobTables(NamedTuple):
    """The tables of one declaration."""

    jobs: Table
    steps: Table
    queues: Table
    schedules: Table


def job_tables(metadata: MetaData, name: str) -> JobTables:
    """Declare the tables `name`, `name_steps`, `name_queues` and `name_schedules`."""
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
        Column("crashes", Integer, nullable=False, server_default="0", comment="of its processes, in a row"),
        Column("fence", BigInteger, nullable=False, server_default="0"),
        Column("worker", Text, comment="the worker that ran it last: host:process"),
        Column("lease_until", TIME, comment="a running job may be taken over after this"),
        Column("step", Text, comment="the last step that was recorded"),
        Column("steps", Integer, nullable=False, server_default="0", comment="how many were recorded"),
        Column("error", Text, comment="of the last attempt"),
        Column("result", JSONB),
        Column("priority", Integer, nullable=False, server_default="0", comment="higher runs first"),
        Column("available_at", TIME, nullable=False, server_default=now, comment="not run before this"),
        Column("published_at", TIME, comment="when its last message was put in the queue"),
        Column("resent", Boolean, nullable=False, server_default=false(), comment="more than one message"),
        Column("created_at", TIME, nullable=False, server_default=now),
        Column("started_at", TIME, comment="of its first attempt"),
        Column("finished_at", TIME),
        Column("unique_key", Text, comment="one job at a time has it"),
        Column("unique_until", TIME, comment="it has the key until then, even if it has ended"),
        Column("callback_due_at", TIME, comment="when `on_finished` is called, unless it was"),
        Column("callback_attempts", Integer, nullable=False, server_default="0"),
        CheckConstraint(f"state IN {JOB_STATES}", name=f"{name}_state"),
    )
    # Leases are in no index, so that their renewal touches the row's page alone. The indexes are partial, so
    # that a change of state enters the row in as few of them as possible.
    c = jobs.c
    due = (c.queue, c.priority.desc(), c.available_at)
    Index(f"{name}_waiting", *due, postgresql_where=c.state == "waiting")
    suspect = and_(c.state == "waiting", c.crashes >= SUSPECT)
    Index(f"{name}_suspects", *due, postgresql_where=suspect)
    Index(f"{name}_running", c.queue, postgresql_where=c.state == "running")
    Index(f"{name}_published", c.queue, c.published_at, postgresql_where=c.published_at.is_not(None))
    Index(f"{name}_listed", c.created_at)
    Index(f"{name}_finished", c.finished_at, postgresql_where=c.finished_at.is_not(None))
    holds_key = or_(c.unique_until.is_not(None), c.state.in_(OPEN_STATES))
    Index(
        f"{name}_unique",
        c.unique_key,
        unique=True,
        postgresql_where=and_(c.unique_key.is_not(None), holds_key),
    )
    Index(
        f"{name}_callbacks",
        c.callback_due_at,
        postgresql_where=c.callback_due_at.is_not(None),
    )
    steps = Table(
        f"{name}_steps",
        metadata,
        Column("job_id", Text, ForeignKey(jobs.c.id, ondelete="CASCADE"), primary_key=True),
        Column("name", Text, primary_key=True),
        Column("result", Text, nullable=False, comment="JSON"),
        Column("fence", BigInteger, nullable=False, comment="of the attempt that ran it"),
        Column("done_at", TIME, nullable=False, server_default=now),
    )
    queues = Table(
        f"{name}_queues",
        metadata,
        Column("queue", Text, primary_key=True),
        Column("paused", Boolean, nullable=False, server_default=false()),
        Column("max_running", Integer, comment="how many of its jobs run at once"),
        Column("rate_limit", Integer, comment="how many of its jobs start in `rate_period`"),
        Column("rate_period", Interval),
        Column("starts", JSONB, nullable=False, server_default=text("'[]'"), comment="recent, for its rate"),
    )
    schedules = Table(
        f"{name}_schedules",
        metadata,
        Column("name", Text, primary_key=True),
        Column("kind", Text, nullable=False, comment="of the jobs it enqueues"),
        Column("definition", Text, nullable=False, comment="as in 0 3 * * * Europe/Berlin"),
        Column("next_run_at", TIME, nullable=False),
        Column("last_run_at", TIME, comment="the last time that a job was enqueued for"),
        Column("last_job_id", Text),
    )
    return JobTables(jobs, steps, queues, schedules)


JobState = Literal["waiting", "running", "done", "failed", "cancelled", "dead"]


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is in SQL."""

    id: str
    kind: str
    queue: str
    arguments: dict[str, Any]
    state: JobState
    attempts: int
    crashes: int
    """How many processes in a row died, or lost its lease, while they ran it."""
    fence: int
    """Grows with every claim, cancellation and retry, and when its lease has expired."""
    worker: str | None
    """The worker that ran it last, as host:process."""
    lease_until: datetime | None
    """When another worker may take over a running job, or a retry of a cancelled one may begin."""
    step: str | None
    """The step recorded last."""
    steps: int
    """How many steps were recorded."""
    error: str | None
    """Of the last attempt."""
    result: Any
    available_at: datetime
    published_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    priority: int
    """Jobs of a higher priority run before others of their queue."""
    unique_key: str | None
    """The key of a unique job; see `Unique`."""
    callback_due_at: datetime | None
    """When `on_finished` is called, or called again; None if it was called, or the job has not ended."""
    callback_attempts: int
    """How often another process than the one that ended the job called it."""

    @property
    def ended(self) -> bool:
        """Whether it is done, failed, cancelled or dead; only a retry changes it then."""
        return self.state not in OPEN_STATES


def row_columns(tables: JobTables) -> list[Column[Any]]:
    """The columns of a `JobRow`, to select or to return."""
    return [tables.jobs.c[name] for name in JobRow.__struct_fields__]


def read_row(found: Any) -> JobRow:
    """A `JobRow` from a row of SQLAlchemy's."""
    values = dict(found._mapping)
    values["result"] = decode_result(values["result"])
    return JobRow(**values)


def encode_step(kind: str, name: str, result: Any) -> bytes:
    """A step's result as JSON; `InvalidValue` for an object that JSON cannot hold."""
    try:
        try:
            data = encode_json(result)
        except UnicodeEncodeError:
            return _escaped(to_builtins(result)).encode()
        if b"null" not in data:
            return data
        # msgspec writes NaN and the infinities as null.
        escaped = _escaped(to_builtins(result))
        return escaped.encode() if "NaN" in escaped or "Infinity" in escaped else data
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidValue(f"{kind}, step {name}", "what JSON can hold", str(problem)) from problem


def decode_step(data: bytes, returned: Any) -> Any:
    """A recorded result, converted to the type that the step's annotation names."""
    try:
        return json_decoder(returned)(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return convert(json.loads(data), returned, strict=False)


def encode_result(result: Any) -> str:
    """A job's result as text that `jsonb` accepts."""
    plain = to_builtins(result)
    try:
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
        text.encode()
        is_plain = "\\u0000" not in text and not (isinstance(plain, dict) and _ESCAPED in plain)
    except ValueError:  # UnicodeEncodeError is one, too
        is_plain = False
    return text if is_plain else json.dumps({_ESCAPED: _escaped(plain)})


def decode_result(stored: Any) -> Any:
    """A job's result from what `jsonb` holds."""
    if isinstance(stored, dict) and stored.keys() == {_ESCAPED} and isinstance(stored[_ESCAPED], str):
        return json.loads(stored[_ESCAPED])
    return stored


def describe_error(error: BaseException) -> str:
    """An exception as text for its row, whatever its own `str` does."""
    try:
        text = str(error)
    except Exception as problem:
        text = f"(its text cannot be shown: {type(problem).__name__})"
    return storable_text(f"{type(error).__name__}: {text}")


def storable_text(text: str) -> str:
    """The beginning of a text, without what PostgreSQL refuses: NUL and lone surrogates are escaped."""
    shown = text[:_MAX_ERROR].replace("\x00", "\\x00")
    return shown.encode("utf-8", "backslashreplace").decode()


def _escaped(plain: Any) -> str:
    return json.dumps(plain)
