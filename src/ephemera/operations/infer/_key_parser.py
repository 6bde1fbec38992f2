"""A key taken apart where a pattern could join it, or the reason why no pattern could have rendered it.

A key is parts and the seams between them. Seams are `:`, and round a hash tag what stands there:
`job:{7}.log` has the parts `job`, `7`, `log` and the seams `:{` and `}.`. Keys with different seams can
never be of one pattern, and never of two patterns that overlap, so everything else may be decided among keys
with the same seams alone.

In a pattern each part is literal text or (with or without a literal beginning) a field. A key with a part
that can be neither is refused, with the reason. Only where a literal and an encoded value share a part may a
pattern exist that is not thought of here.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from typing import NamedTuple

from ephemera.keyspace import FieldCodec

EMPTY = FieldCodec().encode("")
"""How an empty value is written, and nothing else."""

Seams = tuple[str, ...]
Marks = tuple[str, ...]
"""What stands between fields inside one part: ('.',) in `{book}.{chapter}`."""

TAG_OPENS = "{"
TAG_CLOSES = "}"
_NEVER = re.compile(r"[*?\[\]\\\x00-\x1f\x7f-\x9f]")
_LITERAL = re.compile(r"[!-$&-)+-9;->@-Z^-z|~]*")  # printable ASCII without : { } * ? [ ] \ %
_BESIDE_THE_TAG = "its text beside the hash tag is neither a literal nor a field"
_ALWAYS_ENCODED = (":", TAG_CLOSES, "")  # what ends a field and is encoded in all others, too
_MOST_MARKS = 3
_MOST_SIGNS = 4


class Parts(NamedTuple):
    """A key that some pattern could have rendered: one part more than there are seams."""

    seams: Seams
    parts: list[str]


def dissect(key: bytes) -> Parts | str:
    """The parts of a key, or in words why no pattern can render it."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    never = _NEVER.search(text)
    if never:
        return f"it holds {never[0]}" if never[0].isprintable() else "it holds a control character"
    if TAG_OPENS in text or TAG_CLOSES in text:
        found = _round_the_tag(text)
    else:
        parts = text.split(":")
        found = Parts(_colons(len(parts) - 1), parts)
    return found if isinstance(found, str) else _possible(text, found)


def _round_the_tag(text: str) -> Parts | str:
    before, _, rest = text.partition(TAG_OPENS)
    inside, closed, after = rest.partition(TAG_CLOSES)
    odd = TAG_OPENS in inside + after or TAG_CLOSES in before + after or ":" in inside
    if odd or not closed or not inside:
        return "its braces are no hash tag round one field"
    if after[:1].isalnum():
        return "a letter or digit follows its hash tag"
    mark = "" if before[-1:].isalnum() else before[-1:]
    if not (may_be_literal(mark.strip(":")) and may_be_literal(after[:1].strip(":"))):
        return _BESIDE_THE_TAG
    *left, beside = (before[:-1] if mark else before).split(":")
    # A field that the mark ends cannot hold it: what stands before the tag is divided there, too.
    marked = beside.split(mark) if mark else [beside]
    right = after[1:].split(":")
    seams = (
        *_colons(len(left)),
        *(mark,) * (len(marked) - 1),
        mark + TAG_OPENS,
        TAG_CLOSES + after[:1],
        *_colons(len(right) - 1),
    )
    return Parts(seams, [*left, *marked, inside, *right])


def _possible(text: str, found: Parts) -> Parts | str:
    if not text or not (may_be_literal(text[0]) or text[0] == ":"):
        return "it starts with no literal: a pattern starts with printable ASCII, not with a field or a tag"
    for place, part in enumerate(found.parts):
        if not (may_be_literal(part) and not is_tagged(found.seams, place)):
            mark = mark_after(found.seams, place)
            if mark == TAG_OPENS or not _may_be_fields(part, mark):
                return _why_not(part)
    return found


def _may_be_fields(part: str, mark: str) -> bool:
    return may_be_field(part, mark) or bool(before_nothing(part) or divisions(part, mark))


def _why_not(part: str) -> str:
    if "%" in part:
        return "its % is not how Ephemera writes a value of its own"
    return _BESIDE_THE_TAG


@cache
def _colons(count: int) -> Seams:
    return (":",) * count


def is_tagged(seams: Seams, place: int) -> bool:
    """Whether a part stands inside the hash tag, where only a field can."""
    return place > 0 and seams[place - 1].endswith(TAG_OPENS)


def mark_after(seams: Seams, place: int) -> str:
    """What ends a field at this place: `{` means that none can end there, nothing that the key ends."""
    return seams[place][0] if place < len(seams) else ""


def may_be_literal(part: str) -> bool:
    """Whether a part can be literal text of a pattern."""
    return _LITERAL.fullmatch(part) is not None


def may_be_field(part: str, mark: str) -> bool:
    """Whether a part can be what a field's value is written as, ended by this mark."""
    if not part or (mark and mark in part):
        return False
    return "%" not in part or _field_codec(mark).decode(part) is not None


def before_nothing(part: str) -> str:
    """The literal that must stand before a field with an empty value: 'a' of 'a%%'."""
    literal = part.removesuffix(EMPTY)
    return literal if literal != part and may_be_literal(literal) else ""


def divides(marks: Marks, part: str, mark: str) -> bool:
    """Whether a part can be fields with these marks between them, the last ended by `mark`."""
    for inner in marks:
        field, found, part = part.partition(inner)
        if not found or not may_be_field(field, inner):
            return False
    return may_be_field(part, mark)


def divisions(part: str, mark: str) -> set[Marks]:
    """The marks that could stand between two, three or four fields which make up a part.

    None in what a mark of the seams ends: fields before it could hold it, and so reach other keys.
    """
    if mark not in _ALWAYS_ENCODED:
        return set()
    signs = (sign for sign in part if not sign.isalnum() and sign != "%" and may_be_literal(sign))
    few = list(dict.fromkeys(signs))[:_MOST_SIGNS]
    choices = (choice for count in range(1, _MOST_MARKS + 1) for choice in product(few, repeat=count))
    return {marks for marks in choices if divides(marks, part, mark)}


@cache
def _field_codec(mark: str) -> FieldCodec:
    return FieldCodec(mark)
