"""The keyspace: declare every key once, and use it by a typed accessor."""

from ephemera.keyspace.catalogue import Catalogue
from ephemera.keyspace.codec import Codec
from ephemera.keyspace.counters import CounterAccess
from ephemera.keyspace.field_values import FieldValue
from ephemera.keyspace.hashes import HashAccess
from ephemera.keyspace.lifetime import (
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
from ephemera.keyspace.lists import ListAccess
from ephemera.keyspace.mappings import MappingAccess
from ephemera.keyspace.records import RecordCodec
from ephemera.keyspace.sets import SetAccess, SortedSetAccess
from ephemera.keyspace.space import Kind, Role, Space, Stats
from ephemera.keyspace.store import Store, connect
from ephemera.keyspace.streams import ChannelAccess, StreamAccess
from ephemera.keyspace.template import Template
from ephemera.keyspace.values import FlagAccess, ValueAccess

__all__ = [
    "Catalogue",
    "ChannelAccess",
    "Codec",
    "CounterAccess",
    "FieldValue",
    "Fixed",
    "FlagAccess",
    "HashAccess",
    "Instant",
    "Kind",
    "Lifetime",
    "ListAccess",
    "MappingAccess",
    "Permanent",
    "RecordCodec",
    "Role",
    "SetAccess",
    "Sliding",
    "SortedSetAccess",
    "Space",
    "Stats",
    "Store",
    "StreamAccess",
    "Template",
    "Until",
    "ValueAccess",
    "Windowed",
    "connect",
    "fixed",
    "permanent",
    "sliding",
    "until",
    "windowed",
]
