"""Preferences: typed settings of a user, or of a user's device, kept while they are in use.

    class Look(msgspec.Struct):
        theme: str = "light"
        font_size: int = 14

    LOOK = Preferences(catalogue, "prefs:{user_id}:{device}", Look)
    look = await store[LOOK].merge({"theme": "dark"}, user_id="u1", device="phone")

*Keys.* One JSON value for each combination of the pattern's fields.

*Lifetimes.* Seven days from the last write by default; reading does not extend it.

*Atomicity.* A merge sets the fields that it names and leaves all others, in one script and one round trip, so
two concurrent merges both survive unless they name the same field. A value that does not fit the type
counts as missing.

*When Redis is down.* Reads return the defaults, as they do when nothing is stored, unless
`when_down="raise"`; writes raise `ConnectionFailed`. After an eviction the defaults apply until something is
set again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar, get_args

from ephemera.errors import ConnectionFailed, InvalidDeclaration
from ephemera.keyspace import (
    Catalogue,
    FieldValue,
    Fixed,
    Keyspace,
    Role,
    Store,
    ValueAccessor,
    check_declaration,
    fixed,
    record_fields,
)
from ephemera.patterns._stored_records import JsonFormat, load_change_script

__all__ = ["BoundPreferences", "Preferences"]

S = TypeVar("S")

MERGE = load_change_script("ephemera.patterns.preferences", "merge")

_WhenDown = Literal["defaults", "raise"]
_WEEK = fixed(days=7)


class Preferences(Generic[S]):
    """The declaration of settings, a record with defaults: `store[LOOK]` gives the `BoundPreferences`.

    Args:
        catalogue: The catalogue that declares the keys.
        pattern: The pattern of the keys, such as `"look:{user_id}"`.
        record: The type of the settings, whose fields all have defaults.
        lifetime: How long settings that were read are used; by default a week.
        when_down: What a read does when Redis is unavailable: return the "defaults", or "raise".
        role: The server that has the settings.
        purpose: What the settings are for, for the generated documentation.
        if_lost: What happens when settings are lost.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        pattern: str,
        record: type[S],
        *,
        lifetime: Fixed = _WEEK,
        when_down: _WhenDown = "defaults",
        role: Role = "cache",
        purpose: str = "A user's settings",
        if_lost: str = "the defaults, until something is set again",
    ) -> None:
        check_declaration(catalogue, pattern)
        _check(pattern, record, lifetime, when_down)
        self.keyspace: Keyspace[ValueAccessor[S]] = catalogue.value(
            pattern, record, lifetime=lifetime, role=role, purpose=purpose, if_lost=if_lost
        )
        self.record = record
        self.when_down = when_down

    def bind(self, store: Store) -> BoundPreferences[S]:
        """Bind the settings to a store."""
        return BoundPreferences(self, store)

    def __repr__(self) -> str:
        return f"<Preferences {self.keyspace.pattern!r} of {self.keyspace.catalogue}>"


class BoundPreferences(Generic[S]):
    """The settings of one store: what `store[LOOK]` gives."""

    def __init__(self, declaration: Preferences[S], store: Store) -> None:
        self._values = store[declaration.keyspace]
        self._default = declaration.record
        self._raises = declaration.when_down == "raise"
        self._records: JsonFormat[S] = JsonFormat(declaration.keyspace)
        self._run = store.client(declaration.keyspace.role).run
        self._lifetime = declaration.keyspace.lifetime.milliseconds or 0

    async def get(self, /, **fields: FieldValue) -> S:
        """Return the settings; the defaults where nothing was set."""
        try:
            return await self._values.get(**fields) or self._default()
        except ConnectionFailed:
            if self._raises:
                raise
            return self._default()

    async def merge(self, changes: Mapping[str, Any], /, **fields: FieldValue) -> S:
        """Set some fields and leave the others; return all of them as they are now."""
        change = self._records.change(changes)
        with self._values.stats.counting_errors:
            text = await self._run(MERGE, (self._values.key(**fields),), (self._lifetime, *change))
        self._values.stats.writes += 1
        merged = self._records.decode(text)
        if merged is None:  # a foreign value inside the right envelope
            merged = self._default(**changes)
            await self.replace(merged, **fields)
        return merged

    async def replace(self, settings: S, /, **fields: FieldValue) -> None:
        """Set all fields."""
        await self._values.put_many([(fields, settings)])

    async def reset(self, /, **fields: FieldValue) -> bool:
        """Return to the defaults; False when nothing was set."""
        return await self._values.delete(**fields)


def _check(pattern: str, record: type[Any], lifetime: Any, when_down: str) -> None:
    required = [field.name for field in record_fields(pattern, record) if field.required]
    if required:
        raise InvalidDeclaration(
            pattern,
            f"{record.__name__} has no default for {', '.join(required)}",
            "give every field one, for users who never set anything",
        )
    if not isinstance(lifetime, Fixed):
        raise InvalidDeclaration(
            pattern, f"settings cannot have the lifetime {lifetime}", "use fixed(days=7), from the last write"
        )
    if when_down not in get_args(_WhenDown):
        raise InvalidDeclaration(pattern, f"when_down={when_down!r} is unknown", "use 'defaults' or 'raise'")
