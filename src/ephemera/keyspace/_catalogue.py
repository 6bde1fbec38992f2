"""The catalogue: every key of a service, declared once, checked when declared.

A declaration says what a key looks like, what it holds, how long it lives, and what it is for. Accessors,
documentation, audit, hit ratios, access rules and server configuration are all made from it. What cannot
work fails here, at import, with the pattern's name and what to do: overlapping or ambiguous patterns, a type
that cannot be stored, a lifetime that is missing or that its role forbids, an option nobody knows.

Role `queue` promises that nothing vanishes before it was used. Such a space is `permanent`, or its lifetime
says in words what it `outlives`: `fixed(days=90, outlives="the flush every 15 minutes")`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Required, TypedDict, TypeVar, Unpack, cast, get_args

import msgspec

from ephemera.errors import InvalidDeclaration, OverlappingPatterns
from ephemera.keyspace._classifier import Classifier
from ephemera.keyspace._codec import bare_codec, choose_codec, member_codec
from ephemera.keyspace._counter import CounterAccessor
from ephemera.keyspace._entry_codec import EntryCodec
from ephemera.keyspace._hash import HashAccessor
from ephemera.keyspace._keyspace import Keyspace, Kind, Role
from ephemera.keyspace._lifetime import Lifetime, Momentary, Permanent, Until
from ephemera.keyspace._list import ListAccessor
from ephemera.keyspace._mapping import MappingAccessor
from ephemera.keyspace._overlap import shared_key
from ephemera.keyspace._record_codec import RecordCodec
from ephemera.keyspace._set import SetAccessor, SortedSetAccessor
from ephemera.keyspace._stream import ChannelAccessor, StreamAccessor
from ephemera.keyspace._template import Template
from ephemera.keyspace._value import FlagAccessor, ValueAccessor
from ephemera.wire import Client

if TYPE_CHECKING:
    from ephemera.keyspace._codec import Codec, CodecName

A = TypeVar("A")
S = TypeVar("S", bound=msgspec.Struct)
V = TypeVar("V")
M = TypeVar("M", str, bytes, int)

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class ChannelOptions(TypedDict, total=False):
    """What a declaration says besides pattern and type."""

    purpose: Required[str]  # what it is for, in a few words
    role: Role  # "cache" unless given
    saves: str  # the work that it saves
    invalidated_by: tuple[str, ...]  # the events that remove it before its time
    if_lost: str  # what happens when it is gone
    owner: str  # who writes it, when it is not this service
    sensitive: bool  # values are never shown by any tool
    hash_tag: str  # the field that decides the cluster slot
    max_key_length: int  # bytes


class KeyspaceOptions(ChannelOptions, total=False):
    """The same, of what is kept."""

    lifetime: Required[Lifetime]


class Catalogue:
    """The declared spaces of one service."""

    def __init__(self, name: str) -> None:
        given: object = name
        if not isinstance(given, str) or not _NAME.fullmatch(given):
            advice = "use at most 64 letters, digits and . _ -, as in Catalogue('slides')"
            raise InvalidDeclaration(str(name)[:80], "it cannot name a catalogue", advice)
        self.name = name
        self.patterns: list[object] = []
        """What is made of its spaces, such as locks and caches; each adds itself when it is declared."""
        self._spaces: dict[str, Keyspace[Any]] = {}
        self._classifier: Classifier[Keyspace[Any]] | None = None

    def __iter__(self) -> Iterator[Keyspace[Any]]:
        return iter(self._spaces.values())

    def __len__(self) -> int:
        return len(self._spaces)

    def __getitem__(self, pattern: str) -> Keyspace[Any]:
        return self._spaces[pattern]

    def __repr__(self) -> str:
        return f"<Catalogue {self.name!r} of {len(self)} spaces>"

    def classify(self, key: bytes) -> Keyspace[Any] | None:
        """The space that a key belongs to, or None when none of them could have rendered it."""
        if self._classifier is None:
            kept = (space for space in self if space.kind != "channel")
            self._classifier = Classifier((space.template, space) for space in kept)
        return self._classifier(key)

    def hash(
        self, pattern: str, record: type[S], **about: Unpack[KeyspaceOptions]
    ) -> Keyspace[HashAccessor[S]]:
        """A Struct a key, each of its fields a field of the hash."""
        return self._declare(pattern, "hash", HashAccessor, RecordCodec(pattern, record), about)

    def mapping(
        self, pattern: str, value_type: type[V], **about: Unpack[KeyspaceOptions]
    ) -> Keyspace[MappingAccessor[V]]:
        """A hash whose field names callers choose, with values of one type."""
        codec = bare_codec(pattern, value_type)
        return self._declare(pattern, "mapping", MappingAccessor, codec, about)

    def value(
        self,
        pattern: str,
        value_type: type[V],
        *,
        codec: CodecName | None = None,
        compress_over: int | None = None,
        **about: Unpack[KeyspaceOptions],
    ) -> Keyspace[ValueAccessor[V]]:
        """A value a key, by the codec named, under zstd when larger than `compress_over` bytes."""
        chosen = choose_codec(pattern, value_type, codec, compress_over)
        return self._declare(pattern, "value", ValueAccessor, chosen, about)

    def counter(self, pattern: str, **about: Unpack[KeyspaceOptions]) -> Keyspace[CounterAccessor]:
        """A whole number a key, to add to."""
        return self._declare(pattern, "counter", CounterAccessor, None, about)

    def flag(self, pattern: str, **about: Unpack[KeyspaceOptions]) -> Keyspace[FlagAccessor]:
        """A key that is there or not."""
        return self._declare(pattern, "flag", FlagAccessor, None, about)

    def set(
        self, pattern: str, member_type: type[M], **about: Unpack[KeyspaceOptions]
    ) -> Keyspace[SetAccessor[M]]:
        """A set of members a key."""
        codec = member_codec(pattern, member_type)
        return self._declare(pattern, "set", SetAccessor, codec, about)

    def sorted_set(
        self, pattern: str, member_type: type[M], **about: Unpack[KeyspaceOptions]
    ) -> Keyspace[SortedSetAccessor[M]]:
        """Members in the order of their scores."""
        codec = member_codec(pattern, member_type)
        return self._declare(pattern, "sorted_set", SortedSetAccessor, codec, about)

    def list(
        self,
        pattern: str,
        item_type: type[V],
        *,
        max_length: int | None = None,
        codec: CodecName | None = None,
        compress_over: int | None = None,
        **about: Unpack[KeyspaceOptions],
    ) -> Keyspace[ListAccessor[V]]:
        """Items in the order they were pushed, the newest `max_length` of them."""
        chosen = choose_codec(pattern, item_type, codec, compress_over)
        return self._declare(pattern, "list", ListAccessor, chosen, about, max_length)

    def stream(
        self,
        pattern: str,
        entry: type[V],
        *,
        max_length: int | None = None,
        codec: CodecName | None = None,
        **about: Unpack[KeyspaceOptions],
    ) -> Keyspace[StreamAccessor[V]]:
        """Entries in order, each with an id, the newest `max_length` of them.

        An entry is a Struct, each of its fields a field of it; with a codec, one value of any type.
        """
        chosen = (
            RecordCodec(pattern, cast("Any", entry))
            if codec is None
            else EntryCodec(choose_codec(pattern, entry, codec))
        )
        return self._declare(pattern, "stream", StreamAccessor, chosen, about, max_length)

    def channel(
        self,
        pattern: str,
        message_type: type[V],
        *,
        codec: CodecName | None = None,
        **about: Unpack[ChannelOptions],
    ) -> Keyspace[ChannelAccessor[V]]:
        """Messages to whoever listens at the moment; nothing is kept, so there is no lifetime."""
        chosen = choose_codec(pattern, message_type, codec)
        told: dict[str, Any] = {**about, "lifetime": Momentary()}
        return self._declare(pattern, "channel", ChannelAccessor, chosen, told)

    def _declare(
        self,
        pattern: str,
        kind: Kind,
        accessor: Callable[[Keyspace[Any], Client], A],
        codec: Codec[Any] | RecordCodec[Any] | EntryCodec[Any] | None,
        about: Any,
        max_length: int | None = None,
    ) -> Keyspace[A]:
        _check(pattern, kind, about, max_length)
        template = Template(
            pattern, **{name: about.pop(name) for name in ("hash_tag", "max_key_length") if name in about}
        )
        if pattern in self._spaces:
            raise InvalidDeclaration(
                pattern, "it is declared twice", "a pattern is its space's name: declare it once"
            )
        for other in self:
            check_overlap(template, kind, other)
        space = Keyspace(self.name, template, kind, codec, accessor, max_length=max_length, **about)
        self._spaces[pattern] = space
        self._classifier = None
        return space


def check_overlap(template: Template, kind: Kind, other: Keyspace[Any]) -> None:
    """Raise `OverlappingPatterns` when both could have the same name; channels and keys are apart."""
    if (kind == "channel") == (other.kind == "channel"):
        key = shared_key(template, other.template)
        if key is not None:
            raise OverlappingPatterns(template.pattern, other.pattern, key)


def _check(pattern: str, kind: Kind, about: dict[str, Any], max_length: int | None) -> None:
    """Refuse what is missing, unknown or contradictory in a declaration."""
    for problem, advice in _problems(kind, about, max_length):
        raise InvalidDeclaration(pattern, problem, advice)


def _problems(kind: Kind, about: dict[str, Any], max_length: int | None) -> Iterator[tuple[str, str]]:
    lifetime = about.get("lifetime")
    if not isinstance(lifetime, get_args(Lifetime)):
        yield (
            f"it has no lifetime, but {lifetime!r}" if lifetime else "it has no lifetime",
            "add lifetime=fixed(...), sliding(...), windowed(...), until(...) or permanent(reason=...)",
        )
    if not about.get("purpose"):
        yield "it has no purpose", "add purpose='what it is for, in a few words'"
    if (
        unknown := about.keys()
        - KeyspaceOptions.__annotations__.keys()
        - ChannelOptions.__annotations__.keys()
    ):
        options = ", ".join(sorted({**ChannelOptions.__annotations__, **KeyspaceOptions.__annotations__}))
        yield f"the option {', '.join(sorted(unknown))} is unknown", f"options are {options}"
    if about.get("role", "cache") not in get_args(Role):
        yield f"the role {about['role']!r} is unknown", "use 'cache' or 'queue'"
    if max_length is not None and (type(max_length) is not int or max_length < 1):
        yield f"max_length={max_length!r} holds nothing", "give a positive number, or leave it out"
    yield from _unclear(about)
    if isinstance(lifetime, Until) and lifetime.derive and kind not in ("value", "hash"):
        yield (
            f"until() cannot derive an instant from a {kind}",
            "give until= with each write instead",
        )
    if about.get("role") == "queue" and not _survives(lifetime):
        yield (
            f"role 'queue' must not vanish before it was used, but its lifetime is {lifetime}",
            "use permanent(reason=...), or say what it outlives: fixed(days=90, outlives='the hourly flush')",
        )


def _unclear(about: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What is said of a space, but not as texts and numbers that its documentation can show."""
    for name in ("purpose", "saves", "if_lost", "owner"):
        if not isinstance(about.get(name, ""), str):
            yield f"{name}={about[name]!r} is no text", "say it in words"
    events = about.get("invalidated_by", ())
    if isinstance(events, str):
        yield "invalidated_by is one text", "give a tuple of events, as in invalidated_by=('logout',)"
    elif not all(isinstance(event, str) for event in events):
        yield (
            f"invalidated_by={events!r} holds what is no text",
            "name the events, as in invalidated_by=('logout',)",
        )
    if not isinstance(about.get("sensitive", False), bool):
        yield f"sensitive={about['sensitive']!r} is neither True nor False", "use one of them"
    length = about.get("max_key_length", 1)
    if type(length) is not int or length < 1:
        yield f"max_key_length={length!r} is no length", "give a number of bytes, or leave it out"


def _survives(lifetime: Any) -> bool:
    return isinstance(lifetime, (Permanent, Momentary)) or bool(lifetime.outlives)
