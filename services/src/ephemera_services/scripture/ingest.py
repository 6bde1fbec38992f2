"""The ingest: one at a time per schema, fenced in SQL, and acknowledged when no reader sees the old content.

*Fencing.* A lock keeps others out and is renewed while the process runs. It can be lost: the process hangs
for longer than the lease, or Redis loses its data. Then another ingest may start with a larger fencing token,
and SQL refuses the smaller one. The check is the first statement of the writing transaction, so no one else
writes meanwhile. Unchanged rows are not touched, and the changes are reported exactly.

*Invalidation.* Exactly what changed is invalidated in every cache (`invalidation`), and published as an
event, which is already in SQL: if the process dies in between, the relay publishes it, and its consumer
invalidates the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from pydantic import BaseModel
from sqlalchemy import Table, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera import Store
from ephemera.errors import LockLost, StaleFencingToken
from ephemera.patterns.locks import HeldLock
from ephemera_services.runtime import problem
from ephemera_services.scripture.events import ChapterOf, ContentChanged, PartOf
from ephemera_services.scripture.ingest_forms import Document, LexiconDocument, PassageDocument, TopicDocument
from ephemera_services.scripture.invalidation import Invalidation
from ephemera_services.scripture.keys import INGEST_LOCK
from ephemera_services.scripture.outbox import Outbox
from ephemera_services.scripture.records import PART_NAMES
from ephemera_services.scripture.tables import FENCES, lexicon, parts, passages, texts, topics


class Written(NamedTuple):
    """A committed ingest."""

    change: ContentChanged
    fence: int
    number: int | None
    """The number of its event; None if nothing changed."""


class Ingest:
    """Ingests documents."""

    def __init__(self, engine: AsyncEngine, store: Store, outbox: Outbox, invalidation: Invalidation) -> None:
        self._engine = engine
        self._locks = store[INGEST_LOCK]
        self._outbox = outbox
        self._invalidation = invalidation

    async def ingest(self, schema: str, document: Document) -> Written:
        """Write a document; when this returns, no reader sees the old content."""
        _refuse_duplicates(document)
        try:
            written = await self._locked(schema, document)
        except (StaleFencingToken, LockLost):
            raise problem(
                409,
                "Another ingest of this schema has taken over: check the current content, and repeat yours.",
            ) from None
        if written.number is not None:
            await self._invalidation.apply(written.change)
            await self._outbox.publish(written.number)
            await self._invalidation.wait_until_visible()
        return written

    async def _locked(self, schema: str, document: Document) -> Written:
        async with self._locks.try_hold(schema=schema) as held:
            if held is None:
                raise problem(409, "An ingest of this schema is in progress: try again when it has finished.")
            await self._check_references(document)
            return await self._write(held, schema, document)

    async def _write(self, held: HeldLock, schema: str, document: Document) -> Written:
        async with self._engine.begin() as sql:
            admitted = await sql.execute(text(FENCES.named), FENCES.values(held))
            FENCES.admit(held, admitted.one_or_none())
            change = await write(sql, schema, document, str(uuid4()))
            number = await self._outbox.add(sql, change) if change.size else None
        return Written(change, held.fence, number)

    async def _check_references(self, document: Document) -> None:
        """Refuse topics with unknown passages."""
        if not isinstance(document, TopicDocument):
            return
        named = {each for topic in document.items for each in topic.passages}
        async with self._engine.connect() as sql:
            known = set((await sql.execute(select(passages.c.id).where(passages.c.id.in_(named)))).scalars())
        if missing := sorted(named - known):
            raise problem(422, f"The corpus does not have {', '.join(missing[:10])}.")


def _refuse_duplicates(document: Document) -> None:
    seen: set[str] = set()
    for item in document.items:
        if item.id in seen:
            raise problem(422, f"The document has {item.id} twice.")
        seen.add(item.id)


_BATCH = 500  # rows per statement


async def write(sql: AsyncConnection, schema: str, document: Document, ingest_id: str) -> ContentChanged:
    """Write a document; what it changed."""
    match document:
        case PassageDocument():
            return await _write_passages(sql, schema, document, ingest_id)
        case TopicDocument():
            changed = await _write_whole(sql, topics, document.items)
            return ContentChanged(ingest_id=ingest_id, schema=schema, topics=changed)
        case LexiconDocument():
            changed = await _write_whole(sql, lexicon, document.items)
            return ContentChanged(ingest_id=ingest_id, schema=schema, lexicon=changed)


async def _write_passages(
    sql: AsyncConnection, schema: str, document: PassageDocument, ingest_id: str
) -> ContentChanged:
    ids = [item.id for item in document.items]
    known = set((await sql.execute(select(passages.c.id).where(passages.c.id.in_(ids)))).scalars())
    old_texts = await _known(sql, texts, ids, "translation", "text")
    old_parts = await _known(sql, parts, ids, "suffix", "items")
    new_texts, new_parts = _texts_of(document), _parts_of(document)
    changed_texts = {key: text for key, text in new_texts.items() if old_texts.get(key) != text}
    changed_parts = {key: items for key, items in new_parts.items() if old_parts.get(key, []) != items}
    rows = {item.id: _row(item) for item in document.items}
    await _upsert(sql, passages, [row for each, row in rows.items() if each not in known])
    await _upsert(
        sql,
        texts,
        [{"passage_id": p, "translation": t, "text": text} for (p, t), text in changed_texts.items()],
    )
    await _upsert(
        sql,
        parts,
        [{"passage_id": p, "suffix": s, "items": items} for (p, s), items in changed_parts.items()],
    )
    return ContentChanged(
        ingest_id=ingest_id,
        schema=schema,
        passages=sorted({passage for passage, _ in changed_texts} | (set(ids) - known)),
        parts=[PartOf(passage, suffix) for passage, suffix in sorted(changed_parts)],
        chapters=[
            ChapterOf(*chapter)
            for chapter in sorted({(rows[p]["book_id"], rows[p]["chapter"], t) for p, t in changed_texts})
        ],
    )


def _row(item: Any) -> dict[str, Any]:
    return {"id": item.id, "book_id": item.book, "chapter": item.chapter, "verse": item.verse}


def _texts_of(document: PassageDocument) -> dict[tuple[str, str], str]:
    return {
        (item.id, translation): text for item in document.items for translation, text in item.texts.items()
    }


def _parts_of(document: PassageDocument) -> dict[tuple[str, str], list[dict[str, Any]]]:
    present = ((item, suffix, getattr(item, suffix)) for item in document.items for suffix in PART_NAMES)
    return {
        (item.id, suffix): [each.model_dump() for each in items]
        for item, suffix, items in present
        if items is not None
    }


async def _write_whole(sql: AsyncConnection, table: Table, items: Sequence[BaseModel]) -> list[str]:
    """Replace whole rows; the ids of those that changed."""
    rows = {row["id"]: row for row in (item.model_dump() for item in items)}
    found = (await sql.execute(select(table).where(table.c.id.in_(list(rows))))).mappings()
    same = {row["id"] for row in found if dict(row) == rows[row["id"]]}
    changed = sorted(rows.keys() - same)
    await _upsert(sql, table, [rows[each] for each in changed])
    return changed


async def _known(
    sql: AsyncConnection, table: Table, ids: list[str], name: str, value: str
) -> dict[tuple[str, str], Any]:
    query = select(table.c.passage_id, table.c[name], table.c[value]).where(table.c.passage_id.in_(ids))
    return {(row[0], row[1]): row[2] for row in await sql.execute(query)}


async def _upsert(sql: AsyncConnection, table: Table, rows: list[dict[str, Any]]) -> None:
    keys = [column.name for column in table.primary_key]
    for start in range(0, len(rows), _BATCH):
        some = rows[start : start + _BATCH]
        added = insert(table).values(some)
        others = {name: added.excluded[name] for name in some[0] if name not in keys}
        await sql.execute(added.on_conflict_do_update(index_elements=keys, set_=others))
