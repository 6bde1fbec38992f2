"""One kind of job: its function, its queue, and how often and how long it may be tried.

The function's parameters are the job's arguments. They are stored as JSON and come back as their annotations
say, so a `UUID`, a `datetime` or a `msgspec.Struct` arrives as what it was.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.keyspace import check_durations
from ephemera.patterns.jobs._annotations import annotation

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
        """The name it has in SQL."""
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
        self._signature = inspect.signature(function)

    @property
    def hard_limit(self) -> timedelta:
        """When the process of an attempt is killed that does not end by itself."""
        return self.time_limit + HARD_LIMIT_AFTER

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call as plain data; `InvalidValue` when the function would not take them."""
        try:
            bound = self._signature.bind(None, *args, **kwargs).arguments
            del bound[next(iter(self._signature.parameters))]  # the run
            return {name: msgspec.to_builtins(value, str_keys=True) for name, value in bound.items()}
        except TypeError as problem:
            raise InvalidValue(
                self.kind, f"arguments for {self.kind}{self._signature}", str(problem)
            ) from None

    def typed(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Stored arguments as the function's annotations say."""
        return {
            name: msgspec.convert(value, annotation(self.function, name), strict=False)
            for name, value in arguments.items()
        }

    def delay(self, attempt: int) -> timedelta:
        """How long to wait after an attempt that went wrong."""
        return timedelta(seconds=min(2.0 ** (attempt - 1), _LONGEST_DELAY))

    def __repr__(self) -> str:
        return f"<Job {self.kind!r} in the queue {self.queue!r}>"
