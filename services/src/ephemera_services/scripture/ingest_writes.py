"""Writing a document to SQL: what is the same stays untouched, and what changed is named, exactly.

Called inside the ingest's transaction, after its fence was admitted, so nobody else writes meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from sqlalchemy import Table, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera_services.scripture.events import ChapterOf, ContentChanged, PartOf
from ephemera_services.scripture.ingest_forms import Document, LexiconDocument, PassageDocument, TopicDocument
from ephemera_services.scripture.records import SUFFIXES
from ephemera_services.scripture.tables import lexicon, parts, passages, texts, topics

_TOGETHER = 500  # rows of one statement


async def write(sql: AsyncConnection, schema: str, document: Document, ingest_id: str) -> ContentChanged:
    """Write a document, and say what it changed."""
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
    changed_texts = {place: text for place, text in new_texts.items() if old_texts.get(place) != text}
    changed_parts = {place: items for place, items in new_parts.items() if old_parts.get(place, []) != items}
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
            ChapterOf(*place)
            for place in sorted({(rows[p]["book_id"], rows[p]["chapter"], t) for p, t in changed_texts})
        ],
    )


def _row(item: Any) -> dict[str, Any]:
    return {"id": item.id, "book_id": item.book, "chapter": item.chapter, "verse": item.verse}


def _texts_of(document: PassageDocument) -> dict[tuple[str, str], str]:
    return {
        (item.id, translation): text for item in document.items for translation, text in item.texts.items()
    }


def _parts_of(document: PassageDocument) -> dict[tuple[str, str], list[dict[str, Any]]]:
    given = ((item, suffix, getattr(item, suffix)) for item in document.items for suffix in SUFFIXES)
    return {
        (item.id, suffix): [each.model_dump() for each in items]
        for item, suffix, items in given
        if items is not None
    }


async def _write_whole(sql: AsyncConnection, table: Table, items: Sequence[BaseModel]) -> list[str]:
    """Rows that are replaced as a whole; the ids of those that are not as they were."""
    rows = {row["id"]: row for row in (item.model_dump() for item in items)}
    found = (await sql.execute(select(table).where(table.c.id.in_(list(rows))))).mappings()
    same = {row["id"] for row in found if dict(row) == rows[row["id"]]}
    changed = sorted(rows.keys() - same)
    await _upsert(sql, table, [rows[each] for each in changed])
    return changed


async def _known(
    sql: AsyncConnection, table: Table, ids: list[str], name: str, value: str
) -> dict[tuple[str, str], Any]:
    wanted = select(table.c.passage_id, table.c[name], table.c[value]).where(table.c.passage_id.in_(ids))
    return {(row[0], row[1]): row[2] for row in await sql.execute(wanted)}


async def _upsert(sql: AsyncConnection, table: Table, rows: list[dict[str, Any]]) -> None:
    keys = [column.name for column in table.primary_key]
    for start in range(0, len(rows), _TOGETHER):
        some = rows[start : start + _TOGETHER]
        added = insert(table).values(some)
        others = {name: added.excluded[name] for name in some[0] if name not in keys}
        await sql.execute(added.on_conflict_do_update(index_elements=keys, set_=others))
