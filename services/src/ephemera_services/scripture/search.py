"""Full-text search in SQL, for readers and for the context of questions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Select, cast, func, select
from sqlalchemy.dialects.postgresql import TSQUERY
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera_services.scripture.records import Quotation, reference
from ephemera_services.scripture.tables import passages, texts

_ENGLISH = "english"
_QUOTED = select(
    passages.c.id, passages.c.book_id, passages.c.chapter, passages.c.verse, texts.c.translation, texts.c.text
).join(texts)


class Search:
    """Finds passages by their words."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def find(self, words: str, translation: str, limit: int = 20) -> list[Quotation]:
        """Passages that match a search box query, best first."""
        return await self._best(func.websearch_to_tsquery(_ENGLISH, words), translation, limit)

    async def find_similar(self, question: str, translation: str, limit: int) -> list[Quotation]:
        """Passages with some of the words of a question, best first."""
        every = func.text(func.plainto_tsquery(_ENGLISH, question))
        some = cast(func.regexp_replace(every, " & ", " | ", "g"), TSQUERY)
        return await self._best(some, translation, limit)

    async def get_by_ids(self, ids: Iterable[str], translation: str) -> list[Quotation]:
        """The passages with these ids that exist."""
        query = _QUOTED.where(passages.c.id.in_(list(ids)), texts.c.translation == translation)
        return await self._quotations(query.order_by(passages.c.id))

    async def _best(self, words: ColumnElement[Any], translation: str, limit: int) -> list[Quotation]:
        query = _QUOTED.where(texts.c.searched.op("@@")(words), texts.c.translation == translation)
        rank = func.ts_rank_cd(texts.c.searched, words).desc()
        return await self._quotations(query.order_by(rank, passages.c.id).limit(limit))

    async def _quotations(self, query: Select[Any]) -> list[Quotation]:
        async with self._engine.connect() as sql:
            rows = (await sql.execute(query)).all()
        return [
            Quotation(
                id=row.id,
                reference=reference(row.book_id, row.chapter, row.verse),
                translation=row.translation,
                text=row.text,
            )
            for row in rows
        ]
