"""How results and errors of any content are stored: no value that a job returns can keep it from ending.

JSON in PostgreSQL has no NUL and no NaN, and UTF-8 has no lone surrogates, but results of models and parsers
do. A step's result is text: the values that msgspec cannot write are written by Python's own `json`, which
escapes every one of them and reads it back. A job's result is `jsonb`, so that it can be queried: one that
`jsonb` cannot hold is stored as an object with the one field `$json`, the same text as a string.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from ephemera.errors import InvalidValue
from ephemera.keyspace import convert, encode_json, json_decoder, to_builtins

_MAX_ERROR = 4000  # characters of an error that the row keeps
_ESCAPED = "$json"


def encode_step(kind: str, name: str, result: Any) -> bytes:
    """A step's result as JSON; `InvalidValue` for an object that JSON cannot hold."""
    try:
        try:
            data = encode_json(result)
        except UnicodeEncodeError:
            return _escaped(to_builtins(result)).encode()
        if b"null" not in data:
            return data
        # msgspec writes NaN and the infinities as null.
        escaped = _escaped(to_builtins(result))
        return escaped.encode() if "NaN" in escaped or "Infinity" in escaped else data
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidValue(f"{kind}, step {name}", "what JSON can hold", str(problem)) from problem


def decode_step(data: bytes, returned: Any) -> Any:
    """A recorded result, converted to the type that the step's annotation names."""
    try:
        return json_decoder(returned)(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return convert(json.loads(data), returned, strict=False)


def encode_result(result: Any) -> str:
    """A job's result as text that `jsonb` accepts."""
    plain = to_builtins(result)
    try:
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
        text.encode()
        is_plain = "\\u0000" not in text and not (isinstance(plain, dict) and _ESCAPED in plain)
    except ValueError:  # UnicodeEncodeError is one, too
        is_plain = False
    return text if is_plain else json.dumps({_ESCAPED: _escaped(plain)})


def decode_result(stored: Any) -> Any:
    """A job's result from what `jsonb` holds."""
    if isinstance(stored, dict) and stored.keys() == {_ESCAPED} and isinstance(stored[_ESCAPED], str):
        return json.loads(stored[_ESCAPED])
    return stored


def describe_error(error: BaseException) -> str:
    """An exception as text for its row, whatever its own `str` does."""
    try:
        text = str(error)
    except Exception as problem:
        text = f"(its text cannot be shown: {type(problem).__name__})"
    return storable_text(f"{type(error).__name__}: {text}")


def storable_text(text: str) -> str:
    """The beginning of a text, without what PostgreSQL refuses: NUL and lone surrogates are escaped."""
    shown = text[:_MAX_ERROR].replace("\x00", "\\x00")
    return shown.encode("utf-8", "backslashreplace").decode()


def _escaped(plain: Any) -> str:
    return json.dumps(plain)
