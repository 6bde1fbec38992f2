"""Rows of sessions and revocation: 50 tasks, one Valkey, a thousand sessions with the fields of slides.

starsessions stores a session as JSON in its Redis store, on one redis-py client with a connection for every
task. For each request its middleware loads the session and, with rolling sessions, writes all of it back
with a new TTL; that is measured as "starsessions". Its store alone, which only reads and writes the bytes,
is measured beside it. redis-py-kit has a hash for each session; its `get` and `refresh` are two round trips.
Ours is measured as JSON, like theirs, and as a hash. A revocation check covers a
token's id, its user and its family; none of them is revoked, as in nearly every request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import import_module
from itertools import cycle
from typing import Any

import msgspec

from benchmarks import peers
from benchmarks.load import Tasks
from benchmarks.rows import Opener, Round, Row, Times
from benchmarks.servers import Servers
from ephemera.keyspace import Catalogue, connect, sliding
from ephemera.patterns.revocation import Revocation, TokenKind
from ephemera.patterns.sessions import Sessions

_TASKS = 50
_SESSIONS = 1000
_DAY = 86_400  # seconds


class Session(msgspec.Struct):
    """What the slides system keeps of who is signed in."""

    user_id: str
    organization_id: str = "018e9a1f-b3c2-7654-9abc-def012345680"
    role: str = "editor"
    email: str = "anna@example.org"
    plan: str = "team"
    created_at: str = "2026-03-01T10:00:00Z"
    last_active: str = "2026-03-01T14:32:00Z"
    ip: str = "95.24.128.55"


CATALOGUE = Catalogue("bench-sessions")
HASHES = Sessions(CATALOGUE, "session:{session_id}", Session, user="user_id", lifetime=sliding(seconds=_DAY))
JSON = Sessions(
    CATALOGUE,
    "json:session:{session_id}",
    Session,
    user="user_id",
    index="json:user_sessions:{user_id}",
    lifetime=sliding(seconds=_DAY),
    kind="value",
)
REVOKED = Revocation(
    CATALOGUE,
    tokens={"access": TokenKind("blacklist:access:{jti}", lifetime=timedelta(minutes=15), when_down="local")},
)


def _user(number: int) -> str:
    return f"018e9a1f-b3c2-7654-9abc-{number:012x}"


_TOKEN, _FAMILY = "7f3d9a1b-2c8e-4f5a-9b1d", "9b1d6e8c-7a3f"
_MARKS = (f"blacklist:access:{_TOKEN}", f"revoked:user:{_user(7)}", f"revoked:family:{_FAMILY}")


def our_sessions(declared: Sessions[Session]) -> Opener:
    """Our sessions, read by their tokens."""

    @asynccontextmanager
    async def opened(servers: Servers) -> AsyncIterator[Round]:
        async with connect(servers.valkey.url, CATALOGUE) as store:
            sessions = store[declared]
            tokens = [await sessions.create(Session(_user(number))) for number in range(_SESSIONS)]
            if await sessions.get(tokens[7]) != Session(_user(7)):
                raise RuntimeError("the session that was read is not the one that was stored")
            turns = cycle(tokens)

            async def work(count: int) -> None:
                for _ in range(count):
                    await sessions.get(next(turns))

            yield Tasks(_TASKS, work)

    return opened


@asynccontextmanager
async def starsessions_handler(servers: Servers) -> AsyncIterator[Round]:
    """The load and save of starsessions, as its middleware calls them for every request."""
    async with starsessions(servers) as (store, ids):
        handling = import_module("starsessions.session").SessionHandler
        connection = import_module("starlette.requests").HTTPConnection
        serializer = import_module("starsessions").JsonSerializer()
        turns = cycle(ids)

        async def work(count: int) -> None:
            for _ in range(count):
                scope = {"type": "http", "headers": []}
                handler = handling(connection(scope), next(turns), store, serializer, _DAY)
                await handler.load()
                await handler.save(_DAY)

        yield Tasks(_TASKS, work)


@asynccontextmanager
async def starsessions_store(servers: Servers) -> AsyncIterator[Round]:
    """The store of starsessions alone: the bytes read and written back."""
    async with starsessions(servers) as (store, ids):
        turns = cycle(ids)

        async def work(count: int) -> None:
            for _ in range(count):
                session_id = next(turns)
                data = await store.read(session_id, _DAY)
                await store.write(session_id, data, _DAY, _DAY)

        yield Tasks(_TASKS, work)


@asynccontextmanager
async def starsessions(servers: Servers) -> AsyncIterator[tuple[Any, list[str]]]:
    """The store of starsessions, and the ids of the sessions in it."""
    module = import_module("starsessions.stores.redis")
    async with peers.redis_py_untimed(servers.valkey) as client:
        store = module.RedisStore(connection=client)
        ids = [f"{number:032x}" for number in range(_SESSIONS)]
        for number, session_id in enumerate(ids):
            data = msgspec.json.encode(Session(_user(number)))
            await store.write(session_id, data, _DAY, _DAY)
        yield store, ids


@asynccontextmanager
async def kit_sessions(servers: Servers) -> AsyncIterator[Round]:
    """The sessions of redis-py-kit, read and extended."""
    async with peers.redis_py_untimed(servers.valkey) as client:
        sessions = import_module("redis_kit").AsyncSessionManager(client, ttl=_DAY)
        data = [msgspec.to_builtins(Session(_user(number))) for number in range(_SESSIONS)]
        turns = cycle([await sessions.create(each) for each in data])

        async def work(count: int) -> None:
            for _ in range(count):
                session_id = next(turns)
                await sessions.get(session_id)
                await sessions.refresh(session_id)

        yield Tasks(_TASKS, work)


@asynccontextmanager
async def our_check(servers: Servers) -> AsyncIterator[Round]:
    """Our check of a token, its user and its family."""
    async with connect(servers.valkey.url, CATALOGUE) as store:
        revoked = store[REVOKED]
        await revoked.revoke_user("another user")
        if not (
            await revoked.check("access", jti="x", user="another user", issued_at=1.0, family="f")
        ).revoked:
            raise RuntimeError("what was revoked is taken for valid")
        user = _user(7)

        async def work(count: int) -> None:
            for _ in range(count):
                await revoked.check("access", jti=_TOKEN, user=user, issued_at=1e9, family=_FAMILY)

        yield Tasks(_TASKS, work)


@asynccontextmanager
async def three_exists(servers: Servers) -> AsyncIterator[Round]:
    """Three EXISTS, one after the other, as code that has three checks makes them."""
    async with peers.redis_py_untimed(servers.valkey) as client:

        async def work(count: int) -> None:
            for _ in range(count):
                for key in _MARKS:
                    await client.exists(key)

        yield Tasks(_TASKS, work)


@asynccontextmanager
async def pipelined_exists(servers: Servers) -> AsyncIterator[Round]:
    """The same three in one pipeline."""
    async with peers.redis_py_untimed(servers.valkey) as client:

        async def work(count: int) -> None:
            for _ in range(count):
                async with client.pipeline(transaction=False) as pipe:
                    for key in _MARKS:
                        pipe.exists(key)
                    await pipe.execute()

        yield Tasks(_TASKS, work)


_THEIRS = {
    "starsessions": starsessions_handler,
    "its store alone": starsessions_store,
    "redis-py-kit": kit_sessions,
}

ROWS = (
    Row("sessions: read and slide, JSON", our_sessions(JSON), _THEIRS, (Times(6, "starsessions"),)),
    Row("sessions: read and slide, hash", our_sessions(HASHES), _THEIRS, (Times(6, "starsessions"),)),
    Row(
        "revocation: token, user and family",
        our_check,
        {"redis-py": three_exists, "redis-py pipelined": pipelined_exists},
        (Times(4, "redis-py"),),
    ),
)
