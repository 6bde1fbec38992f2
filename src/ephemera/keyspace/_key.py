"""Typed keys: the fields of a pattern declared as a class, which type checkers and editors follow.

    class Visit(Key, pattern="visits:{page}:{day}"):
        page: str
        day: date

    VISITS = catalogue.counter(Visit.pattern, lifetime=..., purpose=...)
    await store[VISITS].add(**Visit(page="home", day=date.today()))

The class is a frozen dataclass, and a mapping of its fields, so `**` passes them to any method of an accessor
or a pattern, and batches take it as it is. A field with a declared type accepts a value of that type, or the
text that it is rendered as, and `parse` returns a value of that type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, dataclass_transform, get_type_hints

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace._field_types import FieldType, field_type
from ephemera.keyspace._template import KeyPattern, Template


@dataclass_transform(frozen_default=True)
class Key(Mapping[str, Any]):
    """The base class of typed keys: one annotation for each field of `pattern`."""

    pattern: ClassVar[KeyPattern]
    """The pattern with the types of its fields, for the declaration of a keyspace or a pattern."""

    def __init_subclass__(cls, *, pattern: str) -> None:
        super().__init_subclass__()
        cls.pattern = KeyPattern(pattern, _types(cls, pattern))
        dataclass(frozen=True)(cls)

    def __getitem__(self, name: str) -> Any:
        """The value of a field."""
        if name not in self.pattern.types:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        """The names of the fields."""
        return iter(self.pattern.types)

    def __len__(self) -> int:
        """The number of fields."""
        return len(self.pattern.types)


def _types(cls: type[Key], pattern: str) -> dict[str, FieldType]:
    fields = Template(pattern).fields
    names = tuple(cls.__annotations__)
    if set(names) != set(fields):
        raise InvalidDeclaration(
            pattern,
            f"{cls.__name__} has the fields {', '.join(names) or 'none'}",
            f"annotate each field of the pattern: {', '.join(fields) or 'it has none, so use a string'}",
        )
    if taken := [name for name in fields if hasattr(Key, name)]:
        raise InvalidDeclaration(
            pattern, f"{taken[0]!r} is a name of every mapping", "rename the field of the typed key"
        )
    try:
        hints = get_type_hints(cls)
        return {name: field_type(hints[name]) for name in fields}
    except (NameError, TypeError) as problem:
        raise InvalidDeclaration(
            pattern, f"{cls.__name__}: {problem}", "annotate each field with a type that a key can hold"
        ) from None
