"""One kind of job: its function, its queue, how often and how long it is tried, and what makes two the same.

The function's parameters are the job's arguments. They are stored as JSON and converted back as their
annotations say, so a `UUID`, a `datetime`, a `msgspec.Struct` or a pydantic model arrives as what it was.
Both directions are tried when a job is enqueued: arguments that no worker could use are refused there.

*Unique jobs.* A second enqueue of the same work returns the job that exists. A job holds its key while it is
open (`waiting` or `running`), and with a `period` at least until that long after it was enqueued. The partial
unique index `{table}_unique` enforces it: whatever the number of processes and transactions, one row holds a
key. Of two transactions that enqueue the same key the second waits for the first to commit or roll back.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from math import isfinite
from random import random
from typing import Any, Generic, Literal, ParamSpec, Self, TypeVar, get_type_hints

import msgspec

from ephemera.errors import EphemeraError, InvalidDeclaration, InvalidValue
from ephemera.keyspace import check_durations, convert, storable, to_builtins

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("ephemera.jobs")

HARD_LIMIT_AFTER = timedelta(seconds=5)
"""How long after its time limit a process is killed whose step cannot be stopped."""
_MAX_DELAY = timedelta(days=3650)
_MAX_PRIORITY = 1_000_000
_MAX_ID = 200  # characters
_MAX_KEY = 500  # characters; an index entry of PostgreSQL holds 2,700 bytes
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, kw_only=True)
class Retry:
    """The retry policy of a job: `@JOBS.job(queue=..., retry=Retry(attempts=3, give_up_on=(ValueError,)))`.

    An error that is not retried ends the job as `failed`; the last attempt's error ends it as `dead`.

    Args:
        attempts: How many attempts a job gets, the first one included. An attempt counts when it begins.
        backoff: The delay after the first failed attempt.
        factor: What each further delay is multiplied by; 1 for a constant delay.
        max_delay: The longest delay.
        jitter: The part of a delay that is random, so that jobs that failed together are not retried
            together: 0.1 shortens each delay by up to 10 %.
        on: The errors that are retried.
        give_up_on: Errors among them that are not.

    """

    attempts: int = 5
    backoff: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    max_delay: timedelta = timedelta(minutes=1)
    jitter: float = 0.1
    on: tuple[type[Exception], ...] = (Exception,)
    give_up_on: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InvalidDeclaration("Retry", f"attempts={self.attempts}", "a job needs at least 1")
        if self.backoff < timedelta(0) or self.max_delay < timedelta(0) or self.factor < 1:
            given = f"backoff={self.backoff}, factor={self.factor}, max_delay={self.max_delay}"
            raise InvalidDeclaration("Retry", given, "delays are not negative, and the factor is at least 1")
        if not 0 <= self.jitter <= 1:
            raise InvalidDeclaration("Retry", f"jitter={self.jitter}", "use a part of the delay, from 0 to 1")

    def decide(self, attempt: int, error: Exception) -> timedelta | Literal["failed", "dead"]:
        """What follows a failed attempt: another one after a delay, or the end of the job in this state."""
        if not isinstance(error, self.on) or isinstance(error, self.give_up_on):
            return "failed"
        return "dead" if attempt >= self.attempts else self.delay(attempt)

    def delay(self, attempt: int) -> timedelta:
        """How long to wait after a failed attempt, counted from 1."""
        longest = self.max_delay.total_seconds()
        try:
            seconds = min(self.backoff.total_seconds() * self.factor ** (attempt - 1), longest)
        except OverflowError:
            seconds = longest
        return timedelta(seconds=seconds * (1 - self.jitter * random()))


@dataclass(frozen=True, kw_only=True)
class Unique:
    """What makes two jobs of one kind the same, and for how long.

    Args:
        key: The key itself, for `job.options(unique=Unique(key=...))`; by default the arguments are compared.
        arguments: The names of the arguments to compare; all of them by default.
        period: For how long after it was enqueued a job is the only one, even if it has ended since. By
            default only while it is open.

    """

    key: str | None = None
    arguments: tuple[str, ...] | None = None
    period: timedelta | None = None

    def __post_init__(self) -> None:
        if self.key is not None and self.arguments is not None:
            raise InvalidDeclaration(self.key, "a key and arguments to compare", "give one of them")
        if self.key is not None and not 0 < len(self.key) <= _MAX_KEY:
            shown = f"{self.key[:20]}..."
            raise InvalidDeclaration(shown, f"a key of {len(self.key)} characters", f"use 1 to {_MAX_KEY}")
        if self.period is not None and self.period <= timedelta(0):
            raise InvalidDeclaration("Unique", f"period={self.period}", "it must be above 0")

    def key_for(self, kind: str, arguments: Mapping[str, Any]) -> str:
        """The key in SQL of a job with these encoded arguments, defaults included."""
        if self.key is not None:
            return f"{kind}:key:{self.key}"
        names = sorted(arguments if self.arguments is None else self.arguments)
        compared = msgspec.json.encode([[name, arguments.get(name)] for name in names], order="deterministic")
        return f"{kind}:args:{sha256(compared).hexdigest()}"


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """How a job is enqueued; see `Job.options`."""

    delay: timedelta | None = None
    at: datetime | None = None
    priority: int = 0
    unique: Unique | None = None
    job_id: str | None = None


class Job(Generic[P, R]):
    """A kind of job: what `@JOBS.job(...)` makes of a function."""

    def __init__(
        self,
        function: Callable[..., Any],
        queue: str,
        retry: Retry,
        time_limit: timedelta,
        *,
        name: str | None = None,
        priority: int = 0,
        unique: Unique | None = None,
    ) -> None:
        self.kind = name or function.__name__
        """Its name in SQL."""
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(function))
        """Whether it is an `async def`; a plain function runs in a thread."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            advice = "return the result, and publish what comes before it: run.publish(event)"
            raise InvalidDeclaration(self.kind, "a job is no generator", advice)
        if ":" in self.kind:
            advice = "use a point or a _: the keys of unique jobs are the name, a colon and more"
            raise InvalidDeclaration(self.kind, "a colon in a job's name", advice)
        check_durations(self.kind, time_limit=time_limit)
        if time_limit <= timedelta(0):
            raise InvalidDeclaration(self.kind, f"time_limit={time_limit}", "it must be above 0")
        self.queue = queue
        self.retry = retry
        self.time_limit = time_limit
        self.function = function
        self.signature = inspect.signature(function)
        self.declared = self
        """What the declaration made, if this is a copy by `options`."""
        self.enqueue_options = JobOptions(priority=priority, unique=unique)
        if not self.signature.parameters:
            raise InvalidDeclaration(self.kind, "it takes no arguments", "a job's first parameter is its Run")
        self._run, *self._parameters = self.signature.parameters.values()
        self._types: dict[str, Any] = {}
        _check_options(self)

    def options(
        self,
        *,
        delay: timedelta | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        unique: Unique | None = None,
        job_id: str | None = None,
    ) -> Self:
        """The same job, enqueued in another way: `jobs.enqueue(generate.options(priority=5), "Whales")`.

        Options that are not given are those of this job, so at first those of the declaration.

        Args:
            delay: How long the job waits before it may run, by the database's clock.
            at: The moment before which it does not run, with a time zone; one in the past runs at once.
            priority: Jobs of a higher priority run before others of their queue; 0 is the usual one.
            unique: What makes a second job the same; see `Unique`.
            job_id: The id of the job. A second job with the same id is not enqueued.

        """
        given = {"delay": delay, "at": at, "priority": priority, "unique": unique, "job_id": job_id}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if (delay is None) != (at is None):  # one replaces the other
            changes = {"delay": None, "at": None, **changes}
        made = copy(self)
        made.enqueue_options = replace(self.enqueue_options, **changes)
        _check_options(made)
        return made

    @property
    def attempts(self) -> int:
        """How many attempts it gets."""
        return self.retry.attempts

    @property
    def hard_limit(self) -> timedelta:
        """After how long the process of an attempt that does not end by itself is killed."""
        return self.time_limit + HARD_LIMIT_AFTER

    def type_of(self, name: str) -> Any:
        """The annotated type of a parameter, or of `return`."""
        if name not in self._types:
            self._types[name] = annotation(self.function, name)
        return self._types[name]

    def __repr__(self) -> str:
        return f"<Job {self.kind!r} in the queue {self.queue!r}>"


def _check_options(job: Job[..., Any]) -> None:
    given = job.enqueue_options
    _check_time(job.kind, given.delay, given.at)
    if abs(given.priority) > _MAX_PRIORITY:
        limits = f"a priority from -{_MAX_PRIORITY:,} to {_MAX_PRIORITY:,}"
        raise InvalidValue(job.kind, limits, f"{given.priority:,}")
    if given.job_id is not None and not 0 < len(given.job_id) <= _MAX_ID:
        raise InvalidValue(job.kind, f"an id of 1 to {_MAX_ID} characters", f"{len(given.job_id)} characters")
    for name, text in (("job_id", given.job_id), ("unique", given.unique and given.unique.key)):
        try:
            _check_storable(name, text)
        except ValueError as problem:
            raise InvalidValue(job.kind, "text that PostgreSQL can hold", str(problem)) from None
    compared = given.unique.arguments if given.unique else None
    if unknown := set(compared or ()) - {each.name for each in job._parameters}:
        advice = f"its arguments are {', '.join(each.name for each in job._parameters) or 'none'}"
        raise InvalidDeclaration(job.kind, f"it is unique by {', '.join(sorted(unknown))}", advice)


def _check_time(kind: str, delay: timedelta | None, at: datetime | None) -> None:
    if delay is not None and at is not None:
        raise InvalidValue(kind, "a delay or a moment", "both delay= and at=")
    if delay is not None and not timedelta(0) <= delay <= _MAX_DELAY:
        raise InvalidValue(kind, f"a delay from 0 to {_MAX_DELAY.days} days", repr(delay))
    if at is not None and at.utcoffset() is None:
        raise InvalidValue(kind, "at= with a time zone, as in datetime.now(UTC)", repr(at))


def encode_arguments(job: Job[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call as JSON-compatible data; `InvalidValue` if no worker could use them."""
    for parameter in job._parameters:
        if parameter.kind not in _BY_NAME:
            expected = f"parameters that can be passed by name, and {job.kind}{job.signature} has others"
            raise InvalidValue(job.kind, expected, f"the parameter {parameter}")
    try:
        bound = job.signature.bind(None, *args, **kwargs).arguments
        del bound[job._run.name]
        encoded = {name: to_builtins(value) for name, value in bound.items()}
        for name, value in encoded.items():
            _check_storable(name, value)
        decode_arguments(job, encoded)
    except EphemeraError:
        raise
    except (TypeError, ValueError) as problem:
        raise InvalidValue(job.kind, f"arguments for {job.kind}{job.signature}", str(problem)) from None
    return encoded


def decode_arguments(job: Job[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Stored arguments, converted to the types that the function's annotations name.

    An argument that the function does not have is of a newer version that runs beside this one. It is
    ignored, like an unknown field of a value.
    """
    if unknown := arguments.keys() - job.signature.parameters.keys():
        _log.warning("the job %r has no argument %s: ignored", job.kind, ", ".join(sorted(unknown)))
    decoded = {}
    for name in arguments.keys() - unknown:
        try:
            decoded[name] = convert(arguments[name], job.type_of(name), strict=False)
        except msgspec.ValidationError as problem:
            raise InvalidValue(
                job.kind, f"arguments for {job.kind}{job.signature}", f"{name}: {problem}"
            ) from None
    return decoded


def unique_key(job: Job[..., Any], arguments: dict[str, Any]) -> str | None:
    """The key that a job with these encoded arguments holds; None if it is not unique."""
    unique = job.enqueue_options.unique
    if unique is None:
        return None
    defaults = {
        each.name: to_builtins(each.default)
        for each in job._parameters
        if each.default is not inspect.Parameter.empty and each.name not in arguments
    }
    return unique.key_for(job.kind, {**defaults, **arguments})


def _check_storable(name: str, value: Any) -> None:
    """Refuse what JSON in PostgreSQL cannot hold, wherever it is in a value."""
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError(f"{name}: a text with the character NUL")
        value.encode()  # refuses lone surrogates
    elif isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{name}: the number {value}")
    elif isinstance(value, dict):
        for key, each in value.items():
            _check_storable(name, key)
            _check_storable(name, each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _check_storable(name, each)


def annotation(function: Callable[..., Any], name: str) -> Any:
    """The annotated type of a parameter, or of `return`, as `storable` returns it; `Any` if there is none.

    Each annotation is resolved by itself, so the others may name types that cannot be imported.
    """
    written = inspect.unwrap(function.func if isinstance(function, partial) else function)
    found = getattr(written, "__annotations__", {}).get(name, Any)

    def alone() -> None: ...

    alone.__annotations__ = {name: found}
    try:
        hints = get_type_hints(alone, globalns=getattr(written, "__globals__", {}), include_extras=True)
    except NameError as problem:
        raise InvalidDeclaration(
            getattr(written, "__qualname__", repr(written)),
            f"its annotation of {name!r} cannot be resolved: {problem}",
            "values are stored by it, so import what it names at the module's top, not under TYPE_CHECKING",
        ) from problem
    return storable(hints[name])
