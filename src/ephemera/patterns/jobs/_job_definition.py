"""One kind of job: its function, its queue, and how often and how long it may be tried.

The function's parameters are the job's arguments. They are stored as JSON and converted back as their
annotations say, so a `UUID`, a `datetime` or a `msgspec.Struct` arrives as what it was.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar, get_type_hints

import msgspec

from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.keyspace import check_durations

P = ParamSpec("P")
R = TypeVar("R")

HARD_LIMIT_AFTER = timedelta(seconds=5)
"""How long after its time limit a process is killed whose step cannot be stopped."""
_LONGEST_DELAY = 60.0  # seconds between two attempts


class Job(Generic[P, R]):
    """A kind of job: what `@JOBS.job(...)` makes of a function."""

    def __init__(
        self, function: Callable[..., Any], queue: str, attempts: int, time_limit: timedelta
    ) -> None:
        self.kind = function.__name__
        """Its name in SQL."""
        if not inspect.iscoroutinefunction(function):
            raise InvalidDeclaration(
                self.kind,
                "a job is an `async def`",
                "its steps may be plain functions: run.step(name, function)",
            )
        check_durations(self.kind, time_limit=time_limit)
        if attempts < 1 or time_limit <= timedelta(0):
            raise InvalidDeclaration(
                self.kind, f"attempts={attempts}, time_limit={time_limit}", "both must be above 0"
            )
        self.queue = queue
        self.attempts = attempts
        self.time_limit = time_limit
        self.function = function
        self.signature = inspect.signature(function)

    @property
    def hard_limit(self) -> timedelta:
        """After how long the process of an attempt that does not end by itself is killed."""
        return self.time_limit + HARD_LIMIT_AFTER

    def __repr__(self) -> str:
        return f"<Job {self.kind!r} in the queue {self.queue!r}>"


def encode_arguments(job: Job[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call as JSON-compatible data; `InvalidValue` if the function refuses them."""
    try:
        bound = job.signature.bind(None, *args, **kwargs).arguments
        del bound[next(iter(job.signature.parameters))]  # the run
        return {name: msgspec.to_builtins(value, str_keys=True) for name, value in bound.items()}
    except TypeError as problem:
        raise InvalidValue(job.kind, f"arguments for {job.kind}{job.signature}", str(problem)) from None


def decode_arguments(job: Job[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Stored arguments, converted to the types that the function's annotations name."""
    return {
        name: msgspec.convert(value, annotation(job.function, name), strict=False)
        for name, value in arguments.items()
    }


def retry_delay(attempt: int) -> timedelta:
    """How long to wait after a failed attempt: 1 s, 2 s, 4 s, ... up to a minute."""
    return timedelta(seconds=min(2.0 ** (attempt - 1), _LONGEST_DELAY))


def annotation(function: Callable[..., Any], name: str) -> Any:
    """The annotated type of a parameter, or of `return`; `Any` if there is none.

    Each annotation is resolved by itself, so the others may name types that cannot be imported.
    """
    written = inspect.unwrap(function.func if isinstance(function, partial) else function)
    found = getattr(written, "__annotations__", {}).get(name, Any)

    def alone() -> None: ...

    alone.__annotations__ = {name: found}
    try:
        return get_type_hints(alone, globalns=getattr(written, "__globals__", {}), include_extras=True)[name]
    except NameError as problem:
        raise InvalidDeclaration(
            getattr(written, "__qualname__", repr(written)),
            f"its annotation of {name!r} cannot be resolved: {problem}",
            "values are stored by it, so import what it names at the module's top, not under TYPE_CHECKING",
        ) from problem
