"""Values: whatever a key holds, reading it returns a value of its type or None, at a bounded cost."""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import zstandard
from hypothesis import strategies as st

from ephemera import embedded
from ephemera.errors import ServerError, UndecodableItems
from ephemera.keyspace import Catalogue, Store, bare_codec, choose_codec, connect, fixed, sliding
from tests.fuzz.patterns import damaged_keys
from tests.fuzz.trials import Area, Trial


class Card(msgspec.Struct):
    """What a service might keep."""

    name: str
    number: int = 0
    tags: list[str] = []
    since: datetime | None = None


class Other(msgspec.Struct):
    """Something else, with fields of the same names."""

    name: str
    number: float = 0.0
    tags: list[bytes] = []


_TYPES: dict[str, tuple[Any, Any]] = {
    "card": (Card, Card("ann", 7, ["a", "b"], datetime(2024, 5, 1, tzinfo=UTC))),
    "other": (Other, Other("ann", 7.5, [b"x"])),
    "numbers": (list[int], list(range(40))),
    "mapping": (dict[str, list[float]], {"a": [1.5, 2.0], "b": []}),
    "text": (str, "Ω text, long enough to be worth compressing" * 3),
    "bytes": (bytes, b"\x00\xff" * 50),
    "number": (int, -12),
    "ratio": (float, 1.5),
    "truth": (bool, True),
    "choice": (Card | list[int], Card("bob")),
}
_FORMS = ("json", "msgpack", "zjson", "zmsgpack", "plain", "bare")


def _codec(kind: str, form: str) -> Any:
    value_type = _TYPES[kind][0]
    if form == "bare":
        return bare_codec("fuzz:{id}", value_type)
    if form == "plain":
        return choose_codec("fuzz:{id}", value_type)
    name: Any = form.removeprefix("z")
    return choose_codec("fuzz:{id}", value_type, name, 10 if form.startswith("z") else None)


_CODECS = {(kind, form): _codec(kind, form) for kind in _TYPES for form in _FORMS}
_SAMPLES = {place: codec.encode(_TYPES[place[0]][1]) for place, codec in _CODECS.items()}
_places = st.sampled_from(sorted(_CODECS))
_edits = st.lists(
    st.tuples(
        st.sampled_from(["cut", "flip", "insert", "double", "lead"]),
        st.integers(0, 400),
        st.binary(max_size=6),
    ),
    max_size=4,
)


def _edited(data: bytes, edits: list[tuple[str, int, bytes]]) -> bytes:
    for edit, at, more in edits:
        at %= len(data) + 1
        if edit == "cut":
            data = data[:at]
        elif edit == "flip":
            data = data[:at] + more + data[at + len(more) :]
        elif edit == "insert":
            data = data[:at] + more + data[at:]
        elif edit == "double":
            data += data[at:]
        else:
            data = more + data
    return data


def _no_other_type(case: tuple[tuple[str, str], tuple[str, str], list[tuple[str, int, bytes]]]) -> None:
    """What one codec wrote, perhaps damaged, is read by another."""
    written, reading, edits = case
    data = _edited(_SAMPLES[written], edits)
    _is_one_or_none(reading, data)


def _is_one_or_none(place: tuple[str, str], data: bytes) -> None:
    codec = _CODECS[place]
    value = codec.decode(data)
    if value is not None:
        again = codec.decode(codec.encode(value))  # encode refuses what is not of the type
        assert again == value or repr(again) == repr(value)  # a NaN is not itself


def _any_bytes(case: tuple[tuple[str, str], bytes]) -> None:
    _is_one_or_none(*case)


def _frame(case: tuple[str, int, bool, list[tuple[str, int, bytes]]]) -> bytes:
    """A zstd frame of much, perhaps within another, perhaps damaged."""
    fill, size, sized, edits = case
    compressor = zstandard.ZstdCompressor(write_content_size=sized)
    inner = compressor.compress(fill.encode() * size)
    return _edited(compressor.compress(inner) if size % 2 else inner, edits)


def _bounded(case: tuple[str, int, bool, list[tuple[str, int, bytes]]]) -> None:
    data = _frame(case)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for place in (("text", "zjson"), ("bytes", "zmsgpack"), ("card", "zmsgpack")):
        _is_one_or_none(place, data)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    assert grown < 400, f"{len(data)} bytes took {grown} MB"


_catalogue = Catalogue("fuzz-values")
_LIFE: Any = {"lifetime": fixed(minutes=5), "purpose": "fuzzing"}
_HELD = {
    "value": _catalogue.value("fuzz:value:{id}", Card, **_LIFE),
    "packed": _catalogue.value("fuzz:packed:{id}", Card, codec="msgpack", compress_over=50, **_LIFE),
    "sliding": _catalogue.value("fuzz:sliding:{id}", Card, lifetime=sliding(minutes=5), purpose="fuzzing"),
    "hash": _catalogue.hash("fuzz:hash:{id}", Card, **_LIFE),
    "mapping": _catalogue.mapping("fuzz:mapping:{id}", int, **_LIFE),
    "lists": _catalogue.mapping("fuzz:lists:{id}", list[int], **_LIFE),
    "set": _catalogue.set("fuzz:set:{id}", int, **_LIFE),
    "sorted_set": _catalogue.sorted_set("fuzz:sorted:{id}", int, **_LIFE),
    "list": _catalogue.list("fuzz:list:{id}", Card, **_LIFE),
    "stream": _catalogue.stream("fuzz:stream:{id}", Card, **_LIFE),
    "entries": _catalogue.stream("fuzz:entries:{id}", list[int], codec="json", **_LIFE),
    "counter": _catalogue.counter("fuzz:counter:{id}", **_LIFE),
    "flag": _catalogue.flag("fuzz:flag:{id}", **_LIFE),
}
_words = st.one_of(
    st.sampled_from([b"name", b"number", b"tags", b"since", b"_v", b"value", b"v", b"x", b""]),
    st.sampled_from(
        [b"ann", b"7", b"-0", b"1e5", b"null", b"[]", b'["x"]', b"99999999999999999999", b" 7", b"\xff"]
    ),
    st.sampled_from(sorted(set(_SAMPLES.values()))),
    st.binary(max_size=12),
)
_planted = st.one_of(
    st.tuples(st.just("SET"), st.lists(_words, min_size=1, max_size=1)),
    st.tuples(st.sampled_from(["HSET", "XADD", "ZADD"]), st.lists(_words, min_size=2, max_size=8)),
    st.tuples(st.sampled_from(["SADD", "RPUSH"]), st.lists(_words, min_size=1, max_size=5)),
)


class _OnServer:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def check(self, case: tuple[str, tuple[str, list[bytes]], bool]) -> None:
        """Put something under a key past its space, then read the key by it."""
        kind, (command, words), ours_first = case
        space: Any = _HELD[kind]
        live: Any = self._store[space]
        await self._store.call("FLUSHDB")
        key = space.key(id="x")
        if ours_first:
            await self._write(kind, live)
        await self._plant(command, key, words)
        try:
            await self._read(kind, live)
        except ServerError as error:
            # Another kind of Redis' own, or no number where Redis itself adds: it says so, with the key.
            assert error.code in ("WRONGTYPE", "ERR"), error
            assert error.key == key or error.command in ("EVALSHA", "EVAL"), error
        except UndecodableItems:
            assert kind == "list"

    async def _plant(self, command: str, key: str, words: list[bytes]) -> None:
        given: list[Any] = list(words)
        if command in ("HSET", "XADD", "ZADD"):
            given = given[: len(given) // 2 * 2]
        if command == "ZADD":
            given = [part for n, word in enumerate(given[::2]) for part in (n * 1.5, word)]
        if command == "XADD":
            given.insert(0, "*")
        try:
            await self._store.call(command, key, *given)
        except ServerError as error:
            assert error.code == "WRONGTYPE"

    async def _write(self, kind: str, live: Any) -> None:
        card = Card("ours", 1)
        if kind in ("value", "packed", "sliding", "hash"):
            await live.put(card, id="x")
        elif kind in ("mapping", "lists"):
            await live.set({"ours": 1 if kind == "mapping" else [1]}, id="x")
        elif kind == "set":
            await live.add(1, id="x")
        elif kind == "sorted_set":
            await live.add({1: 1.0}, id="x")
        elif kind == "list":
            await live.push(card, id="x")
        elif kind in ("stream", "entries"):
            await live.append(card if kind == "stream" else [1], id="x")
        elif kind == "counter":
            await live.add(1, id="x")
        else:
            await live.set(id="x")

    async def _read(self, kind: str, live: Any) -> None:
        """Read all there is, and see that it is of the declared type."""
        found = await _READS[kind](live)
        assert all(_IS[kind](each) for each in found), found


async def _read_values(live: Any) -> list[Any]:
    found = [await live.get(id="x"), *await live.get_many([{"id": "x"}])]
    return [each for each in found if each is not None]


async def _read_mapping(live: Any) -> list[Any]:
    await live.get_some(["name", "x"], id="x")
    found = await live.get_all(id="x")
    assert all(isinstance(name, str) for name in found)
    return list(found.values())


async def _read_members(live: Any) -> list[Any]:
    return list(await live.members(id="x"))


async def _read_ranked(live: Any) -> list[Any]:
    return [member for member, _ in await live.range(0, -1, id="x")]


async def _read_list(live: Any) -> list[Any]:
    return [*await live.range(id="x"), *await live.pop_many(3, id="x")]


async def _read_entries(live: Any) -> list[Any]:
    return [entry for _, entry in await live.range(id="x")]


async def _read_counter(live: Any) -> list[Any]:
    return [await live.get(id="x")]


async def _read_flag(live: Any) -> list[Any]:
    return [await live.is_set(id="x")]


def _is_card(found: Any) -> bool:
    return bool(msgspec.convert(msgspec.to_builtins(found), Card) == found)


def _is_a(expected: type) -> Any:
    return lambda found: type(found) is expected


_READS: dict[str, Any] = {
    **dict.fromkeys(("value", "packed", "sliding", "hash"), _read_values),
    **dict.fromkeys(("mapping", "lists"), _read_mapping),
    **dict.fromkeys(("stream", "entries"), _read_entries),
    "set": _read_members,
    "sorted_set": _read_ranked,
    "list": _read_list,
    "counter": _read_counter,
    "flag": _read_flag,
}
_IS: dict[str, Any] = {
    **dict.fromkeys(("value", "packed", "sliding", "hash", "list", "stream"), _is_card),
    **dict.fromkeys(("mapping", "set", "sorted_set", "counter"), _is_a(int)),
    **dict.fromkeys(("lists", "entries"), _is_a(list)),
    "flag": _is_a(bool),
}


@asynccontextmanager
async def _opened(_: Path) -> AsyncIterator[list[Trial]]:
    with embedded.valkey() as server:
        async with connect(server.url, _catalogue) as store:
            yield [
                Trial(
                    "no other type",
                    "What one type wrote, whole or damaged, is never read as another type's value.",
                    st.tuples(_places, _places, _edits),
                    _no_other_type,
                    batch=300,
                ),
                Trial(
                    "any bytes",
                    "Arbitrary bytes decode to a value of the type, or to none, without an exception.",
                    st.tuples(_places, st.one_of(st.binary(max_size=60), _words)),
                    _any_bytes,
                    batch=300,
                ),
                Trial(
                    "bombs",
                    "Frames that would grow to gigabytes, in frames, or broken, cost a bounded sum.",
                    st.tuples(
                        st.sampled_from(["a", "[", '["', "\x00"]),
                        st.sampled_from([0, 1, 2, 1000, 100_001, 5_000_000, 80_000_000, 150_000_001]),
                        st.booleans(),
                        _edits,
                    ),
                    _bounded,
                    batch=10,
                ),
                Trial(
                    "on a server",
                    "Whatever another program left under a key, its space gives misses, or an error that "
                    "names the key when it is another kind of Redis' own.",
                    st.tuples(st.sampled_from(sorted(_HELD)), _planted, st.booleans()),
                    _OnServer(store).check,
                ),
                damaged_keys(server.url),
            ]


VALUES = Area("values", _opened)
