"""The ingest: one at a time per schema, fenced in SQL, and acknowledged when no reader sees the old content.

*Fencing.* A lock keeps others out and is renewed while the process runs. It can be lost: the process hangs
for longer than the lease, or Redis loses its data. Then another ingest may start with a larger fencing token,
and SQL refuses the smaller one. The check is the first statement of the writing transaction, so no one else
writes until it ends. Unchanged rows are not touched, and the changes are reported exactly (`content_writer`).

*Invalidation.* Exactly what changed is invalidated in every cache (`invalidation`), and published as an
event, which is already in SQL: if the process dies in between, the relay publishes it, and its consumer
invalidates the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple
from uuid import uuid4

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera import Store
from ephemera.errors import LockLost, StaleFencingToken
from ephemera.patterns.locks import HeldLock
from ephemera_services.runtime import problem
from ephemera_services.scripture import content_writer
from ephemera_services.scripture.events import ChapterOf, ContentChanged
from ephemera_services.scripture.ingest_forms import Document, PassageDocument, TopicDocument
from ephemera_services.scripture.invalidation import Invalidation
from ephemera_services.scripture.keys import INGEST_LOCK
from ephemera_services.scripture.outbox import Outbox
from ephemera_services.scripture.tables import FENCES, passages

Change = Callable[[AsyncConnection, str], Awaitable[ContentChanged]]
"""Writes within a transaction, for the ingest with this id."""


class Written(NamedTuple):
    """A committed ingest."""

    change: ContentChanged
    fence: int
    number: int | None
    """The number of its event; None if nothing changed."""


class Ingest:
    """Changes content."""

    def __init__(self, engine: AsyncEngine, store: Store, outbox: Outbox, invalidation: Invalidation) -> None:
        self._engine = engine
        self._locks = store[INGEST_LOCK]
        self._outbox = outbox
        self._invalidation = invalidation

    async def ingest(self, schema: str, document: Document) -> Written:
        """Write a document; when this returns, no reader sees the old content."""
        _refuse_duplicates(document)

        async def write(sql: AsyncConnection, ingest_id: str) -> ContentChanged:
            await _check_references(sql, document)  # again: none of them is deleted until the commit
            return await content_writer.write(sql, schema, document, ingest_id)

        async with self._locked(schema) as held:
            async with self._engine.begin() as sql:
                await _check_references(sql, document)
            written = await self._write(held, write)
        return await self._acknowledged(written)

    async def ingest_all(
        self, schema: str, documents: Iterable[Document], on_batch: Callable[[ContentChanged], None]
    ) -> None:
        """Write many documents under one lock, each in a transaction, so that a second run continues."""
        async with self._locked(schema) as held:
            for document in documents:
                written = await self._write(
                    held,
                    lambda sql, ingest_id, document=document: content_writer.write(  # type: ignore[misc]
                        sql, schema, document, ingest_id
                    ),
                )
                await self._announce(written)
                on_batch(written.change)
        await self._invalidation.wait_until_visible()

    async def replace_chapter(self, chapter: ChapterOf, document: PassageDocument) -> Written:
        """Write a chapter in one translation; its other verses are deleted from that translation."""
        _refuse_duplicates(document)
        _refuse_others(chapter, document)
        return await self._change(
            "passages",
            lambda sql, ingest_id: content_writer.replace_chapter(sql, chapter, document.items, ingest_id),
        )

    async def delete_passage(self, passage_id: str, translation: str | None) -> Written:
        """Delete a passage, or its text in one translation."""
        return await self._change(
            "passages",
            lambda sql, ingest_id: content_writer.delete_passages(sql, [passage_id], translation, ingest_id),
        )

    async def delete_translation(self, translation: str) -> Written:
        """Delete a translation."""
        return await self._change(
            "passages",
            lambda sql, ingest_id: content_writer.delete_translation(sql, translation, ingest_id),
        )

    async def keep_only(self, translation: str, ids: Collection[str]) -> Written:
        """Delete the verses of a translation that are not among these."""
        return await self._change(
            "passages",
            lambda sql, ingest_id: content_writer.keep_only(sql, translation, ids, ingest_id),
        )

    async def delete_whole(self, schema: str, item_id: str) -> Written:
        """Delete a topic or an entry of the lexicon."""
        return await self._change(
            schema, lambda sql, ingest_id: content_writer.delete_whole(sql, schema, item_id, ingest_id)
        )

    async def _change(self, schema: str, change: Change) -> Written:
        async with self._locked(schema) as held:
            written = await self._write(held, change)
        return await self._acknowledged(written)

    async def _acknowledged(self, written: Written) -> Written:
        if written.number is not None:
            await self._announce(written)
            await self._invalidation.wait_until_visible()
        return written

    async def _announce(self, written: Written) -> None:
        if written.number is not None:
            await self._invalidation.apply(written.change)
            await self._outbox.publish(written.number)

    @asynccontextmanager
    async def _locked(self, schema: str) -> AsyncIterator[HeldLock]:
        """Hold the lock of a schema within a block; 409 if another has it, or took it over."""
        try:
            async with self._locks.try_hold(schema=schema) as held:
                if held is None:
                    raise problem(
                        409,
                        "An ingest of this schema is in progress: try again when it has finished, or two "
                        "minutes after it was killed.",
                    )
                yield held
        except (StaleFencingToken, LockLost):
            raise problem(
                409,
                "Another ingest of this schema has taken over: check the current content, and repeat yours.",
            ) from None

    async def _write(self, held: HeldLock, change: Change) -> Written:
        async with self._engine.begin() as sql:
            admitted = await sql.execute(text(FENCES.named), FENCES.values(held))
            FENCES.admit(held, admitted.one_or_none())
            changed = await change(sql, str(uuid4()))
            number = await self._outbox.add(sql, changed) if changed.size else None
        return Written(changed, held.fence, number)


async def _check_references(sql: AsyncConnection, document: Document) -> None:
    """Refuse topics with unknown passages, and lock the known ones against their deletion."""
    if not isinstance(document, TopicDocument):
        return
    named = {each for topic in document.items for each in topic.passages}
    query = select(passages.c.id).where(passages.c.id == func.any(list(named))).order_by(passages.c.id)
    known = set((await sql.execute(query.with_for_update(read=True, key_share=True))).scalars())
    if missing := sorted(named - known):
        raise problem(422, f"The corpus does not have {', '.join(missing[:10])}.")


def _refuse_duplicates(document: Document) -> None:
    seen: set[str] = set()
    for item in document.items:
        if item.id in seen:
            raise problem(422, f"The document has {item.id} twice.")
        seen.add(item.id)


def _refuse_others(chapter: ChapterOf, document: PassageDocument) -> None:
    """Refuse verses of other chapters, and texts in other translations."""
    for item in document.items:
        if (item.book, item.chapter) != (chapter.book_id, chapter.chapter):
            raise problem(422, f"{item.id} is not in {chapter.book_id}.{chapter.chapter}.")
        if set(item.texts) != {chapter.translation}:
            raise problem(422, f"{item.id} must have its text in {chapter.translation}, and no other.")
