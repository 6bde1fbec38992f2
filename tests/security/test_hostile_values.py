"""Hostile numbers, times, texts and sizes in the keys of every pattern: a miss, or an error of ours.

`make fuzz` draws such cases at random; here are the ones that once were exceptions, in all keys at once.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from ephemera import Store
from ephemera.embedded import Valkey
from tests.fuzz.pattern_operations import CACHED, OPERATIONS, Note, forget_tokens, opened

pytestmark = pytest.mark.standalone("it overwrites the keys of one server")

_BOMB = gzip.compress(b"0" * 200_000_000, 9)
_FORMATS: tuple[Any, ...] = (msgspec.json, msgspec.msgpack)


def _whole(content: bytes) -> Callable[[bytes], bytes]:
    """Replaces a value as a whole."""
    return lambda _: content


def _inside(**by_type: Any) -> Callable[[bytes], bytes]:
    """Replaces the numbers, texts or bytes inside of a value, and leaves its form as it is."""

    def replaced(value: Any) -> Any:
        if isinstance(value, list):
            return [replaced(each) for each in value]
        if isinstance(value, dict):
            return {name: replaced(each) for name, each in value.items()}
        return by_type.get(type(value).__name__, value)

    def change(content: bytes) -> bytes:
        for form in _FORMATS:
            try:
                found = form.decode(content)
            except ValueError:
                continue
            if isinstance(found, list) and len(found) == 2:  # the name of the layout stays
                return bytes(form.encode([found[0], replaced(found[1])]))
            return bytes(form.encode(replaced(found)))
        return content

    return change


HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "digits": _whole(b"9" * 5000),
    "no number": _whole(b"1e300"),
    "a late time": _whole(b"9" * 18),
    "no text": _whole(b"\xff\xfe"),
    "depth": _whole(b"[" * 100_000),
    "numbers inside": _inside(int=2**63 - 1),
    "lines inside": _inside(str="a\r\nset-cookie: b", bytes=b"a\r\nset-cookie: b"),
    "bombs inside": _inside(bool=True, bytes=_BOMB),
}


@pytest.mark.parametrize("pattern", OPERATIONS)
async def test_hostile_values_are_misses_or_errors_of_ours(server: Valkey, pattern: str) -> None:
    """Whatever all keys of a pattern hold, its operations raise nothing but an `EphemeraError`."""
    operate = OPERATIONS[pattern]
    async with opened(server.url) as store:
        for what, change in HOSTILE.items():
            await store.call("FLUSHDB")
            forget_tokens()
            await operate(store)
            changed = [await _overwrite(store, key, change) for key in await store.call("KEYS", "*")]
            assert changed, "the operations leave no keys"
            async with opened(server.url) as another:
                try:
                    await operate(another)
                except Exception as problem:
                    problem.add_note(f"{pattern}: {what} in {changed}")
                    raise


async def _load_note(**fields: str) -> Note:
    return Note(fields["id"])


@pytest.mark.parametrize("token", [b"\xff\xfe", b"x" * 100])
async def test_a_load_token_without_a_lease_prevents_no_load(server: Valkey, token: bytes) -> None:
    """What another program wrote in place of a load's token has no TTL, and the value is loaded."""
    async with opened(server.url) as store:
        await store.call("SET", "loading:fuzz:cache:{new}", token)
        assert await store[CACHED].get_or_load(_load_note, id="new") == Note("new")


async def _overwrite(store: Store, key: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Change everything that a key holds, and keep its Redis type; a key may have expired in the meantime."""
    kind = await store.call("TYPE", key)
    if kind == b"string":
        await store.call("SET", key, change(await store.call("GET", key) or b""), "XX", "KEEPTTL")
    elif kind == b"hash":
        for name, value in (await store.call("HGETALL", key)).items():
            if name != b"_v":
                await store.call("HSET", key, name, change(value))
    elif kind == b"zset":
        for member, score in await store.call("ZRANGE", key, 0, -1, "WITHSCORES"):
            await store.call(
                "ZADD", key, _score(change, score), member, _score(change, score), change(member)
            )
    elif kind == b"stream":
        for _, fields in await store.call("XRANGE", key, "-", "+"):
            flat = [part for name, value in _pairs(fields) for part in (name, change(value))]
            await store.call("XADD", key, "18446744073709551615-*", *flat)
    elif kind == b"list":
        values = await store.call("LRANGE", key, 0, -1)
        await store.call("RPUSH", key, *map(change, values))
    return key


def _score(change: Callable[[bytes], bytes], score: float) -> float:
    try:
        return float(change(b"%r" % score))
    except ValueError:
        return 1e300


def _pairs(flat: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)
