"""Split a key into the parts a pattern could have, or say why no pattern could have rendered it.

A key consists of parts and the separators between them. Separators are `:`, and around a hash tag the
characters next to its braces: `job:{7}.log` has the parts `job`, `7`, `log` and the separators `:{` and `}.`.
Keys with different separators never follow one pattern, nor two patterns that overlap, so everything else is
decided among keys with the same separators.

In a pattern each part is literal text or a field, possibly with a literal prefix. A key with a part that can
be neither is refused, with the reason. Where a literal and an encoded value share a part, a pattern may exist
that this module does not consider.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from typing import NamedTuple

from ephemera.keyspace import FieldCodec

EMPTY = FieldCodec().encode("")
"""How an empty value is encoded; no other value is."""

Separators = tuple[str, ...]
Joins = tuple[str, ...]
"""The characters between fields inside one part: ('.',) in `{book}.{chapter}`."""

TAG_OPEN = "{"
TAG_CLOSE = "}"
_NEVER = re.compile(r"[*?\[\]\\\x00-\x1f\x7f-\x9f]")
_LITERAL = re.compile(r"[!-$&-)+-9;->@-Z^-z|~]*")  # printable ASCII without : { } * ? [ ] \ %
_BESIDE_THE_TAG = "its text beside the hash tag is neither a literal nor a field"
_ALWAYS_ENCODED = (":", TAG_CLOSE, "")  # terminators that are encoded in every field
_MAX_JOINS = 3
_MAX_MARKS = 4


class ParsedKey(NamedTuple):
    """A key that some pattern could have rendered: one part more than there are separators."""

    separators: Separators
    parts: list[str]


def parse_key(key: bytes) -> ParsedKey | str:
    """Split a key into its parts, or return the reason why no pattern can render it."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    never = _NEVER.search(text)
    if never:
        return f"it holds {never[0]}" if never[0].isprintable() else "it holds a control character"
    if TAG_OPEN in text or TAG_CLOSE in text:
        found = _split_at_tag(text)
    else:
        parts = text.split(":")
        found = ParsedKey(_colons(len(parts) - 1), parts)
    return found if isinstance(found, str) else _renderable(text, found)


def _split_at_tag(text: str) -> ParsedKey | str:
    before, _, rest = text.partition(TAG_OPEN)
    inside, closed, after = rest.partition(TAG_CLOSE)
    odd = TAG_OPEN in inside + after or TAG_CLOSE in before + after or ":" in inside
    if odd or not closed or not inside:
        return "its braces are not a hash tag around one field"
    if after[:1].isalnum():
        return "a letter or digit follows its hash tag"
    mark = "" if before[-1:].isalnum() else before[-1:]
    if not (can_be_literal(mark.strip(":")) and can_be_literal(after[:1].strip(":"))):
        return _BESIDE_THE_TAG
    *left, beside = (before[:-1] if mark else before).split(":")
    # A field cannot contain its terminator, so the text before the tag is split there, too.
    marked = beside.split(mark) if mark else [beside]
    right = after[1:].split(":")
    separators = (
        *_colons(len(left)),
        *(mark,) * (len(marked) - 1),
        mark + TAG_OPEN,
        TAG_CLOSE + after[:1],
        *_colons(len(right) - 1),
    )
    return ParsedKey(separators, [*left, *marked, inside, *right])


def _renderable(text: str, found: ParsedKey) -> ParsedKey | str:
    if not text or not (can_be_literal(text[0]) or text[0] == ":"):
        return "it does not start with a literal: a pattern starts with printable ASCII, not a field or a tag"
    for position, part in enumerate(found.parts):
        if not (can_be_literal(part) and not is_tagged(found.separators, position)):
            mark = terminator(found.separators, position)
            if mark == TAG_OPEN or not _can_be_fields(part, mark):
                return _refusal(part)
    return found


def _can_be_fields(part: str, mark: str) -> bool:
    return can_be_field(part, mark) or bool(literal_before_empty(part) or possible_splits(part, mark))


def _refusal(part: str) -> str:
    if "%" in part:
        return "its % is not how Ephemera encodes a value"
    return _BESIDE_THE_TAG


@cache
def _colons(count: int) -> Separators:
    return (":",) * count


def is_tagged(separators: Separators, position: int) -> bool:
    """Whether a part is inside the hash tag, where only a field can be."""
    return position > 0 and separators[position - 1].endswith(TAG_OPEN)


def terminator(separators: Separators, position: int) -> str:
    """The character that ends a field at this position; `{`: no field can end there, empty: the key ends."""
    return separators[position][0] if position < len(separators) else ""


def can_be_literal(part: str) -> bool:
    """Whether a part can be literal text of a pattern."""
    return _LITERAL.fullmatch(part) is not None


def can_be_field(part: str, mark: str) -> bool:
    """Whether a part can be an encoded field value, ended by this terminator."""
    if not part or (mark and mark in part):
        return False
    return "%" not in part or _field_codec(mark).decode(part) is not None


def literal_before_empty(part: str) -> str:
    """The literal before a field with an empty value: 'a' in 'a%%'."""
    literal = part.removesuffix(EMPTY)
    return literal if literal != part and can_be_literal(literal) else ""


def splits_into(marks: Joins, part: str, mark: str) -> bool:
    """Whether a part can be fields joined by these marks, the last one ended by `mark`."""
    for inner in marks:
        field, found, part = part.partition(inner)
        if not found or not can_be_field(field, inner):
            return False
    return can_be_field(part, mark)


def possible_splits(part: str, mark: str) -> set[Joins]:
    """The marks that could join two, three or four fields into a part.

    None in a part that a hash tag's separator ends: fields before it could contain it and match other keys.
    """
    if mark not in _ALWAYS_ENCODED:
        return set()
    chars = (char for char in part if not char.isalnum() and char != "%" and can_be_literal(char))
    few = list(dict.fromkeys(chars))[:_MAX_MARKS]
    choices = (choice for count in range(1, _MAX_JOINS + 1) for choice in product(few, repeat=count))
    return {marks for marks in choices if splits_into(marks, part, mark)}


@cache
def _field_codec(mark: str) -> FieldCodec:
    return FieldCodec(mark)
