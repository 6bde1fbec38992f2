"""The keyspace: declare every key once, and use it through a typed accessor.

Three groups of names are public. Applications need `Catalogue`, `connect` and the lifetimes. The accessors
and the classes behind a declaration are here for annotations. The rest is for code built on the keyspace:
patterns, operations and adapters.

Such code counts the errors of its Redis calls with `with stats.counting_errors:` (see `Stats`), and catches
`REDIS_ERRORS` only where it falls back to something else.
"""

from ephemera.keyspace._accessor import Accessor, is_outage, payload_size
from ephemera.keyspace._argument_checks import (
    check_async,
    check_declaration,
    check_durations,
    check_field_names,
)
from ephemera.keyspace._catalogue import Catalogue, ChannelOptions, KeyspaceOptions, check_overlap
from ephemera.keyspace._classifier import Classifier, shared_key
from ephemera.keyspace._codec import (
    JSON_HEAD,
    Codec,
    CodecName,
    bare_codec,
    choose_codec,
    declared_type,
    type_name,
)
from ephemera.keyspace._compression import compress, decompress
from ephemera.keyspace._connect import connect
from ephemera.keyspace._field_types import FieldValue
from ephemera.keyspace._field_values import FieldCodec
from ephemera.keyspace._hash import HashAccessor, MappingAccessor
from ephemera.keyspace._key import Key
from ephemera.keyspace._keyspace import REDIS_ERRORS, Keyspace, Kind, Role, Stats
from ephemera.keyspace._lifetime import (
    Fixed,
    Instant,
    Lifetime,
    Permanent,
    Sliding,
    Until,
    Windowed,
    fixed,
    milliseconds,
    permanent,
    shorter,
    sliding,
    unix_milliseconds,
    until,
    windowed,
)
from ephemera.keyspace._list import ListAccessor
from ephemera.keyspace._record_codec import RECORD_LAYOUT, RecordCodec
from ephemera.keyspace._record_types import (
    RecordChanges,
    RecordField,
    field_value,
    is_record,
    record_class,
    record_fields,
    replaced,
)
from ephemera.keyspace._scalars import DECODE_ERRORS, json_codec
from ephemera.keyspace._server_identity import RESERVED, SERVER_IDENTITY, read_identity, write_identity
from ephemera.keyspace._set import SetAccessor, SortedSetAccessor
from ephemera.keyspace._store import Declaration, Store
from ephemera.keyspace._stream import ChannelAccessor, StreamAccessor
from ephemera.keyspace._template import (
    MAX_KEY_LENGTH,
    Fields,
    KeyPattern,
    Template,
    last_field,
    unnamed_field,
)
from ephemera.keyspace._type_nodes import mutable_part
from ephemera.keyspace._value import CounterAccessor, FlagAccessor, ValueAccessor, blocking_get
from ephemera.keyspace._value_types import convert, encode_json, json_decoder, storable, to_builtins

__all__ = [
    "DECODE_ERRORS",
    "JSON_HEAD",
    "MAX_KEY_LENGTH",
    "RECORD_LAYOUT",
    "REDIS_ERRORS",
    "RESERVED",
    "SERVER_IDENTITY",
    "Accessor",
    "Catalogue",
    "ChannelAccessor",
    "ChannelOptions",
    "Classifier",
    "Codec",
    "CodecName",
    "CounterAccessor",
    "Declaration",
    "FieldCodec",
    "FieldValue",
    "Fields",
    "Fixed",
    "FlagAccessor",
    "HashAccessor",
    "Instant",
    "Key",
    "KeyPattern",
    "Keyspace",
    "KeyspaceOptions",
    "Kind",
    "Lifetime",
    "ListAccessor",
    "MappingAccessor",
    "Permanent",
    "RecordChanges",
    "RecordCodec",
    "RecordField",
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
    "bare_codec",
    "blocking_get",
    "check_async",
    "check_declaration",
    "check_durations",
    "check_field_names",
    "check_overlap",
    "choose_codec",
    "compress",
    "connect",
    "convert",
    "declared_type",
    "decompress",
    "encode_json",
    "field_value",
    "fixed",
    "is_outage",
    "is_record",
    "json_codec",
    "json_decoder",
    "last_field",
    "milliseconds",
    "mutable_part",
    "payload_size",
    "permanent",
    "read_identity",
    "record_class",
    "record_fields",
    "replaced",
    "shared_key",
    "shorter",
    "sliding",
    "storable",
    "to_builtins",
    "type_name",
    "unix_milliseconds",
    "unnamed_field",
    "until",
    "windowed",
    "write_identity",
]
