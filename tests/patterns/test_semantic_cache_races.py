"""Races: an answer from before a change is never returned to a caller that arrives after it."""

from __future__ import annotations

import asyncio

from ephemera import keyspace
from ephemera.embedded import Valkey
from ephemera.patterns.semantic_cache import BoundSemanticCache, Qdrant, Scope
from tests.patterns.outline_cache import CATALOGUE, OUTLINES, Compass, Outline, scope, semantic_cache
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors"]


class Document:
    """A text that changes, and a model that reads it and then takes some time."""

    def __init__(self) -> None:
        self.version = 0
        self.begun = asyncio.Event()
        self.overtaken = 0  # asks during which it has changed
        self._asks = 0

    async def ask(self, prompt: str) -> Outline:
        """What the document says when the model begins to write."""
        version = self.version
        self.begun.set()
        self._asks += 1
        await asyncio.sleep((1 + self._asks % 3) / 1000)
        self.overtaken += version != self.version
        return Outline(str(version))

    async def is_read(self, number: int) -> None:
        """Wait until the model has begun, every other time, or for some turns of the loop."""
        if number % 2:
            await self.begun.wait()
            return
        for _ in range(number % 9):
            await asyncio.sleep(0)


async def test_two_hundred_changes_leave_nothing_old(server: Valkey) -> None:
    """While the source changes, callers of two stores with equal and similar prompts see each change."""

    async def race(stores: tuple[BoundSemanticCache[Outline, Scope], ...], name: str) -> int:
        document, where, old = Document(), scope(documents={name}), 0
        for number in range(1, 21):
            await stores[0].invalidate_source(name)
            document.begun.clear()
            before = [
                asyncio.create_task(each.get_or_ask(f"a @{degrees}", where, document.ask))
                for each in stores
                for degrees in (0, 1)
            ]
            await document.is_read(number)
            document.version = number
            await stores[number % 2].invalidate_source(name)
            for each in stores:
                for degrees in (0, 1, 2):
                    answer = await each.get_or_ask(f"a @{degrees}", where, document.ask)
                    old += answer.value.title != str(number)
            await asyncio.gather(*before)
            for each in stores:
                old += (await each.get_or_ask("a @1", where, document.ask)).value.title != str(number)
        assert document.overtaken >= 10
        return old

    async with (
        keyspace.connect(server.url, CATALOGUE) as one,
        keyspace.connect(server.url, CATALOGUE) as other,
        Qdrant() as vectors,
    ):
        stores = tuple(
            semantic_cache(each, OUTLINES, embedder=Compass(), vectors=vectors) for each in (one, other)
        )
        wrong = await asyncio.gather(*(race(stores, f"document {number}") for number in range(10)))
        assert sum(wrong) == 0
        await stores[0].sweep()
        (name,) = await vectors.collections("")
        for point in (await vectors.scroll(name, None)).points:  # what is left has its entry
            assert await one.call("EXISTS", OUTLINES._entry_key(point.id))


async def test_deletions_during_asks_leave_nothing_old(server: Valkey) -> None:
    """A call that begins after `delete` never gets an answer from before it."""
    async with keyspace.connect(server.url, CATALOGUE) as store, Qdrant() as vectors:
        outlines = semantic_cache(store, OUTLINES, embedder=Compass(), vectors=vectors)

        async def race() -> int:
            document, where, old = Document(), scope(), 0
            for number in range(1, 21):
                await outlines.delete("a @0", where)
                await outlines.delete("a @1", where)
                document.begun.clear()
                before = [
                    asyncio.create_task(outlines.get_or_ask("a @0", where, document.ask)) for _ in range(3)
                ]
                await document.is_read(number)
                document.version = number
                await outlines.delete("a @0", where)
                for degrees in (0, 1):
                    answer = await outlines.get_or_ask(f"a @{degrees}", where, document.ask)
                    old += answer.value.title != str(number)
                await asyncio.gather(*before)
            assert document.overtaken >= 10
            return old

        assert sum(await asyncio.gather(*(race() for _ in range(10)))) == 0
