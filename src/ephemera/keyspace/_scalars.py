"""Scalars: text, bytes, numbers and booleans, stored as a person would type them.

A `str` is its UTF-8 text, `bytes` are themselves, an `int` or `float` is its decimal form (so that INCRBY and
HINCRBY work on it), a `bool` is `1` or `0`. They have no envelope: text that is not a value of the type is a
miss. Inside a hash, every other type is stored as JSON without an envelope.

An encoder refuses what its decoder would refuse: a value of another type, one outside its declared limits
(`Meta(ge=0)`), and floats that are infinite or NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

from ephemera.keyspace._type_nodes import may_hide_infinity, refuse_infinity
from ephemera.keyspace._value_types import encode_json, json_decoder

Encode: TypeAlias = "Callable[[Any], bytes]"
Decode: TypeAlias = "Callable[[bytes], Any]"

DECODE_ERRORS = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)
"""What decoding may raise on unexpected data; readers turn it into a miss."""


def scalar_codec(value_type: Any) -> tuple[Encode, Decode] | None:
    """The encoder and decoder of a scalar type, or None for any other type."""
    node = inspect.type_info(value_type)
    while isinstance(node, inspect.Metadata):
        node = node.type
    encode: Encode
    decode: Decode
    constrained = any(getattr(node, name) is not None for name in node.__struct_fields__)
    match node:
        case inspect.StrType():
            encode, decode = str.encode, _checked(bytes.decode, value_type) if constrained else bytes.decode
        case inspect.BytesType():
            encode, decode = _encode_bytes, _checked(bytes, value_type) if constrained else bytes
        case inspect.IntType():
            encode, decode = _encode_int, msgspec.json.Decoder(value_type).decode
        case inspect.FloatType():
            encode, decode = _encode_float, msgspec.json.Decoder(value_type).decode
        case inspect.BoolType():
            encode, decode = _encode_bool, _decode_bool
        case _:
            return None
    return (_readable(encode, decode) if constrained else encode), decode


def field_codec(value_type: Any) -> tuple[Encode, Decode]:
    """The encoder and decoder of one field of a hash: as a scalar if it is one, as JSON otherwise."""
    return scalar_codec(value_type) or json_codec(value_type)


def json_codec(value_type: Any) -> tuple[Encode, Decode]:
    """The encoder and decoder of JSON without an envelope."""
    decode = json_decoder(value_type)
    if not may_hide_infinity(value_type):
        return _readable(encode_json, decode), decode

    def encode(value: object) -> bytes:
        refuse_infinity(value)
        return encode_json(value)

    return _readable(encode, decode), decode


def _readable(encode: Encode, decode: Decode) -> Encode:
    """An encoder that reads back what it has written, and so refuses what could not be read later."""

    def encode_readable(value: object) -> bytes:
        data = encode(value)
        decode(data)
        return data

    return encode_readable


def _checked(read: Decode, value_type: Any) -> Decode:
    return lambda data: msgspec.convert(read(data), value_type)


def _encode_bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError
    return value


def _encode_int(value: object) -> bytes:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return b"%d" % value


def _encode_float(value: object) -> bytes:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError
    number = float(value)
    if number - number != 0:  # infinite or NaN
        raise ValueError("it is not finite")
    return repr(number).encode()


def _encode_bool(value: object) -> bytes:
    if not isinstance(value, bool):
        raise TypeError
    return b"1" if value else b"0"


def _decode_bool(data: bytes) -> bool:
    if data == b"1":
        return True
    if data == b"0":
        return False
    raise ValueError(data)
