"""Detect what the contents of undocumented keys are: numbers, JSON, text; and the names of their fields.

Only what a person needs to recognize them is kept: the type, field names, and a short example if it is plain
words. Everything else is dropped as soon as it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from ephemera.keyspace import JSON_HEAD
from ephemera.operations.libraries import signs_of
from ephemera.operations.survey import SampledKey, form_of, is_plain, looks_secret

_WHOLE = re.compile(rb"-?(?:0|[1-9]\d{0,17})")
_DECIMAL = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_LONGEST_EXAMPLE = 40


class ContentType(NamedTuple):
    """The detected content of one key; `types` are those of its values or members."""

    types: frozenset[str]
    names: tuple[str, ...] = ()
    example: str = ""
    secret: bool = False
    signs: frozenset[str] = frozenset()  # that tell which library wrote it


def detect_content(key: SampledKey, content: Any) -> ContentType:
    """Detect the type of a key's contents, given the server's reply."""
    return _detect(key, content)._replace(signs=signs_of(key.type, content))


def _detect(key: SampledKey, content: Any) -> ContentType:
    match key.type:
        case "string":
            return _string_content(content)
        case "hash":
            pairs = list(content.items() if isinstance(content, dict) else content)
            return _fields_content(pairs)
        case "stream":
            return _fields_content(
                [pair for _, flat in content for pair in zip(flat[::2], flat[1::2], strict=True)]
            )
        case "set" | "zset" | "list":
            return _members_content(content)
        case _:
            return ContentType(frozenset())


def value_type(data: bytes) -> str:
    """One of: one, zero, whole, decimal, envelope, object, array, text, bytes."""
    if data in (b"0", b"1"):
        return "one" if data == b"1" else "zero"
    if _WHOLE.fullmatch(data):
        return "whole"
    if _DECIMAL.fullmatch(data):
        return "decimal"
    if data[:1] in (b"{", b"["):
        try:
            decoded = msgspec.json.decode(data)
        except msgspec.MsgspecError:
            return _text_or_bytes(data)
        return (
            "object" if isinstance(decoded, dict) else "envelope" if data.startswith(JSON_HEAD) else "array"
        )
    return _text_or_bytes(data)


def _string_content(data: bytes) -> ContentType:
    detected = value_type(data)
    if detected == "object":
        names = tuple(map(str, msgspec.json.decode(data)))
        return ContentType(frozenset((detected,)), names, secret=looks_secret(*names))
    if detected != "text":
        return ContentType(frozenset((detected,)))
    text = data.decode()
    return ContentType(
        frozenset((detected,)),
        example=text if len(text) <= _LONGEST_EXAMPLE and is_plain(text) else "",
        secret=form_of(text) == "token" or "PRIVATE KEY" in text,
    )


def _fields_content(pairs: Iterable[tuple[bytes, bytes]]) -> ContentType:
    types: set[str] = set()
    names: dict[str, None] = {}
    for name, value in pairs:
        if name == b"_v":
            types.add("envelope")
            continue
        types.add(value_type(value))
        names[name.decode("utf-8", "backslashreplace")] = None
    return ContentType(frozenset(types), tuple(names), secret=looks_secret(*names))


def _members_content(members: Iterable[bytes]) -> ContentType:
    """The content of a collection, with the field names of JSON objects."""
    members = list(members)
    types = [value_type(member) for member in members]
    objects = [member for member, kind in zip(members, types, strict=True) if kind == "object"]
    names = dict.fromkeys(str(name) for member in objects for name in msgspec.json.decode(member))
    return ContentType(frozenset(types), tuple(names), secret=looks_secret(*names))


def _text_or_bytes(data: bytes) -> str:
    try:
        data.decode()
    except UnicodeDecodeError:
        return "bytes"
    return "text"
