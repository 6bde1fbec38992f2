"""How events are delivered, and what becomes of one whose handler raised.

A consumer's `on_error` maps exception classes to actions; the most specific class of the exception decides,
as for `except`. An exception that is not listed is retried by the stream's `DeliveryPolicy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from ephemera.errors import InvalidValue
from ephemera.keyspace import milliseconds

_LONGEST_RETRY = timedelta(days=365)
LONGEST_PAUSE = 86_400_000
"""Milliseconds that a pause may last before an event is tried."""


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """How often and after what delays events are delivered, and how long they are kept."""

    max_deliveries: int = 10
    """After this many failed deliveries an event becomes a dead letter."""
    first_retry: timedelta = timedelta(seconds=1)
    """The delay before the second delivery; it doubles each time, up to a lease."""
    lease: timedelta = timedelta(seconds=60)
    """After so long without a sign of life from its consumer, a pending event is claimed by another one."""
    max_dead_letters: int = 100_000
    """How many of the newest dead letters are kept."""
    retention: timedelta = timedelta(0)
    """How long events stay after every group has handled them, so that they can be replayed."""

    @property
    def lease_milliseconds(self) -> int:
        """The lease as Redis takes it."""
        return milliseconds(self.lease)


@dataclass(frozen=True, slots=True)
class Redeliver:
    """Deliver the event again, with increasing delays; after the last delivery it is a dead letter."""

    first: timedelta = timedelta(seconds=1)
    """The delay before the second delivery; it doubles each time."""
    longest: timedelta = timedelta(minutes=1)
    """The longest delay; it may be longer than a lease."""
    max_deliveries: int | None = None
    """After this many deliveries the event is a dead letter; None for the stream's own limit."""

    def delay(self, attempt: int) -> int:
        """Milliseconds between a failed attempt and the next one."""
        return min(milliseconds(self.longest), milliseconds(self.first) << min(max(attempt, 1) - 1, 32))


@dataclass(frozen=True, slots=True)
class Pause:
    """The dependency is down: pause the whole group, use up no attempt, and try one event now and then."""

    retry_after: timedelta = timedelta(seconds=30)
    """How long the group pauses before it tries one event, and after each trial that fails."""
    after: int = 1
    """This many of these failures in a row, in one consumer, pause the group; fewer are retried as usual."""


ErrorAction = Redeliver | Pause | Literal["dead_letter", "drop"]
"""What becomes of an event whose handler raised: `"drop"` acknowledges it, `"dead_letter"` is at once."""
ErrorActions = Mapping[type[Any], ErrorAction]
"""The actions of a consumer by exception class; the most specific class decides."""


class ErrorPolicy:
    """The actions of one consumer."""

    def __init__(self, key: str, delivery: DeliveryPolicy, on_error: ErrorActions) -> None:
        for raised, action in on_error.items():
            _check(key, raised, action)
        self._actions = dict(on_error)
        self._limit = delivery.max_deliveries
        self.default = Redeliver(delivery.first_retry, delivery.lease)
        """For exceptions that are not listed."""
        self.pauses = any(isinstance(action, Pause) for action in on_error.values())
        """Whether some exception pauses the group."""
        self.most_deliveries = max(map(self.max_deliveries, (self.default, *on_error.values())))
        """No event is delivered more often than this."""

    def action(self, error: BaseException) -> ErrorAction:
        """What becomes of an event whose handler raised this."""
        for each in type(error).__mro__:
            if each in self._actions:
                return self._actions[each]
        return self.default

    def max_deliveries(self, action: ErrorAction) -> int:
        """How often an event is delivered at most that fails like this."""
        return (action.max_deliveries if isinstance(action, Redeliver) else None) or self._limit


def describe(error: BaseException) -> str:
    """An exception as text that can be stored, even if its own `__str__` fails or returns surrogates."""
    name = type(error).__name__
    try:
        text = f"{name}: {error}"
    except Exception as problem:
        text = f"{name} (its message raises {type(problem).__name__})"
    return text.encode("utf-8", "backslashreplace").decode()


def _check(key: str, raised: object, action: object) -> None:
    if not (isinstance(raised, type) and issubclass(raised, BaseException)):
        raise InvalidValue(key, "exception classes in on_error", repr(raised))
    match action:
        case "dead_letter" | "drop":
            valid = True
        case Redeliver(first, longest, most):
            valid = timedelta(0) < first <= longest <= _LONGEST_RETRY and (most is None or most >= 1)
        case Pause(retry_after, after):
            valid = 0 < milliseconds(retry_after) <= LONGEST_PAUSE and after >= 1
        case _:
            valid = False
    if not valid:
        expected = "Redeliver(...), Pause(...), 'dead_letter' or 'drop' in on_error, with positive values"
        raise InvalidValue(key, expected, f"{action!r} for {raised.__name__}")
