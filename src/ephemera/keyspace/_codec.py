"""How a value is encoded and decoded. What cannot be decoded is a miss, never an exception.

A stored value is in an envelope, `["1",{"user":"ann"}]`: `1` is the version of this layout, then comes the
value. The envelope is JSON, readable with a command line and jq, or MessagePack, smaller and faster, or
either of them compressed by zstd; the first byte tells which. There is no pickle, here or anywhere.

Types evolve. During a rolling deploy two versions of a program read what the other has written: fields that
a reader does not know are ignored, and those that are missing take their defaults. What does not fit the
type (a required field is missing, a field has another type) is a miss. An encoder refuses a value that its
own version could not read back. `str`, `bytes`, `int`, `float` and `bool` are stored as they are (`_scalars`)
unless a codec is named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType
from typing import Any, Generic, Literal, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import inspect

from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.keyspace import _compression as compression
from ephemera.keyspace._compression import compress, decompress
from ephemera.keyspace._record_types import is_record_class
from ephemera.keyspace._scalars import DECODE_ERRORS, field_codec, scalar_codec
from ephemera.keyspace._type_nodes import check_readable, may_hide_infinity, refuse_infinity
from ephemera.keyspace._value_types import decode_hook, encode_hook, is_adapted, is_model, storable

V = TypeVar("V")
CodecName: TypeAlias = Literal["json", "msgpack"]
"""The codecs that a declaration may name."""

_LAYOUT = "1"
JSON_HEAD = b'["1",'
"""The first bytes of every JSON envelope; only data with this prefix may be changed in part."""
_FORMS: dict[str, Any] = {"json": msgspec.json, "msgpack": msgspec.msgpack}


@dataclass(frozen=True, slots=True)
class Codec(Generic[V]):
    """Encodes and decodes values of one type; `decode` returns None for anything else."""

    name: Literal["plain", "json", "msgpack"]
    value_type: Any
    """The type as it was declared, for documentation; see `declared_type`."""
    encode: Callable[[V], bytes]
    decode: Callable[[bytes], V | None]
    unpack: Callable[[Any], Any] | None = None
    """Decodes an envelope; raises one of `DECODE_ERRORS` for anything else, None included."""


def choose_codec(
    pattern: str, value_type: Any, name: CodecName | None = None, compress_over: int | None = None
) -> Codec[Any]:
    """The codec of a keyspace: plain for scalars and JSON for other types, unless one is named."""
    stored = check_storable(pattern, value_type)
    plain = scalar_codec(stored)
    if name is None and plain is not None:
        if compress_over is not None:
            raise InvalidDeclaration(
                pattern,
                f"a plain {type_name(value_type)} has no envelope that says it is compressed",
                "add codec='msgpack'",
            )
        encode, decode = plain
        return Codec("plain", value_type, _or_refuse(pattern, value_type, encode), _or_miss(decode))
    return _packed(pattern, value_type, stored, name or "json", compress_over)


def bare_codec(pattern: str, value_type: Any) -> Codec[Any]:
    """The codec of values inside a hash: plain, or JSON without an envelope."""
    stored = check_storable(pattern, value_type)
    encode, decode = field_codec(stored)
    name: Literal["plain", "json"] = "plain" if scalar_codec(stored) else "json"
    return Codec(name, value_type, _or_refuse(pattern, value_type, encode), _or_miss(decode))


def member_codec(pattern: str, member_type: Any) -> Codec[Any]:
    """The codec of members of a set: plain, because equal members must be equal bytes."""
    codec = bare_codec(pattern, member_type)
    if codec.name != "plain":
        raise InvalidDeclaration(
            pattern,
            f"{type_name(member_type)} cannot be a member of a set",
            "members are compared byte by byte: use str, bytes or int",
        )
    return codec


def check_storable(pattern: str, value_type: Any) -> Any:
    """The type as `storable` returns it.

    `InvalidDeclaration` for one that cannot be decoded, or whose values could be taken for a miss.
    """
    try:
        stored = storable(value_type)
        check_readable(stored)
    except TypeError as problem:
        raise InvalidDeclaration(
            pattern,
            f"{type_name(value_type)} cannot be stored: {problem}",
            "use a msgspec.Struct, a pydantic model, a dataclass, an attrs class, a TypedDict, "
            "a builtin type or a collection of them",
        ) from None
    node = inspect.type_info(stored)
    choices = node.types if isinstance(node, inspect.UnionType) else (node,)
    is_optional = any(isinstance(choice, (inspect.NoneType, inspect.AnyType)) for choice in choices)
    if is_optional or NoneType in get_args(value_type):
        raise InvalidDeclaration(
            pattern,
            f"{type_name(value_type)} may be None, which is what a miss looks like",
            "use a Struct with an optional field instead",
        )
    return stored


def declared_type(value_type: Any) -> Any:
    """The type that a service declared, where a pattern wraps it in a Struct with `__holds__`."""
    return getattr(value_type, "__holds__", value_type)


def type_name(value_type: Any) -> str:
    """The name of a type, for messages."""
    return value_type.__name__ if isinstance(value_type, type) else str(value_type)


def _packed(
    pattern: str, value_type: Any, stored: Any, name: CodecName, compress_over: int | None
) -> Codec[Any]:
    if name not in _FORMS:
        raise InvalidDeclaration(pattern, f"there is no codec {name!r}", "use 'json' or 'msgpack'")
    _check_compression(pattern, compress_over)
    form, envelope = _FORMS[name], _envelope(stored)
    to_bytes = form.Encoder(enc_hook=encode_hook).encode
    from_bytes = form.Decoder(envelope, dec_hook=decode_hook).decode
    is_class, is_union = is_record_class(value_type), not is_model(stored) and is_adapted(stored)
    hides_infinity = name == "json" and may_hide_infinity(stored)

    def encode(value: object) -> bytes:
        if is_class and not isinstance(value, value_type):
            raise TypeError
        if hides_infinity:
            refuse_infinity(value)
        data: bytes = to_bytes(envelope(value))
        found = from_bytes(data)  # a value that could not be decoded later is refused now
        if is_union and type(found.value) is not type(value):
            raise TypeError
        if compress_over is not None and len(data) > compress_over:
            return compress(data)
        return data

    def decode(data: bytes) -> Any:
        try:
            return from_bytes(data).value
        except DECODE_ERRORS:
            pass
        try:
            return from_bytes(decompress(data)).value
        except DECODE_ERRORS:
            return None

    shown = declared_type(value_type)
    return Codec(name, shown, _or_refuse(pattern, shown, encode), decode, from_bytes)


def _envelope(value_type: Any) -> Any:
    """A Struct that msgspec encodes as an array of tag and value, and decodes only if the tag matches."""
    return msgspec.defstruct(
        "Envelope",
        [("value", value_type)],
        array_like=True,
        tag=_LAYOUT,
        gc=False,  # it lives for one expression
    )


def _check_compression(pattern: str, compress_over: int | None) -> None:
    if compress_over is None:
        return
    if not compression.AVAILABLE:
        raise InvalidDeclaration(
            pattern, "compression needs zstandard", "install the extra: pip install 'ephemera-data[zstd]'"
        )
    if type(compress_over) is not int or compress_over < 0:
        raise InvalidDeclaration(
            pattern, f"compress_over={compress_over!r} is not a size", "give a number of bytes"
        )


def _or_refuse(pattern: str, value_type: Any, encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def encode_or_refuse(value: object) -> bytes:
        try:
            return encode(value)
        except DECODE_ERRORS:
            raise InvalidValue(pattern, type_name(value_type), _described(value, value_type)) from None

    return encode_or_refuse


def _described(value: object, value_type: Any) -> str:
    """A refused value for a message: by its type alone, since it may be a secret."""
    name = type_name(type(value))
    if name != type_name(value_type) and isinstance(value_type, type):
        return name
    return (
        f"a {name} that could not be read back: infinite, beyond its limits, or with a part of another type"
    )


def _or_miss(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def decode_or_miss(data: bytes) -> Any:
        try:
            return decode(data)
        except DECODE_ERRORS:
            return None

    return decode_or_miss
