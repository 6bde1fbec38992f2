"""The policies of a kind of job: what follows a failed attempt, and what makes two jobs the same.

*Unique jobs.* A second enqueue of the same work returns the job that exists. A job holds its key while it is
open (`waiting` or `running`), and with a `period` at least until that long after it was enqueued. The partial
unique index `{table}_unique` enforces it: whatever the number of processes and transactions, one row holds a
key. Of two transactions that enqueue the same key the second waits for the first to commit or roll back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from random import random
from typing import Any, Literal

import msgspec

from ephemera.errors import InvalidDeclaration

_MAX_KEY = 500  # characters; an index entry of PostgreSQL holds 2,700 bytes


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
        period: For how long after it was enqueued a job is the only one, even if it has ended meanwhile. By
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
            return f"{kind}:{self.key}"
        names = sorted(arguments if self.arguments is None else self.arguments)
        compared = msgspec.json.encode([[name, arguments.get(name)] for name in names], order="deterministic")
        return f"{kind}:sha256:{sha256(compared).hexdigest()}"
