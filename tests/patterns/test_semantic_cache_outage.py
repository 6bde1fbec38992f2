"""The semantic cache without Redis, Qdrant or an embedder: fewer hits, and no failed request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from ephemera import embedded, keyspace
from ephemera.embedded import Valkey
from ephemera.errors import ConnectionFailed
from ephemera.patterns.semantic_cache import Qdrant, ScoredPoint
from ephemera.patterns.semantic_cache import _neighbours as neighbours
from tests.patterns.outline_cache import CATALOGUE, OUTLINES, Compass, Model, Outline, scope, semantic_cache
from tests.patterns.qdrant_server import QdrantServer
from tests.wire.conditions import eventually
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors"]


@pytest.fixture
def victim() -> Iterator[Valkey]:
    """A server for one test alone."""
    with embedded.valkey() as running:
        yield running
        running.resume()


PATIENCE = timedelta(seconds=30)
"""For a Qdrant that is there: a process that just began is slow to answer."""


class Counted(Qdrant):
    """Counts its searches."""

    searches = 0

    async def search(self, *args: Any, **kwargs: Any) -> list[ScoredPoint]:
        """Count, and search."""
        self.searches += 1
        return await super().search(*args, **kwargs)


async def test_redis_down_asks_the_model_a_few_at_a_time(victim: Valkey) -> None:
    """Sixty callers of twenty prompts: each prompt is asked once, three at a time; invalidations raise."""
    model, where = Model(), scope()
    prompts = [f"prompt {number}" for number in range(20)]
    async with keyspace.connect(victim.url, CATALOGUE) as store:
        outlines = store[OUTLINES]
        victim.kill()
        await eventually(lambda: not store.client().up)
        model.gate.clear()
        calls = [asyncio.create_task(outlines.get_or_ask(prompt, where, model)) for prompt in prompts * 3]
        await eventually(lambda: model.at_once == 3)
        model.gate.set()
        answers = await asyncio.gather(*calls)
        assert [answer.value.title for answer in answers] == prompts * 3
        assert (len(model.asked), model.most_at_once) == (20, 3)
        for invalidate in (outlines.delete(prompts[0], where), outlines.invalidate_source("a")):
            with pytest.raises(ConnectionFailed):
                await invalidate
        await asyncio.to_thread(victim.restart)
        await eventually(lambda: store.client().up)
        for how in ("asked", "exact"):
            assert (await outlines.get_or_ask(prompts[0], where, model)).origin == how


async def test_redis_hung_costs_a_timeout_and_then_nothing(victim: Valkey) -> None:
    """After SIGSTOP the first caller waits for at most two timeouts of 250 ms, later ones for none."""
    model, where = Model(), scope()
    async with keyspace.connect(victim.url, CATALOGUE) as store:
        outlines = store[OUTLINES]
        await outlines.get_or_ask("first", where, model)
        victim.pause()
        try:
            assert (await outlines.get_or_ask("first", where, model)).origin == "asked"
            await eventually(lambda: not store.client().up)
            for number in range(20):
                assert (await outlines.get_or_ask(f"number {number}", where, model)).origin == "asked"
        finally:
            victim.resume()


async def test_a_flushed_redis_leaves_only_orphans(victim: Valkey) -> None:
    """After FLUSHALL, vectors without answers return nothing and are removed by searches that find them."""
    model, where = Model(), scope()
    async with keyspace.connect(victim.url, CATALOGUE) as store, Qdrant() as vectors:
        outlines = semantic_cache(store, OUTLINES, embedder=Compass(), vectors=vectors)
        await outlines.get_or_ask("old @0", where, model)
        await outlines.get_or_ask("far @90", where, model)
        await store.call("FLUSHALL")
        assert (await outlines.get_or_ask("new @1", where, model)).value == Outline("new @1")
        (name,) = await vectors.collections("")
        assert len((await vectors.scroll(name, None)).points) == 2
        assert await outlines.sweep() == (2, 1)


async def test_without_qdrant_matches_are_exact(server: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """While Qdrant is down exact hits and asks work, searches back off, and then work again."""
    monkeypatch.setattr(neighbours, "_BACKOFF", 0.2)
    model, where = Model(), scope()
    with QdrantServer() as over_http:
        async with (
            keyspace.connect(server.url, CATALOGUE) as store,
            Qdrant(over_http.url, timeout=PATIENCE) as vectors,
        ):
            outlines = semantic_cache(store, OUTLINES, embedder=Compass(), vectors=vectors)
            await outlines.get_or_ask("first @0", where, model)
            assert (await outlines.get_or_ask("near @1", where, model)).origin == "semantic"
            over_http.kill()
            before = await outlines.tally()
            assert (await outlines.get_or_ask("first @0", where, model)).origin == "exact"
            assert (await outlines.get_or_ask("near @1", where, model)).origin == "asked"
            assert (await outlines.get_or_ask("near @1", where, model)).origin == "exact"
            assert await outlines.delete("near @1", where)
            assert (await outlines.tally()).without_vectors > before.without_vectors
            await asyncio.to_thread(over_http.start)
            await asyncio.sleep(0.2)  # until a search is tried again
            assert (await outlines.get_or_ask("second @40", where, model)).origin == "asked"
            assert (await outlines.get_or_ask("near @41", where, model)).origin == "semantic"


async def test_a_hung_qdrant_is_waited_for_once(server: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """After SIGSTOP one caller waits for the timeout, later ones do not, and all are answered."""
    monkeypatch.setattr(neighbours, "_BACKOFF", 60.0)
    model, where = Model(), scope()
    with QdrantServer() as over_http:
        async with keyspace.connect(server.url, CATALOGUE) as store:
            async with Counted(over_http.url, timeout=PATIENCE) as vectors:
                outlines = semantic_cache(store, OUTLINES, embedder=Compass(), vectors=vectors)
                await outlines.get_or_ask("first @0", where, model)
                over_http.pause()
                vectors._timeout = 0.3
                for number in range(10):
                    assert (await outlines.get_or_ask(f"{number} @1", where, model)).origin == "asked"
                assert vectors.searches == 2


async def test_an_embedder_that_fails(server: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact hits and asks work; once the embedder works again, so do semantic hits."""
    monkeypatch.setattr(neighbours, "_BACKOFF", 60.0)
    model, where, compass = Model(), scope(), Compass()
    async with keyspace.connect(server.url, CATALOGUE) as store, Qdrant() as vectors:
        outlines = semantic_cache(store, OUTLINES, embedder=compass, vectors=vectors)
        await outlines.get_or_ask("first @0", where, model)
        compass.broken = True
        assert (await outlines.get_or_ask("first @0", where, model)).origin == "exact"
        assert (await outlines.get_or_ask("near @1", where, model)).origin == "asked"
        assert (await outlines.get_or_ask("near @1", where, model)).origin == "exact"
        tried = len(compass.embedded)
        assert (await outlines.get_or_ask("other @2", where, model)).origin == "asked"
        assert len(compass.embedded) == tried
        compass.broken = False
        assert outlines._neighbours is not None
        outlines._neighbours._backs_off_until = 0.0  # it has rested long enough
        assert (await outlines.get_or_ask("third @3", where, model)).origin == "semantic"
