"""The keyspace: declare every key once, and use it by a typed accessor."""

from ephemera.keyspace._catalogue import Catalogue
from ephemera.keyspace._codec import Codec
from ephemera.keyspace._counter import CounterAccessor
from ephemera.keyspace._field_values import FieldValue
from ephemera.keyspace._hash import HashAccessor
from ephemera.keyspace._keyspace import Keyspace, Kind, Role, Stats
from ephemera.keyspace._lifetime import (
    Fixed,
    Instant,
    Lifetime,
    Permanent,
    Sliding,
    Until,
    Windowed,
    fixed,
    permanent,
    sliding,
    until,
    windowed,
)
from ephemera.keyspace._list import ListAccessor
from ephemera.keyspace._mapping import MappingAccessor
from ephemera.keyspace._record_codec import RecordCodec
from ephemera.keyspace._set import SetAccessor, SortedSetAccessor
from ephemera.keyspace._store import Store, connect
from ephemera.keyspace._stream import ChannelAccessor, StreamAccessor
from ephemera.keyspace._template import Template
from ephemera.keyspace._value import FlagAccessor, ValueAccessor

__all__ = [
    "Catalogue",
    "ChannelAccessor",
    "Codec",
    "CounterAccessor",
    "FieldValue",
    "Fixed",
    "FlagAccessor",
    "HashAccessor",
    "Instant",
    "Keyspace",
    "Kind",
    "Lifetime",
    "ListAccessor",
    "MappingAccessor",
    "Permanent",
    "RecordCodec",
    "Role",
    "SetAccessor",
    "Sliding",
    "SortedSetAccessor",
    "Stats",
    "Store",
    "StreamAccessor",
    "Template",
    "Until",
    "ValueAccessor",
    "Windowed",
    "connect",
    "fixed",
    "permanent",
    "sliding",
    "until",
    "windowed",
]
