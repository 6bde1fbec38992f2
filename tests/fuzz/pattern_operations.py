"""What patterns do with their keys: every write that makes them, and every read, as programs call them.

An operation may raise an error of ours, since its keys may hold anything; any other exception is a failure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration

from ephemera import Catalogue, Store, connect, fixed
from ephemera.adapters.langchain import ByteValues, ChatHistories, LLMCache
from ephemera.adapters.langgraph import GraphMemories
from ephemera.errors import EphemeraError
from ephemera.operations.inspect import (
    RevocationFinder,
    UserFinder,
    backlog,
    limit_status,
    list_sessions,
    read_locks,
    throttled_subjects,
    tokens_revoked_until,
)
from ephemera.patterns.cache import Cache, LocalCache
from ephemera.patterns.entitlements import Entitlements
from ephemera.patterns.events import Events
from ephemera.patterns.fanout import Fanout
from ephemera.patterns.locks import Locks, ReadWriteLocks, Semaphores
from ephemera.patterns.preferences import Preferences
from ephemera.patterns.revocation import Revocation, TokenKind
from ephemera.patterns.semantic_cache import SemanticBackend
from ephemera.patterns.write_behind import Applied, Batch, Flusher
from ephemera.web import ResourceApp
from tests.adapters import graph_fixtures
from tests.fuzz.asgi_request import request
from tests.patterns import (
    limit_fixtures,
    outline_cache,
    progress_fixtures,
    session_fixtures,
    usage_fixtures,
    write_behind_fixtures,
)
from tests.patterns.league_site import League, Source
from tests.patterns.limit_fixtures import LIMITS
from tests.patterns.progress_fixtures import PROGRESS, Done, JobDatabase, SlideDone
from tests.patterns.session_fixtures import FIXED, SLIDING, Session, SignIn


class Note(msgspec.Struct):
    """Something to keep, with settings to merge."""

    text: str = "x"
    size: int = 14


_catalogue = Catalogue("fuzz-patterns")
CACHED = Cache(
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
_POOL = Semaphores(_catalogue, "fuzz:pool:{id}", permits=2, lease=timedelta(seconds=5), purpose="fuzzing")
_SHELF = ReadWriteLocks(_catalogue, "fuzz:shelf:{id}", lease=timedelta(seconds=5), purpose="fuzzing")
_NOTES = Fanout(_catalogue, "fuzz:connections:{id}", Note, channel="fuzz:channel")
_PREFERENCES = Preferences(_catalogue, "fuzz:preferences:{id}", Note)
_PLANS = Entitlements(_catalogue, "fuzz:plan:{id}", Note, lifetime=fixed(seconds=300))
_REVOKED = Revocation(
    _catalogue, tokens={"access": TokenKind("fuzz:blacklist:{jti}", lifetime=timedelta(minutes=15))}
)
_EVENTS: Events[Note] = Events(_catalogue, "fuzz:events", Note, purpose="fuzzing")
_MEMORIES = GraphMemories(_catalogue, "fuzz:memory:{namespace}", lifetime=fixed(seconds=300))
_MODEL_ANSWERS = LLMCache(_catalogue, "fuzz:llm:{hash}", lifetime=fixed(seconds=300))
_VALUES = ByteValues(_catalogue, "fuzz:bytes:{key}", lifetime=fixed(seconds=300), purpose="fuzzing")
_CHATS = ChatHistories(_catalogue, "fuzz:chat:{session_id}", lifetime=fixed(seconds=300))
_LEAGUE = League("fuzz-league")
_CATALOGUES = (
    _catalogue,
    session_fixtures.CATALOGUE,
    limit_fixtures.CATALOGUE,
    progress_fixtures.CATALOGUE,
    write_behind_fixtures.CATALOGUE,
    usage_fixtures.CATALOGUE,
    outline_cache.CATALOGUE,
    graph_fixtures.CATALOGUE,
    _LEAGUE.catalogue,
)
_tokens: dict[Any, str] = {}
"""The last token of each kind of session, so that a later call reads a session that was altered."""


class _Sink:
    """A database that accepts every batch, and has no totals."""

    async def apply(self, batch: Batch) -> Applied:
        return Applied()

    async def write(self, columns: tuple[str, ...], rows: Any, ids: Sequence[str] = ()) -> bool:
        return True

    async def totals(self, shard: int, key: Any) -> tuple[str, int, dict[str, int]]:
        return "", 0, dict.fromkeys(usage_fixtures.MEASURES, 0)


class _NoVectors:
    """Vectors that are never found: answers are looked up by their exact prompt."""

    async def search(self, *_: Any, **__: Any) -> list[Any]:
        return []

    def __getattr__(self, name: str) -> Any:
        return self.search


def forget_tokens() -> None:
    """Begin with new sessions."""
    _tokens.clear()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    """A store with everything that the operations need."""
    resources = {
        **_LEAGUE.resources(Source(1)),
        usage_fixtures.USAGE: _Sink(),
        _MEMORIES: {"dims": 1, "embed": lambda texts: [[1.0] for _ in texts]},
        outline_cache.OUTLINES: SemanticBackend(embedder=outline_cache.Compass(), vectors=_NoVectors()),
    }
    async with connect(url, *_CATALOGUES, resources=resources) as store:
        yield store


async def _load() -> Note:
    return Note("loaded")


async def _sessions(store: Store) -> None:
    for sessions, session in ((SLIDING, Session("ann")), (FIXED, SignIn(user_id=7))):
        bound: Any = store[sessions]
        user = "ann" if sessions is SLIDING else "7"
        if known := _tokens.get(sessions):
            await _each(partial(bound.get, known), partial(bound.peek, known), partial(bound.rotate, known))
            await _each(partial(bound.get_by_id, user, bound.id_of(known)))
        with suppress(EphemeraError):
            _tokens[sessions] = token = await bound.create(session)
            await bound.update(token, **({"role": "x"} if sessions is SLIDING else {"note": "x"}))
            await bound.get(token)
            token = await bound.rotate(token) or token
            await bound.get(token)
            _tokens[sessions] = token
        await _each(
            partial(bound.of_user, user),
            partial(bound.begin_sign_in, user),
            partial(list_sessions, store, sessions, user),
            UserFinder(store, sessions).search,
        )


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
    await _each(
        lambda: limits.check(*(rule.on("bob") for rule in rules)),
        lambda: limits.peek(*(rule.on("bob") for rule in rules)),
        lambda: limits.check(limit_fixtures.WINDOW.on("eve"), cost=5),
        lambda: limits.check(limit_fixtures.WINDOW.on("eve"), cost=5),
        lambda: throttled_subjects(store, LIMITS),
        lambda: limit_status(store, LIMITS, "bucket", ["ann"]),
    )
    with suppress(EphemeraError):
        decision = await limits.check(limit_fixtures.LOG.on("eve"))
        await _each(partial(limits.refund, decision), partial(limits.settle, decision, 2))


async def _caches(store: Store) -> None:
    async def loader(id: str) -> Note | None:  # noqa: A002 - the field's name
        return Note(id) if id != "none" else None

    cache: Any = store[CACHED]
    for name in ("a", "none"):
        await _each(
            partial(cache.get_or_load, loader, id=name),
            partial(cache.get, id=name),
        )
    await _each(lambda: cache.invalidate_tag("tag-14"), lambda: cache.delete(id="a"))
    await _each(lambda: cache.get_or_load(loader, id="a"))


async def _locks(store: Store) -> None:
    locks, pool, shelf = store[_LOCKS], store[_POOL], store[_SHELF]

    async def read() -> None:
        await locks.holder(id="a")
        for each in (_LOCKS, _POOL, _SHELF):
            states = await read_locks(store.client(each.keyspace.role), each, [each.keyspace.key(id="a")])
            msgspec.json.encode(states)
        msgspec.json.encode([*await pool.holders(id="a"), *await shelf.holders(id="a")])

    async def enter(block: Callable[..., Any], **options: Any) -> None:
        async with block(id="a", **options):
            await read()

    await _each(read)
    await _each(*(partial(enter, block, timeout=0.05) for block in (locks.hold, pool.hold, shelf.write)))
    await _each(*(partial(enter, block) for block in (locks.try_hold, pool.try_hold, shelf.try_read)))
    with suppress(EphemeraError):  # leaves a key whose lease has not ended
        await store.call("SET", _LOCKS.keyspace.key(id="a"), "owner name", "PX", 5000)


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
        lambda: revoked.now("ann"),
        lambda: tokens_revoked_until(store, _REVOKED, "ann"),
        RevocationFinder(store, _REVOKED).search,
        lambda: notes.connections(id="a"),
    )

    async def connected() -> None:
        async with notes.connect(id="a"):
            await notes.push(Note("push"), id="a")
            await notes.connections(id="a")

    await _each(connected)
    with suppress(EphemeraError):  # of a process that died
        await store.call("ZADD", _NOTES.keyspace.key(id="a"), (time.time() + 60) * 1000, "server:1")


async def _events(store: Store) -> None:
    events = store[_EVENTS]
    handled = asyncio.Event()

    async def fail(note: Note, delivery: Any) -> None:
        handled.set()
        raise LookupError(note.text)

    async def consume() -> None:
        async with events.consume("group", fail):
            await asyncio.wait_for(handled.wait(), 1)

    async def read() -> None:
        msgspec.json.encode([await events.info(), await events.dead_letters()])

    with suppress(TimeoutError):
        await _each(lambda: events.publish(Note("event")), consume)
    await _each(read, events.replay, events.trim, read)


async def _write_behind(store: Store) -> None:
    clicks, votes = store[write_behind_fixtures.CLICKS], store[write_behind_fixtures.VOTES]
    usage = store[usage_fixtures.USAGE]
    vote = write_behind_fixtures.Vote("ann", "1", "home")
    for bound in (clicks, votes):
        await _each(
            lambda: clicks.add(page="a", day="1", clicks=1),
            lambda: votes.append(vote, partition_key="a"),
            lambda: clicks.pending(page="a", day="1"),
            bound.backlog,
            bound.backlog_age,
            partial(backlog, store, bound.declared),
            Flusher(bound, _Sink(), write_delay=timedelta(0)).flush,
        )
    await _each(
        lambda: clicks.add(page="a", day="1", clicks=1),
        lambda: votes.append(vote, partition_key="a"),
        lambda: usage.record("acme", tokens=1),
        lambda: usage.totals("acme"),
        lambda: usage.reserve("acme", limits={"tokens": 1000}, tokens=1, reservation_id="r"),
        lambda: usage.totals("acme"),
    )


async def _answers(store: Store) -> None:
    outlines, model = store[outline_cache.OUTLINES], outline_cache.Model()
    scope = outline_cache.scope(organization="acme", documents=frozenset({"a"}))
    found = None
    with suppress(EphemeraError):
        found = await outlines.get_or_ask("one @0", scope, model)
        await outlines.get_or_ask("one @0", scope, model)
    await _each(
        partial(outlines.find, "one @0", scope),
        outlines.tally,
        partial(outlines.hits, found.id if found else "x"),
        outlines.sweep,
        partial(outlines.invalidate_source, "b"),
    )


async def _graphs(store: Store) -> None:
    saver, config = store[graph_fixtures.THREADS], graph_fixtures.config("thread")
    graph = graph_fixtures.chain(graph_fixtures.write_slide, steps=2).compile(checkpointer=saver)

    async def listed() -> None:
        [each async for each in saver.alist(config)]

    await _each(
        partial(saver.aget_tuple, config),
        partial(graph.ainvoke, {"topic": "light", "slides": []}, config),
        partial(graph.aget_state, config),
        listed,
    )


async def _memories(store: Store) -> None:
    memories = store[_MEMORIES]
    await _each(
        partial(memories.aget, ("a", "b"), "k"),
        partial(memories.asearch, (), query="light", filter={"n": {"$gt": 0}}),
        partial(memories.alist_namespaces, suffix=("b",)),
        partial(memories.aput, ("a", "b"), "k", {"n": 1}, ttl=1),
        partial(memories.asearch, ("a",)),
        partial(memories.adelete, ("a", "b"), "other"),
    )


async def _chains(store: Store) -> None:
    answers, values, chat = store[_MODEL_ANSWERS], store[_VALUES], store[_CHATS].history("ann")

    async def listed() -> None:
        [each async for each in values.ayield_keys()]

    await _each(
        partial(answers.alookup, "prompt", "model"),
        partial(answers.aupdate, "prompt", "model", [ChatGeneration(message=AIMessage("x"))]),
        partial(answers.alookup, "prompt", "model"),
        partial(values.amget, ["a"]),
        partial(values.amset, [("a", b"x")]),
        listed,
        chat.aget_messages,
        partial(chat.aadd_messages, [HumanMessage("x")]),
        chat.aget_messages,
    )


async def _pages(store: Store) -> None:
    live, table, mine = store[_LEAGUE.live], store[_LEAGUE.table], store[_LEAGUE.picks]
    await _each(
        table.page,
        lambda: live.page(match_id="1"),
        lambda: live.page(match_id="2000"),
        lambda: mine.page(user_id="ann"),
        lambda: live.head(live.render({"match_id": "1"})),
        partial(_responses, store, _LEAGUE.table),
        lambda: store[_LEAGUE.windows].now(),
        lambda: store[_LEAGUE.site].prewarm(),
        lambda: store[_LEAGUE.site].bump(_LEAGUE.table.at()),
    )


async def _responses(store: Store, resource: Any) -> None:
    """What a client gets: no exception, headers of one line each, and a body."""
    app = ResourceApp(resource, store=lambda scope: store)
    for headers in ([], [(b"accept-encoding", b"gzip")], [(b"if-none-match", b'"x"')]):
        answer = await request(app, "/", headers)
        assert answer.status in (200, 304, 503), answer
        assert all(b"\n" not in value and b"\r" not in value for _, value in answer.pairs), answer


async def _each(*operations: Callable[[], Awaitable[Any]]) -> None:
    """Run all operations; an `EphemeraError` is acceptable."""
    for operation in operations:
        with suppress(EphemeraError):
            await operation()


OPERATIONS: dict[str, Callable[[Store], Awaitable[None]]] = {
    "sessions": _sessions,
    "limits": _limits,
    "caches": _caches,
    "locks": _locks,
    "progress": _progress,
    "smaller patterns": _smaller,
    "events": _events,
    "write-behind": _write_behind,
    "answers": _answers,
    "graphs": _graphs,
    "memories": _memories,
    "chains": _chains,
    "pages": _pages,
}
"""The operations of each pattern, and what inspection reads of it."""
