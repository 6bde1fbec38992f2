"""How a value becomes an entry: for how long, with which version, in which bytes."""

from __future__ import annotations

import random
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from ephemera.errors import InvalidValue
from ephemera.keyspace import Codec, type_name
from ephemera.patterns.cache._entries import Entry, ServerClock, stamped_version

if TYPE_CHECKING:
    from ephemera.patterns.cache._declaration import Cache, Place

V = TypeVar("V")


class Filling(NamedTuple):
    """An entry as a fill's script takes it."""

    data: bytes  # empty: nothing is to be cached
    arguments: tuple[Any, ...]


class Making(Generic[V]):
    """Makes the entries of one cache in one store."""

    def __init__(self, declared: Cache[V], clock: ServerClock) -> None:
        self._declared = declared
        self._clock = clock
        self._encode = cast("Codec[Any]", declared.space.codec).encode
        self._stale = milliseconds(declared.stale)
        self._stamped = declared.stamped

    def filling(
        self, place: Place, token: str, value: V | None, cost: float, tags: list[str], began: int
    ) -> Filling:
        """What the script of a fill takes, for one entry."""
        life, data, place_of_number = self.fresh_for(value), b"", -1
        if life > 0:
            stamp: str | None = getattr(value, "stamp", None) if self._stamped else None
            version = secrets.token_urlsafe(9) if stamp is None else stamped_version(stamp)
            fresh_until = round(self._clock.now() + life)
            entry = self._declared.entry(version, fresh_until, round(cost), tags, began, value)
            data = self._encoded(entry)
            place_of_number = -1 if stamp is None else data.index(version.encode())
        life += self.stale_for(value)
        stamped = (place_of_number,) if self._stamped else ()
        return Filling(data, (token, data, round(life), place.channel, *stamped))

    def _encoded(self, entry: Entry) -> bytes:
        try:
            return self._encode(entry)
        except InvalidValue as refused:
            tags: list[object] = list(entry.tags)
            wrong = [tag for tag in tags if not isinstance(tag, str)]
            expected, given = ("tags of str", wrong[0]) if wrong else (refused.expected, entry.value)
            raise InvalidValue(refused.pattern, expected, type_name(type(given))) from None

    def fresh_for(self, value: V | None) -> float:
        """Milliseconds that a value is fresh, less some jitter."""
        declared = self._declared
        life = declared.fresh if value is not None else declared.missing
        if value is not None and declared.fresh_of is not None:
            life = min(life, declared.fresh_of(value))
        return milliseconds(life) * (1 - declared.jitter * random.random())

    def stale_for(self, value: V | None) -> float:
        """Milliseconds that a value is kept as a stale one."""
        stale_of = self._declared.stale_of
        if value is None or stale_of is None:
            return self._stale
        return min(self._stale, milliseconds(stale_of(value)))


def milliseconds(duration: timedelta) -> float:
    """A duration in the server's unit."""
    return duration.total_seconds() * 1000
