"""What the contents of undocumented keys seem to be: numbers, JSON, text; and the names of their fields.

Only what a person needs to recognize them is kept: the form, names of fields, and a short example unless it
looks like a secret. Everything else is forgotten as soon as it was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from ephemera.keyspace import FINGERPRINT_LENGTH
from ephemera.operations.infer._recognizer import look_of, looks_secret
from ephemera.operations.inspect._probe import Probe

_WHOLE = re.compile(rb"-?(?:0|[1-9]\d{0,17})")
_DECIMAL = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_ENVELOPE = re.compile(rb'\["1[\w-]{%d}",' % FINGERPRINT_LENGTH)
_LONGEST_EXAMPLE = 40
_SECRET_LOOKS = ("token", "hash", "hex", "uuid", "email")


class Sniffed(NamedTuple):
    """What one key's content seems to be; `forms` are those of its values or members."""

    forms: frozenset[str]
    names: tuple[str, ...] = ()
    example: str = ""
    secret: bool = False


def sniff(probe: Probe, content: Any) -> Sniffed:
    """What a content, as the server gave it, seems to be."""
    match probe.type:
        case "string":
            return _of_string(content)
        case "hash":
            pairs = list(content.items() if isinstance(content, dict) else content)
            return _of_fields(pairs)
        case "stream":
            return _of_fields(
                [pair for _, flat in content for pair in zip(flat[::2], flat[1::2], strict=True)]
            )
        case "set" | "zset" | "list":
            return Sniffed(frozenset(map(form_of, content)))
        case _:
            return Sniffed(frozenset())


def form_of(data: bytes) -> str:
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
        return "object" if isinstance(decoded, dict) else "envelope" if _ENVELOPE.match(data) else "array"
    return _text_or_bytes(data)


def _of_string(data: bytes) -> Sniffed:
    form = form_of(data)
    if form == "object":
        names = tuple(map(str, msgspec.json.decode(data)))
        return Sniffed(frozenset((form,)), names, secret=looks_secret(*names))
    if form != "text":
        return Sniffed(frozenset((form,)))
    text = data.decode()
    secret = looks_secret(text) or look_of(text) in _SECRET_LOOKS or len(text) > _LONGEST_EXAMPLE
    return Sniffed(
        frozenset((form,)),
        example="" if secret or not text.isprintable() else text,
        secret=look_of(text) == "token" or "PRIVATE KEY" in text,
    )


def _of_fields(pairs: Iterable[tuple[bytes, bytes]]) -> Sniffed:
    forms: set[str] = set()
    names: dict[str, None] = {}
    for name, value in pairs:
        if name == b"_v":
            forms.add("envelope")
            continue
        forms.add(form_of(value))
        names[name.decode("utf-8", "backslashreplace")] = None
    return Sniffed(frozenset(forms), tuple(names), secret=looks_secret(*names))


def _text_or_bytes(data: bytes) -> str:
    try:
        data.decode()
    except UnicodeDecodeError:
        return "bytes"
    return "text"
