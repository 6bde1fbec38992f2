"""Content from SQL through the caches. What does not exist is None, and is not cached.

*When Redis is down*, a recent local copy is used, and then SQL, within the cache's own load limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, Select, func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera_services.scripture.keys import (
    CHAPTERS,
    CONTENTS,
    LEXICON,
    PARTS,
    PASSAGES,
    TOPICS,
    TRANSLATIONS,
)
from ephemera_services.scripture.records import (
    BOOKS,
    BookContents,
    Chapter,
    Contents,
    LexiconEntry,
    Passage,
    PassagePart,
    Topic,
    Translation,
    Verse,
    reference,
)
from ephemera_services.scripture.tables import lexicon, parts, passages, texts, topics, translations


class Content:
    """The content that the routes read."""

    def __init__(self, engine: AsyncEngine, store: Store) -> None:
        self._engine = engine
        self._passages, self._parts, self._chapters = store[PASSAGES], store[PARTS], store[CHAPTERS]
        self._topics, self._lexicon = store[TOPICS], store[LEXICON]
        self._contents, self._translations = store[CONTENTS], store[TRANSLATIONS]

    async def translations(self) -> list[Translation]:
        """All translations that have a verse."""
        return await self._translations.get_or_load(self._load_translations)

    async def contents(self, translation: str) -> Contents | None:
        """The books and chapters of a translation."""
        return await self._contents.get_or_load(self._load_contents, translation=translation)

    async def topics(self, after: str, limit: int) -> list[Topic]:
        """Topics in the order of their ids, from SQL."""
        query = select(topics).where(topics.c.id > after).order_by(topics.c.id).limit(limit)
        return [Topic(**row._mapping) for row in await self._rows(query)]

    async def passage(self, passage_id: str) -> Passage | None:
        """A passage in all translations."""
        return await self._passages.get_or_load(self._load_passage, passage_id=passage_id)

    async def part(self, passage_id: str, suffix: str) -> PassagePart:
        """A part of a passage, such as its words; empty if none was ingested."""
        return await self._parts.get_or_load(self._load_part, passage_id=passage_id, suffix=suffix)

    async def chapter(self, book_id: str, chapter: int, translation: str) -> Chapter | None:
        """A chapter in one translation."""
        return await self._chapters.get_or_load(
            self._load_chapter, book_id=book_id, chapter=chapter, translation=translation
        )

    async def topic(self, topic_id: str) -> Topic | None:
        """A topic."""
        return await self._topics.get_or_load(self._load_topic, topic_id=topic_id)

    async def word(self, word_id: str) -> LexiconEntry | None:
        """An entry of the lexicon."""
        return await self._lexicon.get_or_load(self._load_word, word_id=word_id)

    async def _load_passage(self, passage_id: str) -> Passage | None:
        query = select(passages, texts.c.translation, texts.c.text).join(texts, isouter=True)
        rows = await self._rows(query.where(passages.c.id == passage_id).order_by(texts.c.translation))
        if not rows:
            return None
        first = rows[0]
        return Passage(
            id=passage_id,
            reference=reference(first.book_id, first.chapter, first.verse),
            book_id=first.book_id,
            chapter=first.chapter,
            verse=first.verse,
            texts={row.translation: row.text for row in rows if row.translation is not None},
        )

    async def _load_part(self, passage_id: str, suffix: str) -> PassagePart:
        query = select(parts.c["items"]).where(parts.c.passage_id == passage_id, parts.c.suffix == suffix)
        rows = await self._rows(query)
        return PassagePart(items=rows[0][0] if rows else [])

    async def _load_chapter(self, book_id: str, chapter: int, translation: str) -> Chapter | None:
        query = (
            select(passages.c.id, passages.c.verse, texts.c.text)
            .join(texts)
            .where(passages.c.book_id == book_id, passages.c.chapter == chapter)
            .where(texts.c.translation == translation)
            .order_by(passages.c.verse)
        )
        verses = [Verse(passage_id=row.id, verse=row.verse, text=row.text) for row in await self._rows(query)]
        if not verses:
            return None
        return Chapter(
            book_id=book_id, book=BOOKS[book_id], chapter=chapter, translation=translation, verses=verses
        )

    async def _load_translations(self) -> list[Translation]:
        counted = select(texts.c.translation, func.count().label("verses")).group_by(texts.c.translation)
        known = {row.id: row for row in await self._rows(select(translations))}
        return [
            Translation(
                id=row.translation,
                name=known[row.translation].name if row.translation in known else row.translation.upper(),
                rights=known[row.translation].rights if row.translation in known else "",
                verses=row.verses,
            )
            for row in await self._rows(counted.order_by(texts.c.translation))
        ]

    async def _load_contents(self, translation: str) -> Contents | None:
        counted = select(passages.c.book_id, passages.c.chapter, func.count().label("verses")).join(texts)
        of_it = counted.where(texts.c.translation == translation)
        found: dict[str, dict[int, int]] = {}
        for row in await self._rows(
            of_it.group_by(passages.c.book_id, passages.c.chapter).order_by(passages.c.chapter)
        ):
            found.setdefault(row.book_id, {})[row.chapter] = row.verses
        books = [
            BookContents(id=each, name=BOOKS[each], chapters=found[each]) for each in BOOKS if each in found
        ]
        return Contents(books=books) if books else None

    async def _load_topic(self, topic_id: str) -> Topic | None:
        rows = await self._rows(select(topics).where(topics.c.id == topic_id))
        return Topic(**rows[0]._mapping) if rows else None

    async def _load_word(self, word_id: str) -> LexiconEntry | None:
        rows = await self._rows(select(lexicon).where(lexicon.c.id == word_id))
        return LexiconEntry(**rows[0]._mapping) if rows else None

    async def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        async with self._engine.connect() as sql:
            rows: Sequence[Row[Any]] = (await sql.execute(query)).all()
            return rows
