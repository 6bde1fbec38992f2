"""The catalogue: every key of a service, declared once and checked when it is declared.

A declaration gives the pattern of a key, the type of its value, its lifetime and its purpose. Accessors,
documentation, audit, hit ratios, ACLs and server configuration are derived from it. What cannot work fails
here, at import, with the pattern and what to do: overlapping or ambiguous patterns, a type that cannot be
stored, a lifetime that is missing or that its role forbids, an unknown option.

Role `queue` promises that nothing vanishes before it was used. Such a keyspace is `permanent`, or its
lifetime says what it `outlives`: `fixed(days=90, outlives="the flush every 15 minutes")`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Required, TypedDict, TypeVar, Unpack, get_args

from ephemera.errors import InvalidDeclaration, OverlappingPatterns
from ephemera.keyspace._classifier import Classifier, shared_key
from ephemera.keyspace._codec import Codec, CodecName, bare_codec, choose_codec, member_codec
from ephemera.keyspace._hash import HashAccessor, MappingAccessor
from ephemera.keyspace._keyspace import Keyspace, Kind, Role
from ephemera.keyspace._lifetime import Lifetime, Momentary, Permanent, Until
from ephemera.keyspace._list import ListAccessor
from ephemera.keyspace._record_codec import EntryCodec, RecordCodec, record_codec
from ephemera.keyspace._set import SetAccessor, SortedSetAccessor
from ephemera.keyspace._stream import ChannelAccessor, StreamAccessor
from ephemera.keyspace._template import Template, with_prefix
from ephemera.keyspace._value import CounterAccessor, FlagAccessor, ValueAccessor
from ephemera.wire import Client

A = TypeVar("A")
S = TypeVar("S")
V = TypeVar("V")
M = TypeVar("M", str, bytes, int)

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PREFIX = re.compile(r"([A-Za-z0-9._-]+:)+")


class ChannelOptions(TypedDict, total=False):
    """The options of a declaration besides pattern and type."""

    purpose: Required[str]
    """What the keys are for, in a few words."""
    role: Role
    """`"cache"` (the default) may be evicted; `"queue"` must not be."""
    saves: str
    """The work that the keys save, such as "a SQL read on every request"."""
    invalidated_by: tuple[str, ...]
    """The events that delete a key before it expires."""
    if_lost: str
    """What happens when a key is evicted or lost."""
    owner: str
    """The service that writes the keys, when it is another one."""
    sensitive: bool
    """True: no tool ever shows the values."""
    hash_tag: str | None
    """The field that decides the cluster slot; keys with equal values of it share a slot."""
    max_key_length: int
    """The longest key allowed, in bytes; 1024 unless given."""


class KeyspaceOptions(ChannelOptions, total=False):
    """The options of a declaration whose keys are stored."""

    lifetime: Required[Lifetime]
    """`fixed(...)`, `sliding(...)`, `windowed(...)`, `until(...)` or `permanent(reason=...)`."""


class Catalogue:
    """The declared keyspaces of one service.

    `prefix` is put before every key and channel that is declared in the catalogue, those of patterns
    included, as in `Catalogue("shop", prefix="shop:")`. Services with different prefixes can share a server.

    Each method declares one kind of key and returns its `Keyspace`; `store[...]` gives the accessor. All take
    a pattern such as `"session:{user_id}:{id}"` and these options, by name:

    - `lifetime` (required, except for channels): `fixed(...)`, `sliding(...)`, `windowed(...)`, `until(...)`
      or `permanent(reason=...)`.
    - `purpose` (required): what the keys are for, in a few words.
    - `role`: `"cache"` (the default) may be evicted; `"queue"` must not be.
    - `hash_tag`: the field that decides the cluster slot.
    - `sensitive`: True when no tool may show the values.
    - `max_key_length`: the longest key allowed, in bytes (1024).
    - `saves`, `invalidated_by`, `if_lost`, `owner`: for the documentation; the work that the keys save, the
      events that delete them early, what happens when they are lost, and which service writes them.
    """

    def __init__(self, name: str, *, prefix: str = "") -> None:
        given: object = name
        if not isinstance(given, str) or not _NAME.fullmatch(given):
            advice = "use at most 64 letters, digits and . _ -, as in Catalogue('slides')"
            raise InvalidDeclaration(str(name)[:80], "it cannot be the name of a catalogue", advice)
        if prefix and not _PREFIX.fullmatch(prefix):
            advice = "use letters, digits and . _ -, and a colon at the end, as in prefix='shop:'"
            raise InvalidDeclaration(name, f"prefix={prefix!r} cannot be put before its keys", advice)
        self.name = name
        self.prefix = prefix
        """What all keys and channels of the catalogue begin with."""
        self.patterns: list[object] = []
        """The patterns declared on its keyspaces, such as locks and caches; each adds itself."""
        self._keyspaces: dict[str, Keyspace[Any]] = {}
        self._classifier: Classifier[Keyspace[Any]] | None = None

    def __iter__(self) -> Iterator[Keyspace[Any]]:
        return iter(self._keyspaces.values())

    def __len__(self) -> int:
        return len(self._keyspaces)

    def __getitem__(self, pattern: str) -> Keyspace[Any]:
        return self._keyspaces[pattern]

    def __repr__(self) -> str:
        return f"<Catalogue {self.name!r} of {len(self)} keyspaces>"

    def classify(self, key: bytes) -> Keyspace[Any] | None:
        """The keyspace that a key belongs to, or None when none could have rendered it."""
        if self._classifier is None:
            stored = (keyspace for keyspace in self if keyspace.kind != "channel")
            self._classifier = Classifier((keyspace.template, keyspace) for keyspace in stored)
        return self._classifier(key)

    def hash(
        self, pattern: str, record: type[S], **options: Unpack[KeyspaceOptions]
    ) -> Keyspace[HashAccessor[S]]:
        """Declare a record per key, each of its fields a field of the hash.

        `record` is a Struct, a pydantic model, a dataclass, an attrs class or a TypedDict.
        """
        return self._declare(pattern, "hash", HashAccessor, record_codec(pattern, record), options)

    def mapping(
        self, pattern: str, value_type: type[V], **options: Unpack[KeyspaceOptions]
    ) -> Keyspace[MappingAccessor[V]]:
        """Declare a hash whose field names callers choose, with values of one type."""
        codec = bare_codec(pattern, value_type)
        return self._declare(pattern, "mapping", MappingAccessor, codec, options)

    def value(
        self,
        pattern: str,
        value_type: type[V],
        *,
        codec: CodecName | None = None,
        compress_over: int | None = None,
        **options: Unpack[KeyspaceOptions],
    ) -> Keyspace[ValueAccessor[V]]:
        """Declare one value per key.

        Args:
            pattern: The pattern of the keys, such as `"theme:{user_id}"`.
            value_type: The type of the values; what does not fit it is a miss.
            codec: "json" or "msgpack"; by default scalars are stored as they are, and all else as JSON.
            compress_over: The size in bytes over which values are compressed (extra `zstd`); by default none
                are.
            options: `lifetime`, `purpose` and the others of every keyspace; see `Catalogue`.

        """
        chosen = choose_codec(pattern, value_type, codec, compress_over)
        return self._declare(pattern, "value", ValueAccessor, chosen, options)

    def counter(self, pattern: str, **options: Unpack[KeyspaceOptions]) -> Keyspace[CounterAccessor]:
        """Declare a counter: one whole number per key."""
        return self._declare(pattern, "counter", CounterAccessor, None, options)

    def flag(self, pattern: str, **options: Unpack[KeyspaceOptions]) -> Keyspace[FlagAccessor]:
        """Declare a flag: a key that is set or not, without a value."""
        return self._declare(pattern, "flag", FlagAccessor, None, options)

    def set(
        self, pattern: str, member_type: type[M], **options: Unpack[KeyspaceOptions]
    ) -> Keyspace[SetAccessor[M]]:
        """Declare a set of members per key."""
        codec = member_codec(pattern, member_type)
        return self._declare(pattern, "set", SetAccessor, codec, options)

    def sorted_set(
        self, pattern: str, member_type: type[M], **options: Unpack[KeyspaceOptions]
    ) -> Keyspace[SortedSetAccessor[M]]:
        """Declare a sorted set: members ordered by score."""
        codec = member_codec(pattern, member_type)
        return self._declare(pattern, "sorted_set", SortedSetAccessor, codec, options)

    def list(
        self,
        pattern: str,
        item_type: type[V],
        *,
        max_length: int | None = None,
        codec: CodecName | None = None,
        compress_over: int | None = None,
        **options: Unpack[KeyspaceOptions],
    ) -> Keyspace[ListAccessor[V]]:
        """Declare a list of items in the order they were pushed.

        Args:
            pattern: The pattern of the keys.
            item_type: The type of the items.
            max_length: The number of items that are kept, the newest; by default all are.
            codec: As of `value`, for each item.
            compress_over: As of `value`, for each item.
            options: `lifetime`, `purpose` and the others of every keyspace; see `Catalogue`.

        """
        chosen = choose_codec(pattern, item_type, codec, compress_over)
        return self._declare(pattern, "list", ListAccessor, chosen, options, max_length)

    def stream(
        self,
        pattern: str,
        entry: type[V],
        *,
        max_length: int | None = None,
        codec: CodecName | None = None,
        **options: Unpack[KeyspaceOptions],
    ) -> Keyspace[StreamAccessor[V]]:
        """Declare a stream: entries in order, each with an id.

        Args:
            pattern: The pattern of the keys.
            entry: The type of an entry: a record, whose fields are the fields of the entry; with a codec, any
                type.
            max_length: The number of entries that are kept, the newest; by default all are.
            codec: "json" or "msgpack" for entries that are one value; by default an entry is a record.
            options: `lifetime`, `purpose` and the others of every keyspace; see `Catalogue`.

        """
        chosen = (
            record_codec(pattern, entry) if codec is None else EntryCodec(choose_codec(pattern, entry, codec))
        )
        return self._declare(pattern, "stream", StreamAccessor, chosen, options, max_length)

    def channel(
        self,
        pattern: str,
        message_type: type[V],
        *,
        codec: CodecName | None = None,
        **options: Unpack[ChannelOptions],
    ) -> Keyspace[ChannelAccessor[V]]:
        """Declare a channel: messages to the current subscribers, not stored, so without a lifetime."""
        chosen = choose_codec(pattern, message_type, codec)
        not_stored: dict[str, Any] = {**options, "lifetime": Momentary()}
        return self._declare(pattern, "channel", ChannelAccessor, chosen, not_stored)

    def _declare(
        self,
        pattern: str,
        kind: Kind,
        accessor: Callable[[Keyspace[Any], Client], A],
        codec: Codec[Any] | RecordCodec[Any] | EntryCodec[Any] | None,
        options: Any,
        max_length: int | None = None,
    ) -> Keyspace[A]:
        _check(pattern, kind, options, max_length)
        pattern = with_prefix(self.prefix, pattern)
        of_template = ("hash_tag", "max_key_length")
        template = Template(pattern, **{name: options.pop(name) for name in of_template if name in options})
        if pattern in self._keyspaces:
            raise InvalidDeclaration(
                pattern,
                "it is declared twice",
                "declare each pattern once, and import the keyspace where you need it",
            )
        for other in self:
            check_overlap(template, kind, other)
        keyspace = Keyspace(self.name, template, kind, codec, accessor, max_length=max_length, **options)
        self._keyspaces[pattern] = keyspace
        self._classifier = None
        return keyspace


def check_overlap(template: Template, kind: Kind, other: Keyspace[Any]) -> None:
    """Raise `OverlappingPatterns` when both could render the same name; channels never collide with keys."""
    if (kind == "channel") == (other.kind == "channel"):
        key = shared_key(template, other.template)
        if key is not None:
            raise OverlappingPatterns(template.pattern, other.pattern, key)


def _check(pattern: str, kind: Kind, options: dict[str, Any], max_length: int | None) -> None:
    """Raise `InvalidDeclaration` for what is missing, unknown or contradictory."""
    for problem, advice in _problems(kind, options, max_length):
        raise InvalidDeclaration(pattern, problem, advice)


def _problems(kind: Kind, options: dict[str, Any], max_length: int | None) -> Iterator[tuple[str, str]]:
    lifetime = options.get("lifetime")
    if not isinstance(lifetime, get_args(Lifetime)):
        seconds = lifetime.total_seconds() if isinstance(lifetime, timedelta) else lifetime
        is_length = isinstance(seconds, (int, float)) and seconds > 0
        first = f"fixed(seconds={seconds:g})" if is_length else "fixed(...)"
        yield (
            f"it has no lifetime, but {lifetime!r}" if lifetime else "it has no lifetime",
            f"add lifetime={first}, sliding(...), windowed(...), until(...) or permanent(reason=...)",
        )
    if not options.get("purpose"):
        yield "it has no purpose", "add purpose='what it is for, in a few words'"
    known = {*ChannelOptions.__annotations__, *KeyspaceOptions.__annotations__}
    if unknown := options.keys() - known:
        yield f"the option {', '.join(sorted(unknown))} is unknown", f"options are {', '.join(sorted(known))}"
    if options.get("role", "cache") not in get_args(Role):
        yield f"the role {options['role']!r} is unknown", "use 'cache' or 'queue'"
    if max_length is not None and (type(max_length) is not int or max_length < 1):
        yield f"max_length={max_length!r} holds nothing", "give a positive number, or leave it out"
    yield from _wrong_types(options)
    if isinstance(lifetime, Until) and lifetime.derive and kind not in ("value", "hash"):
        yield (
            f"until() cannot derive an instant from a {kind}",
            "give until= with each write instead",
        )
    if options.get("role") == "queue" and not _outlasts_use(lifetime):
        yield (
            f"role 'queue' must not vanish before it was used, but its lifetime is {lifetime}",
            "use permanent(reason=...), or say what it outlives: fixed(days=90, outlives='the hourly flush')",
        )


def _wrong_types(options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Options of the wrong type."""
    for name in ("purpose", "saves", "if_lost", "owner"):
        if not isinstance(options.get(name, ""), str):
            yield f"{name}={options[name]!r} is not a string", "describe it in words"
    events = options.get("invalidated_by", ())
    if isinstance(events, str):
        yield "invalidated_by is one string", "give a tuple of events, as in invalidated_by=('logout',)"
    elif not all(isinstance(event, str) for event in events):
        yield (
            f"invalidated_by={events!r} holds something other than strings",
            "name the events, as in invalidated_by=('logout',)",
        )
    if not isinstance(options.get("sensitive", False), bool):
        yield f"sensitive={options['sensitive']!r} is neither True nor False", "use one of them"
    length = options.get("max_key_length", 1)
    if type(length) is not int or length < 1:
        yield f"max_key_length={length!r} is not a length", "give a number of bytes, or leave it out"


def _outlasts_use(lifetime: Any) -> bool:
    return isinstance(lifetime, (Permanent, Momentary)) or bool(lifetime.outlives)
