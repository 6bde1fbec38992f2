"""How a value is encoded and decoded. What cannot be decoded is a miss, never an exception.

A stored value is in an envelope, `["1k3Xz_9",{"user":"ann"}]`: `1` is the version of this layout, `k3Xz_9`
the fingerprint of the value type's shape (`_fingerprint`), then comes the value. The envelope is JSON,
readable with a command line and jq, or MessagePack, smaller and faster, or either of them compressed by
zstd; the first byte tells which. There is no pickle, here or anywhere.

Data in another envelope was written by another version of the program, or by another program, and is a miss:
a changed type needs no migration and no flush. `str`, `bytes`, `int`, `float` and `bool` are stored as they
are (`_scalars`) unless a codec is named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import inspect

from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.keyspace import _compression as compression
from ephemera.keyspace._compression import compress, decompress
from ephemera.keyspace._fingerprint import fingerprint
from ephemera.keyspace._scalars import DECODE_ERRORS, field_codec, scalar_codec

V = TypeVar("V")
CodecName: TypeAlias = Literal["json", "msgpack"]
"""The codecs that a declaration may name."""

_LAYOUT = "1"
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
    stamp = shape_of(pattern, value_type)
    plain = scalar_codec(value_type)
    if name is None and plain is not None:
        if compress_over is not None:
            raise InvalidDeclaration(
                pattern,
                f"a plain {type_name(value_type)} has no envelope that says it is compressed",
                "add codec='msgpack'",
            )
        encode, decode = plain
        return Codec("plain", value_type, _or_refuse(pattern, value_type, encode), _or_miss(decode))
    return _packed(pattern, value_type, name or "json", stamp, compress_over)


def bare_codec(pattern: str, value_type: Any) -> Codec[Any]:
    """The codec of values inside a hash: plain, or JSON without an envelope."""
    shape_of(pattern, value_type)
    encode, decode = field_codec(value_type)
    if scalar_codec(value_type):
        return Codec("plain", value_type, _or_refuse(pattern, value_type, encode), _or_miss(decode))

    def encode_readable(value: object) -> bytes:
        data = encode(value)
        decode(data)
        return data

    return Codec("json", value_type, _or_refuse(pattern, value_type, encode_readable), _or_miss(decode))


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


def shape_of(pattern: str, value_type: Any) -> bytes:
    """The fingerprint of a value type; `InvalidDeclaration` when a value could be taken for a miss."""
    try:
        stamp = fingerprint(value_type)
    except TypeError as problem:
        raise InvalidDeclaration(
            pattern,
            f"{type_name(value_type)} cannot be stored: {problem}",
            "use a msgspec.Struct, a builtin type or a collection of them",
        ) from None
    node = inspect.type_info(value_type)
    choices = node.types if isinstance(node, inspect.UnionType) else (node,)
    if any(isinstance(choice, (inspect.NoneType, inspect.AnyType)) for choice in choices):
        raise InvalidDeclaration(
            pattern,
            f"{type_name(value_type)} may be None, which is what a miss looks like",
            "use a Struct with an optional field instead",
        )
    return stamp


def json_head(pattern: str, value_type: Any) -> bytes:
    """The first bytes of every JSON envelope of a type; only data with this prefix may be patched."""
    return b'["%s%s",' % (_LAYOUT.encode(), shape_of(pattern, value_type))


def declared_type(value_type: Any) -> Any:
    """The type that a service declared, where a pattern wraps it in a Struct with `__holds__`."""
    return getattr(value_type, "__holds__", value_type)


def type_name(value_type: Any) -> str:
    """The name of a type, for messages."""
    return value_type.__name__ if isinstance(value_type, type) else str(value_type)


def _packed(
    pattern: str, value_type: Any, name: CodecName, stamp: bytes, compress_over: int | None
) -> Codec[Any]:
    if name not in _FORMS:
        raise InvalidDeclaration(pattern, f"there is no codec {name!r}", "use 'json' or 'msgpack'")
    _check_compression(pattern, compress_over)
    form, envelope = _FORMS[name], _envelope(value_type, stamp)
    to_bytes, from_bytes = form.Encoder().encode, form.Decoder(envelope).decode
    is_struct = isinstance(value_type, type) and issubclass(value_type, msgspec.Struct)

    def encode(value: object) -> bytes:
        if is_struct and not isinstance(value, value_type):
            raise TypeError
        data: bytes = to_bytes(envelope(value))
        from_bytes(data)  # a value that could not be decoded later is refused now
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


def _envelope(value_type: Any, stamp: bytes) -> Any:
    """A Struct that msgspec encodes as an array of tag and value, and decodes only if the tag matches."""
    return msgspec.defstruct(
        "Envelope",
        [("value", value_type)],
        array_like=True,
        tag=_LAYOUT + stamp.decode(),
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
            raise InvalidValue(pattern, type_name(value_type), type_name(type(value))) from None

    return encode_or_refuse


def _or_miss(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def decode_or_miss(data: bytes) -> Any:
        try:
            return decode(data)
        except DECODE_ERRORS:
            return None

    return decode_or_miss
