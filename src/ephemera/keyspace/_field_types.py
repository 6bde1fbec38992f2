"""The types of a key's fields: how a value is rendered as text, and parsed back to the same type.

| type | rendered as |
|---|---|
| `str` | itself |
| `bytes` | itself; bytes that are not UTF-8 are percent-encoded |
| `int` | decimal: `-7` |
| `bool` | `1`, `0`, as a stored one |
| `UUID` | 36 characters, lower case |
| `date` | `2026-11-18` |
| `datetime` | in UTC, with microseconds: `20261118T093000.000250Z`; one without a time zone is refused |
| an Enum | its value, rendered by these rules |

These texts sort as their values do, for dates and times. Two values of a type have the same text only if they
are equal. A datetime is parsed in UTC, which is the same instant.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

FieldValue = str | bytes | int | UUID | date | Enum
"""The types that a field of a key accepts; `bool` is an `int`, and `datetime` a `date`."""

SUPPORTED = "str, bytes, int, bool, UUID, date, datetime or an Enum"
_MORE_SPECIAL: dict[type[Any], type[Any]] = {int: bool, date: datetime}  # subclasses with a text of their own
_INSTANT = "%Y%m%dT%H%M%S.%fZ"


class FieldType(NamedTuple):
    """A declared type of a field."""

    type: type[Any]
    parse: Callable[[str], Any]
    """The value of a text; ValueError when it is not one."""


def field_text(value: object) -> str:
    """A value as text; TypeError or ValueError when a key cannot hold it."""
    match value:
        case str():
            return str.__str__(value)
        case bytes():
            return value.decode("utf-8", "surrogateescape")
        case bool():
            return "1" if value else "0"
        case int():
            return int.__repr__(value)
        case UUID():
            return str(value)
        case datetime():
            return _instant_text(value)
        case date():
            return value.isoformat()
        case Enum():
            return field_text(value.value)
    raise TypeError(f"takes {SUPPORTED}, not {type(value).__name__}")


def field_type(declared: Any) -> FieldType:
    """The type of a field by its annotation; TypeError for one that a key cannot hold."""
    if isinstance(declared, type) and issubclass(declared, Enum):
        return FieldType(declared, _enum_parser(declared))
    if declared not in _PARSERS:
        raise TypeError(f"a field is {SUPPORTED}, not {getattr(declared, '__name__', declared)}")
    return FieldType(declared, _PARSERS[declared])


def typed_text(value: object, wanted: FieldType) -> str:
    """A value of a declared type as text, or the text itself; TypeError or ValueError for anything else."""
    if not isinstance(value, (wanted.type, str)) or isinstance(value, _MORE_SPECIAL.get(wanted.type, ())):
        raise TypeError(f"takes {wanted.type.__name__}, not {type(value).__name__}")
    text = field_text(value)
    if isinstance(value, str):
        parse_field(text, wanted)  # refuses what would come back as another value
    return text


def parse_field(text: str, wanted: FieldType) -> Any:
    """The value of a text; ValueError when it is not what that value is rendered as."""
    try:
        value = wanted.parse(text)
        if field_text(value) == text:
            return value
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"takes {wanted.type.__name__}, which is never written as this text")


def _instant_text(value: datetime) -> str:
    if value.utcoffset() is None:
        raise ValueError("has no time zone: use datetime.now(UTC) or another aware datetime")
    in_utc = value.astimezone(UTC)
    return f"{in_utc.year:04}{in_utc:%m%dT%H%M%S.%fZ}"  # %Y does not pad years before 1000


def _parse_text(text: str) -> str:
    text.encode()  # a lone surrogate stands for a byte that is not UTF-8
    return text


def _parse_bool(text: str) -> bool:
    return text == "1"  # `parse_field` refuses what is neither


def _enum_parser(declared: type[Enum]) -> Callable[[str], Enum]:
    members = {field_text(member): member for member in declared}
    if len(members) != len(declared):
        raise TypeError(f"two values of {declared.__name__} have the same text")

    def parse(text: str) -> Enum:
        if text not in members:
            raise ValueError(text)
        return members[text]

    return parse


_PARSERS: dict[Any, Callable[[str], Any]] = {
    str: _parse_text,
    bytes: lambda text: text.encode("utf-8", "surrogateescape"),
    bool: _parse_bool,
    int: int,
    UUID: UUID,
    date: date.fromisoformat,
    datetime: lambda text: datetime.strptime(text, _INSTANT).replace(tzinfo=UTC),
}
