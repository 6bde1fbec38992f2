"""Corrupted keys of patterns: every one of their keys is altered, and they keep working.

Each pattern performs its usual operations, so that its keys exist. Then one of them is overwritten, and the
operations are repeated, by a process with a local cache and by one without. They may find less than before,
and may raise an error of ours; any other exception is a failure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
from hypothesis import strategies as st

from ephemera import Catalogue, Store, connect, fixed
from ephemera.errors import EphemeraError
from ephemera.patterns.cache import Cache, LocalCache
from ephemera.patterns.entitlements import Entitlements
from ephemera.patterns.events import Events
from ephemera.patterns.fanout import Fanout
from ephemera.patterns.locks import Locks
from ephemera.patterns.preferences import Preferences
from ephemera.patterns.revocation import Revocation, TokenKind
from tests.fuzz.trials import Trial
from tests.patterns import limit_fixtures, progress_fixtures, session_fixtures
from tests.patterns.league_site import League, Source
from tests.patterns.limit_fixtures import LIMITS
from tests.patterns.progress_fixtures import PROGRESS, Done, JobDatabase, SlideDone
from tests.patterns.session_fixtures import FIXED, SLIDING, Session, SignIn


class Note(msgspec.Struct):
    """Something to keep, with settings to merge."""

    text: str = "x"
    size: int = 14


_catalogue = Catalogue("fuzz-patterns")
_CACHE = Cache(
    _catalogue,
    "fuzz:cache:{id}",
    Note,
    fresh=timedelta(minutes=5),
    stale=timedelta(hours=1),
    missing=timedelta(seconds=30),
    local=LocalCache(max_entries=100),
    tags=lambda note, id: (f"tag-{note.size}",),
    purpose="fuzzing",
)
_LOCKS = Locks(_catalogue, "fuzz:lock:{id}", lease=timedelta(seconds=5), purpose="fuzzing")
_NOTES = Fanout(_catalogue, "fuzz:connections:{id}", Note, channel="fuzz:channel")
_PREFERENCES = Preferences(_catalogue, "fuzz:preferences:{id}", Note)
_PLANS = Entitlements(_catalogue, "fuzz:plan:{id}", Note, lifetime=fixed(seconds=300))
_REVOKED = Revocation(
    _catalogue, tokens={"access": TokenKind("fuzz:blacklist:{jti}", lifetime=timedelta(minutes=15))}
)
_EVENTS: Events[Note] = Events(_catalogue, "fuzz:events", Note, purpose="fuzzing")
_LEAGUE = League("fuzz-league")
_CATALOGUES = (
    _catalogue,
    session_fixtures.CATALOGUE,
    limit_fixtures.CATALOGUE,
    progress_fixtures.CATALOGUE,
    _LEAGUE.catalogue,
)


async def _load() -> Note:
    return Note("loaded")


async def _sessions(store: Store) -> None:
    for sessions, session in ((SLIDING, Session("ann")), (FIXED, SignIn(user_id=7))):
        bound: Any = store[sessions]
        user = "ann" if sessions is SLIDING else "7"
        with suppress(EphemeraError):
            token = await bound.create(session)
            await bound.update(token, **({"role": "x"} if sessions is SLIDING else {"note": "x"}))
            await bound.get(token)
            token = await bound.rotate(token) or token
            await bound.get(token)
        await _each(partial(bound.of_user, user), partial(bound.begin_sign_in, user))


async def _limits(store: Store) -> None:
    limits = store[LIMITS]
    rules = [
        limit_fixtures.WINDOW,
        limit_fixtures.LOG,
        limit_fixtures.BUCKET,
        limit_fixtures.CROWD,
        limit_fixtures.FLOW,
    ]
    for rule in rules:
        await _each(partial(limits.check, rule.on("ann")))
    await _each(lambda: limits.check(*(rule.on("bob") for rule in rules)))


async def _caches(store: Store) -> None:
    async def loader(id: str) -> Note | None:  # noqa: A002 - the field's name
        return Note(id) if id != "none" else None

    cache: Any = store[_CACHE]
    for name in ("a", "none"):
        await _each(
            partial(cache.get_or_load, loader, id=name),
            partial(cache.get, id=name),
        )
    await _each(lambda: cache.invalidate_tag("tag-14"), lambda: cache.delete(id="a"))
    await _each(lambda: cache.get_or_load(loader, id="a"))


async def _locks(store: Store) -> None:
    locks = store[_LOCKS]

    async def hold() -> None:
        async with locks.hold(id="a", timeout=0.05):
            pass

    async def try_hold() -> None:
        async with locks.try_hold(id="a"):
            pass

    await _each(hold, try_hold)


async def _progress(store: Store) -> None:
    progress = store[PROGRESS]
    await _each(
        lambda: progress.append(SlideDone(1), job_id="j"),
        lambda: progress.append(Done(1), job_id="j"),
    )
    for after in (None, "0-1", "99999999999999-1"):

        async def listen(after: str | None = after) -> None:
            async with progress.listen(job_id="j", after=after, snapshot=JobDatabase().snapshot) as updates:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        async for _ in updates:
                            pass

        await _each(listen)


async def _smaller(store: Store) -> None:
    preferences, plans, revoked, notes = store[_PREFERENCES], store[_PLANS], store[_REVOKED], store[_NOTES]
    await _each(
        lambda: preferences.merge({"size": 18}, id="a"),
        lambda: preferences.get(id="a"),
        lambda: plans.get(lambda id: _load(), id="a"),
        lambda: plans.get(lambda id: _load(), id="a"),
        lambda: plans.invalidate(id="a"),
        lambda: revoked.revoke_token("access", "t", until=time.time() + 900),
        lambda: revoked.revoke_user("ann"),
        lambda: revoked.check("access", jti="t", user="ann", issued_at=time.time(), family="f"),
        lambda: store[_EVENTS].publish(Note("event")),
        lambda: notes.connections(id="a"),
    )

    async def connected() -> None:
        async with notes.connect(id="a"):
            await notes.push(Note("push"), id="a")
            await notes.connections(id="a")

    await _each(connected)


async def _pages(store: Store) -> None:
    live, table, mine = store[_LEAGUE.live], store[_LEAGUE.table], store[_LEAGUE.picks]
    await _each(
        table.page,
        lambda: live.page(match_id="1"),
        lambda: live.page(match_id="2000"),
        lambda: mine.page(user_id="ann"),
        lambda: store[_LEAGUE.windows].now(),
    )


async def _each(*operations: Callable[[], Awaitable[Any]]) -> None:
    """Run all operations; an `EphemeraError` is acceptable."""
    for operation in operations:
        with suppress(EphemeraError):
            await operation()


_OPERATIONS = {
    "sessions": _sessions,
    "limits": _limits,
    "caches": _caches,
    "locks": _locks,
    "progress": _progress,
    "smaller patterns": _smaller,
    "pages": _pages,
}
_bytes = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [b"", b"0", b"-1", b"1e400", b"nan", b"null", b"{}", b"[]", b"\xff\xfe", b"9" * 30, b"1:2:3"]
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
        operate = _OPERATIONS[name]
        async with connect(self._url, *_CATALOGUES, resources=_LEAGUE.resources(Source(1))) as store:
            await store.call("FLUSHDB")
            await operate(store)
            keys = sorted(await store.call("KEYS", "*"))
            if not keys:
                return
            key = keys[which % len(keys)]
            await self._damage(store, key, damage, words, at)
            await operate(store)
            async with connect(self._url, *_CATALOGUES, resources=_LEAGUE.resources(Source(1))) as another:
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
        st.tuples(st.sampled_from(sorted(_OPERATIONS)), st.integers(0, 30), _damages, st.integers(0, 300)),
        CorruptedKeys(url).check,
        batch=40,
    )
