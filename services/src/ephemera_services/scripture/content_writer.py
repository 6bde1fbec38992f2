"""Writes content to SQL and reports exactly what changed, for invalidation.

Unchanged rows are not touched. Every change of passages or their texts increments the corpus version in the
same transaction: answers remember the version they were made from (`answers`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from pydantic import BaseModel
from sqlalchemy import Table, delete, func, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera_services.runtime import problem
from ephemera_services.scripture.events import ChapterOf, ContentChanged, PartOf
from ephemera_services.scripture.ingest_forms import (
    Document,
    LexiconDocument,
    PassageDocument,
    PassageItem,
    TopicDocument,
)
from ephemera_services.scripture.records import PART_NAMES
from ephemera_services.scripture.tables import (
    corpus_versions,
    lexicon,
    parts,
    passages,
    texts,
    topics,
    translations,
)

_CORPUS = "passages"


async def write(sql: AsyncConnection, schema: str, document: Document, ingest_id: str) -> ContentChanged:
    """Write a document; what it changed."""
    match document:
        case PassageDocument():
            change = await _write_passages(sql, schema, document.items, ingest_id)
            await _increment_version(sql, change)
            return change
        case TopicDocument():
            changed = await _write_whole(sql, topics, document.items)
            return ContentChanged(ingest_id=ingest_id, schema=schema, topics=changed)
        case LexiconDocument():
            changed = await _write_whole(sql, lexicon, document.items)
            return ContentChanged(ingest_id=ingest_id, schema=schema, lexicon=changed)


async def replace_chapter(
    sql: AsyncConnection, chapter: ChapterOf, items: Sequence[PassageItem], ingest_id: str
) -> ContentChanged:
    """Write a chapter in one translation, and delete its other verses in that translation."""
    written = await _write_passages(sql, "passages", items, ingest_id)
    others = select(passages.c.id).where(
        passages.c.book_id == chapter.book_id,
        passages.c.chapter == chapter.chapter,
        passages.c.id.not_in([item.id for item in items]),
    )
    ids = (await sql.execute(others)).scalars().all()
    change = _merged(written, await _delete_texts(sql, ids, chapter.translation, ingest_id))
    await _increment_version(sql, change)
    return change


async def delete_passages(
    sql: AsyncConnection, ids: Iterable[str], translation: str | None, ingest_id: str
) -> ContentChanged:
    """Delete the texts of passages, of one translation or all, and passages that are left without a text."""
    change = await _delete_texts(sql, list(ids), translation, ingest_id)
    await _increment_version(sql, change)
    return change


async def delete_translation(sql: AsyncConnection, translation: str, ingest_id: str) -> ContentChanged:
    """Delete a translation, and the passages that are left without a text."""
    change = await delete_passages(sql, await _ids_of(sql, translation), translation, ingest_id)
    await sql.execute(delete(translations).where(translations.c.id == translation))
    return change


async def keep_only(
    sql: AsyncConnection, translation: str, ids: Collection[str], ingest_id: str
) -> ContentChanged:
    """Delete the verses of a translation that are not among these."""
    found = (
        await sql.execute(select(texts.c.passage_id).where(texts.c.translation == translation))
    ).scalars()
    return await delete_passages(sql, [each for each in found if each not in ids], translation, ingest_id)


async def delete_whole(sql: AsyncConnection, schema: str, item_id: str, ingest_id: str) -> ContentChanged:
    """Delete a topic or an entry of the lexicon."""
    table = topics if schema == "topics" else lexicon
    gone = [item_id] if (await sql.execute(delete(table).where(table.c.id == item_id))).rowcount else []
    if schema == "topics":
        return ContentChanged(ingest_id=ingest_id, schema=schema, topics=gone)
    return ContentChanged(ingest_id=ingest_id, schema=schema, lexicon=gone)


async def corpus_version(sql: AsyncConnection) -> int:
    """The number of changes of passages so far."""
    query = select(corpus_versions.c.version).where(corpus_versions.c.schema == _CORPUS)
    return (await sql.execute(query)).scalar_one_or_none() or 0


async def describe_translation(sql: AsyncConnection, translation: str, name: str, rights: str) -> None:
    """Store a translation's name and rights."""
    await _upsert(sql, translations, [{"id": translation, "name": name, "rights": rights}])


async def _ids_of(sql: AsyncConnection, translation: str) -> Sequence[str]:
    query = select(texts.c.passage_id).where(texts.c.translation == translation)
    return (await sql.execute(query)).scalars().all()


async def _write_passages(
    sql: AsyncConnection, schema: str, items: Sequence[PassageItem], ingest_id: str
) -> ContentChanged:
    ids = [item.id for item in items]
    known = set((await sql.execute(select(passages.c.id).where(passages.c.id.in_(ids)))).scalars())
    old_texts = await _known(sql, texts, ids, "translation", "text")
    old_parts = await _known(sql, parts, ids, "suffix", "items")
    new_texts, new_parts = _texts_of(items), _parts_of(items)
    changed_texts = {key: text for key, text in new_texts.items() if old_texts.get(key) != text}
    changed_parts = {key: items for key, items in new_parts.items() if old_parts.get(key, []) != items}
    rows = {item.id: _row(item) for item in items}
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
        chapters=_chapters((rows[p]["book_id"], rows[p]["chapter"], t) for p, t in changed_texts),
        contents=sorted({t for p, t in changed_texts if (p, t) not in old_texts}),
    )


async def _delete_texts(
    sql: AsyncConnection, ids: Sequence[str], translation: str | None, ingest_id: str
) -> ContentChanged:
    which = texts.c.passage_id == func.any(list(ids))
    if translation is not None:
        which &= texts.c.translation == translation
    gone = (
        await sql.execute(delete(texts).where(which).returning(texts.c.passage_id, texts.c.translation))
    ).all()
    with_text = {row.passage_id for row in gone}
    where = select(passages.c.id, passages.c.book_id, passages.c.chapter)
    named = ids if translation is None else with_text  # of which some may have no text
    found = (await sql.execute(where.where(passages.c.id == func.any(list(named))))).all()
    changed = sorted(row.id for row in found)
    chapter_of = {row.id: (row.book_id, row.chapter) for row in found}
    lost_parts = await _delete_empty(sql, changed)
    return ContentChanged(
        ingest_id=ingest_id,
        schema="passages",
        passages=changed,
        parts=lost_parts,
        chapters=_chapters((*chapter_of[row.passage_id], row.translation) for row in gone),
        contents=sorted({row.translation for row in gone}),
    )


async def _delete_empty(sql: AsyncConnection, ids: Sequence[str]) -> list[PartOf]:
    """Delete those of these passages that have no text, with their parts; 409 if a topic names one."""
    with_text = select(texts.c.passage_id).where(texts.c.passage_id == passages.c.id).exists()
    query = select(passages.c.id).where(passages.c.id == func.any(list(ids)), ~with_text)
    # Locked before topics are searched: no topic can name one in the meantime.
    empty = list((await sql.execute(query.order_by(passages.c.id).with_for_update())).scalars())
    naming = text(
        "SELECT id FROM scripture.topics WHERE passages ?| CAST(:ids AS text[]) ORDER BY id LIMIT 10"
    )
    if named := (await sql.execute(naming, {"ids": empty})).scalars().all():
        raise problem(409, f"Remove the passages from these topics first: {', '.join(named)}.")
    lost = delete(parts).where(parts.c.passage_id == func.any(empty))
    rows = (await sql.execute(lost.returning(parts.c.passage_id, parts.c.suffix))).all()
    await sql.execute(delete(passages).where(passages.c.id == func.any(empty)))
    return sorted((PartOf(*row) for row in rows), key=lambda part: (part.passage_id, part.suffix))


async def _increment_version(sql: AsyncConnection, change: ContentChanged) -> None:
    if change.passages:
        added = insert(corpus_versions).values(schema=_CORPUS, version=1)
        later = {"version": corpus_versions.c.version + 1}
        await sql.execute(added.on_conflict_do_update(index_elements=["schema"], set_=later))


def _merged(first: ContentChanged, second: ContentChanged) -> ContentChanged:
    chapters = {(each.book_id, each.chapter, each.translation) for each in first.chapters + second.chapters}
    return ContentChanged(
        ingest_id=first.ingest_id,
        schema=first.schema,
        passages=sorted({*first.passages, *second.passages}),
        parts=first.parts + second.parts,
        chapters=_chapters(chapters),
        contents=sorted({*first.contents, *second.contents}),
    )


def _chapters(chapters: Iterable[tuple[str, int, str]]) -> list[ChapterOf]:
    return [ChapterOf(*chapter) for chapter in sorted(set(chapters))]


def _row(item: PassageItem) -> dict[str, Any]:
    return {"id": item.id, "book_id": item.book, "chapter": item.chapter, "verse": item.verse}


def _texts_of(items: Sequence[PassageItem]) -> dict[tuple[str, str], str]:
    return {(item.id, translation): text for item in items for translation, text in item.texts.items()}


def _parts_of(items: Sequence[PassageItem]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    present = ((item, suffix, getattr(item, suffix)) for item in items for suffix in PART_NAMES)
    return {
        (item.id, suffix): [each.model_dump() for each in found]
        for item, suffix, found in present
        if found is not None
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
    if not rows:
        return
    keys = [column.name for column in table.primary_key]
    added = insert(table)
    others = {name: added.excluded[name] for name in rows[0] if name not in keys}
    await sql.execute(added.on_conflict_do_update(index_elements=keys, set_=others), rows)
