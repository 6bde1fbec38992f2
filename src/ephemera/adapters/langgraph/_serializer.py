"""The serializer of graph state: it builds plain values, messages, and types that the graph's owner lists.

What Redis holds is untrusted input, and LangGraph's own serializer imports and calls whatever a MessagePack
extension names. Here an extension names a type by text, and the text is looked up among types that were
declared before anything was read. Nothing is imported, no attribute is looked up, and no pickle or JSON
constructor is known. Everything else raises `ValueError`, which a saver reports as a miss. A value of another
type is refused when it is written, so what was written can be read.

The depth is bounded by Python's recursion limit, which msgspec respects, and a length that is larger than the
data is an error before anything is allocated.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import ormsgpack
from langchain_core import messages
from langchain_core.documents import Document
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy

from ephemera.errors import InvalidValue

_OBJECT = 1  # the MessagePack extension of a declared type: its name and its content
_MOST_BYTES = 64 * 1024 * 1024
_LONGEST_ERROR = 10_000  # characters of the repr of an exception
_DTYPE = re.compile(r"[<>|=]?[?biufcSUmM][0-9]{0,6}(\[[0-9a-z]{1,8}\])?")
_OPTIONS = (
    ormsgpack.OPT_NON_STR_KEYS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
    | ormsgpack.OPT_REPLACE_SURROGATES
)


class Declared(NamedTuple):
    """How values of one type are written and built."""

    name: str
    dump: Callable[[Any], Any]
    build: Callable[[Any], Any]


def _dump_time(value: time) -> list[Any]:
    return [value.replace(tzinfo=None).isoformat(), value.tzinfo, value.fold]


def _build_time(content: Any) -> time:
    text, tzinfo, fold = content
    return time.fromisoformat(text).replace(tzinfo=tzinfo, fold=fold)


def _dump_interrupt(value: Interrupt[Any]) -> list[Any]:
    schema = value.response_schema  # a class of the graph's code, or a JSON schema
    return [value.value, value.id, schema if isinstance(schema, dict) else None]


def _build_interrupt(content: Any) -> Interrupt[Any]:
    value, name, schema = content
    return Interrupt(value, id=name, response_schema=schema)


_IP_TYPES = (
    *(ipaddress.IPv4Address, ipaddress.IPv4Interface, ipaddress.IPv4Network),
    *(ipaddress.IPv6Address, ipaddress.IPv6Interface, ipaddress.IPv6Network),
)
_MESSAGES = (
    *(messages.HumanMessage, messages.AIMessage, messages.SystemMessage, messages.ToolMessage),
    *(messages.ChatMessage, messages.FunctionMessage, messages.RemoveMessage),
    *(messages.HumanMessageChunk, messages.AIMessageChunk, messages.SystemMessageChunk),
    *(messages.ToolMessageChunk, messages.ChatMessageChunk, messages.FunctionMessageChunk),
)
_PLAIN: dict[type, Declared] = {
    datetime: Declared("datetime", datetime.isoformat, datetime.fromisoformat),
    date: Declared("date", date.isoformat, date.fromisoformat),
    time: Declared("time", _dump_time, _build_time),
    timedelta: Declared("timedelta", lambda d: [d.days, d.seconds, d.microseconds], lambda c: timedelta(*c)),
    timezone: Declared("timezone", lambda zone: list(zone.__getinitargs__()), lambda c: timezone(*c)),
    ZoneInfo: Declared("ZoneInfo", lambda zone: zone.key, ZoneInfo),
    UUID: Declared("UUID", lambda uuid: uuid.hex, UUID),
    Decimal: Declared("Decimal", str, Decimal),
    type(Path()): Declared("Path", str, Path),
    **{kind: Declared(kind.__name__, list, kind) for kind in (set, frozenset, deque)},
    **{kind: Declared(kind.__name__, str, kind) for kind in _IP_TYPES},
    Send: Declared("Send", lambda s: [s.node, s.arg, s.timeout], lambda c: Send(c[0], c[1], timeout=c[2])),
    Interrupt: Declared("Interrupt", _dump_interrupt, _build_interrupt),
    _DeltaSnapshot: Declared("DeltaSnapshot", lambda snapshot: snapshot.value, _DeltaSnapshot),
}


def declare(kind: type) -> Declared:
    """How values of a class are written and built; `InvalidValue` if it is not of a known kind."""
    name, build = f"{kind.__module__}.{kind.__qualname__}", kind
    if issubclass(kind, Enum):
        return Declared(name, lambda member: member.name, kind.__getitem__)
    if hasattr(kind, "model_validate") and hasattr(kind, "model_dump"):  # pydantic, and so all messages
        return Declared(name, lambda model: model.model_dump(), kind.model_validate)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return Declared(name, list, lambda content: build(*content))
    if issubclass(kind, msgspec.Struct):
        fields = list(kind.__struct_fields__)
    elif dataclasses.is_dataclass(kind):
        fields = [field.name for field in dataclasses.fields(kind) if field.init]
    else:
        raise InvalidValue(
            "types", "enums, dataclasses, named tuples, msgspec.Structs and pydantic models", repr(kind)
        )
    return Declared(
        name,
        lambda value: {field: getattr(value, field) for field in fields},
        lambda content: build(**content),
    )


_KNOWN: dict[type, Declared] = _PLAIN | {
    kind: declare(kind) for kind in (*_MESSAGES, Document, Command, Overwrite, TimeoutPolicy)
}


class StrictSerializer:
    """A LangGraph serializer of plain values, messages and the listed types."""

    def __init__(self, types: Iterable[type] = ()) -> None:
        self._by_type = {**_KNOWN, **{kind: declare(kind) for kind in types}}
        self._by_name = {declared.name: declared.build for declared in self._by_type.values()}
        self._by_name["ndarray"] = _build_array
        self._decode = msgspec.msgpack.Decoder(ext_hook=self._build).decode

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Encode a value; `InvalidValue` for a type that is not declared."""
        refused: list[type] = []  # since ormsgpack hides why it fails
        try:
            return "msgpack", self._encode(refused, obj)
        except (TypeError, ValueError) as problem:
            kind = refused[0] if refused else None
            raise InvalidValue(
                "a graph's state",
                "plain values, messages and listed types: types=[...]",
                f"a {kind.__module__}.{kind.__qualname__}" if kind else str(problem),
            ) from None

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Decode a value; ValueError for everything that `dumps_typed` does not write."""
        kind, content = data
        if kind != "msgpack" or len(content) > _MOST_BYTES:
            raise ValueError(f"{len(content)} bytes of {kind[:20]!r} are not a value of this serializer")
        try:
            return self._decode(content)
        except ValueError:
            raise
        except Exception as problem:  # building a type may raise anything
            raise ValueError(f"{type(problem).__name__}: {problem}"[:200]) from None

    def _encode(self, refused: list[type], value: Any) -> bytes:
        return ormsgpack.packb(value, default=partial(self._dump, refused), option=_OPTIONS)

    def _dump(self, refused: list[type], value: Any) -> Any:
        """A value that MessagePack does not have."""
        declared = self._by_type.get(type(value))
        numpy = sys.modules.get("numpy")
        if declared is not None:
            content = [declared.name, declared.dump(value)]
        elif isinstance(value, BaseException):
            return repr(value)[:_LONGEST_ERROR]
        elif numpy and isinstance(value, numpy.ndarray) and _DTYPE.fullmatch(value.dtype.str):
            content = ["ndarray", [value.dtype.str, value.shape, value.tobytes()]]
        else:
            refused.append(type(value))
            raise TypeError
        return ormsgpack.Ext(_OBJECT, self._encode(refused, content))

    def _build(self, code: int, data: memoryview) -> Any:
        """The value of an extension."""
        if code != _OBJECT:
            raise ValueError(f"an extension of code {code}")
        name, content = self._decode(data)
        build = self._by_name.get(name) if isinstance(name, str) else None
        if build is None:
            raise ValueError(f"the type {str(name)[:100]!r} is not declared: list it in types=[...]")
        return build(content)


def _build_array(content: Any) -> Any:
    dtype, shape, data = content
    if not _DTYPE.fullmatch(dtype):
        raise ValueError(f"an array of {dtype[:20]!r}")
    import numpy as np

    return np.frombuffer(data, dtype).reshape(shape)
