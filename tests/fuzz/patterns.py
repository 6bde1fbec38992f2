"""Corrupted keys of patterns: every one of their keys is altered, and they keep working.

Each pattern performs its usual operations, so that its keys exist. Then one of them is overwritten, and the
operations are repeated, by a process with a local cache and by one without. They may find less than before,
and may raise an error of ours; any other exception is a failure.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ephemera import Store
from tests.fuzz.pattern_operations import OPERATIONS, opened
from tests.fuzz.trials import Trial

_bytes = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [
            *(b"", b"0", b"-1", b"1e400", b"nan", b"null", b"{}", b"[]", b"\xff\xfe", b"9" * 30, b"1:2:3"),
            *(b"9" * 5000, b"9" * 18, b"1e300", b"[" * 10_000, b"a\r\nb: c"),
        ]
    ),
)
_damages = st.one_of(
    st.tuples(st.just("SET"), st.lists(_bytes, min_size=1, max_size=1)),
    st.tuples(st.sampled_from(["HSET", "XADD", "ZADD"]), st.lists(_bytes, min_size=2, max_size=6)),
    st.tuples(st.sampled_from(["SADD", "RPUSH"]), st.lists(_bytes, min_size=1, max_size=4)),
    st.tuples(st.sampled_from(["alter", "alter", "cut"]), st.lists(_bytes, min_size=1, max_size=3)),
)


class CorruptedKeys:
    """The patterns on one server, with corrupted keys."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def check(self, case: tuple[str, int, tuple[str, list[bytes]], int]) -> None:
        """Have a pattern create its keys, corrupt one, and use the pattern again."""
        name, which, (damage, words), at = case
        operate = OPERATIONS[name]
        async with opened(self._url) as store:
            await store.call("FLUSHDB")
            await operate(store)
            keys = sorted(await store.call("KEYS", "*"))
            if not keys:
                return
            key = keys[which % len(keys)]
            await self._damage(store, key, damage, words, at)
            await operate(store)
            async with opened(self._url) as another:
                await operate(another)

    async def _damage(self, store: Store, key: bytes, damage: str, words: list[bytes], at: int) -> None:
        kind = await store.call("TYPE", key)
        if damage in ("alter", "cut"):
            return await self._alter(store, key, kind, words, at, cut=damage == "cut")
        await store.call("DEL", key)
        given: list[Any] = list(words)
        if damage in ("HSET", "XADD", "ZADD"):
            given = given[: len(given) // 2 * 2]
        if damage == "ZADD":
            given = [part for n, word in enumerate(given[::2]) for part in (n * 1.5, word)]
        if damage == "XADD":
            given.insert(0, "*")
        await store.call(damage, key, *given)
        return None

    async def _alter(
        self, store: Store, key: bytes, kind: bytes, words: list[bytes], at: int, *, cut: bool
    ) -> None:
        """Change a value inside a key and keep its Redis type."""
        if kind == b"string":
            data = await store.call("GET", key)
            at %= len(data) + 1
            await store.call(
                "SET", key, data[:at] if cut else data[:at] + words[0] + data[at + 1 :], "KEEPTTL"
            )
        elif kind == b"hash":
            names = sorted(await store.call("HKEYS", key))
            name = names[at % len(names)]
            await (store.call("HDEL", key, name) if cut else store.call("HSET", key, name, words[0]))
        elif kind == b"zset":
            await store.call("ZADD", key, float(at), words[0])
        elif kind == b"set":
            await store.call("SADD", key, *words)
        elif kind == b"list":
            await store.call("LPUSH", key, *words)
        else:
            await store.call("XADD", key, "*", words[0], words[-1])


def damaged_keys(url: str) -> Trial:
    """The trial, on a server."""
    return Trial(
        "keys of patterns",
        "Whatever becomes of a pattern's key, its operations succeed, miss, or raise an error of ours.",
        st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 30), _damages, st.integers(0, 300)),
        CorruptedKeys(url).check,
        batch=40,
    )
