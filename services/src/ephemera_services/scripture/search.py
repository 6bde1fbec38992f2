"""Full-text search in SQL, for readers and for the context of questions.

*Ranking.* Each word of a query weighs as much as it is rare in the translation (inverse document frequency):
of a question with "said" and "shepherd", the verses with a shepherd come first. A verse scores the weight of
each word that it has, squared, more if it has it again, less the longer the verse is; words near each other
count more. Only the eight rarest words of a query count, which bounds the work.

*Matching.* A search box query matches verses with all of its words, and quotes, `or` and `-` work as usual.
If there is none, and no quotes or `-` in the query, verses with any of its rarest words match; so they do
for a question. In a small corpus "said" may be rare, so of "What is said about love?" only "love" counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera_services.scripture.records import Hit, Quotation, reference
from ephemera_services.scripture.tables import passages, texts

Matched = Literal["all", "any"]

_EXCLUDED = re.compile(r"""(?:^|\s)-("[^"]*"|\S+)""")
_STRICT = re.compile(r"""(?:^|\s)-\S|\"""")
_ASKING = re.compile(
    r"\b(?:said|says?|t(?:ell|old)s?|means?|verses?|passages?|scriptures?|bible)\b", re.IGNORECASE
)
_MARK = re.compile("\x02(.*?)\x03", re.DOTALL)
_QUERIES: dict[Matched, str] = {
    "all": "SELECT websearch_to_tsquery('english', :words) AS q",
    "any": "SELECT string_agg(q::text, ' | ')::tsquery AS q FROM weighted",
}
_RANKED = """
WITH words AS (
    SELECT quote_literal(lexeme)::tsquery AS q
    FROM unnest(tsvector_to_array(to_tsvector('english', :positive))) AS lexeme
    WHERE position(chr(92) IN lexeme) = 0
), weighted AS (
    SELECT words.q, ln(1 + greatest(total.n - found.n, 0) / (found.n + 0.5)) AS weight
    FROM words,
        (SELECT count(*) AS n FROM scripture.texts WHERE translation = :translation) AS total,
        LATERAL (
            SELECT count(*) AS n FROM scripture.texts
            WHERE translation = :translation AND searched @@ words.q
        ) AS found
    WHERE found.n > 0
    ORDER BY weight DESC, words.q
    LIMIT 8
), query AS ({query}), found AS (
    SELECT p.id, p.book_id, p.chapter, p.verse, t.text, query.q,
        count(*) OVER () AS total,
        (
            SELECT coalesce(sum(weighted.weight ^ 2 * ts_rank(t.searched, weighted.q, 1)), 0) FROM weighted
        ) * (1 + ts_rank_cd(t.searched, query.q)) AS score
    FROM query, scripture.texts AS t JOIN scripture.passages AS p ON p.id = t.passage_id
    WHERE t.translation = :translation AND t.searched @@ query.q
        AND (CAST(:book AS text) IS NULL OR p.book_id = :book)
    ORDER BY score DESC, p.id
    LIMIT :limit OFFSET :offset
)
SELECT found.*,
    ts_headline('english', text, q, E'HighlightAll=true, StartSel="\x02", StopSel="\x03"') AS marked
FROM found ORDER BY score DESC, id
"""


class Page(NamedTuple):
    """Hits, best first; how many there are in total, and whether they have all words or some."""

    hits: list[Hit]
    total: int
    matched: Matched


class Search:
    """Finds passages by their words."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def find(
        self, words: str, translation: str, *, book: str | None = None, limit: int = 20, offset: int = 0
    ) -> Page:
        """Passages that match a search box query, best first."""
        page = await self._ranked("all", words, translation, book, limit, offset)
        if page.hits or _STRICT.search(words):
            return page
        if offset and (await self._ranked("all", words, translation, book, 1, 0)).hits:
            return page  # after the last one
        return await self._ranked("any", words, translation, book, limit, offset)

    async def find_similar(self, question: str, translation: str, limit: int) -> list[Quotation]:
        """Passages with the rarest words of a question, best first."""
        for words in dict.fromkeys([_ASKING.sub(" ", question), question]):
            page = await self._ranked("any", words, translation, None, limit, 0)
            if page.hits:
                break
        return [_quotation(hit) for hit in page.hits]

    async def get_by_ids(self, ids: Iterable[str], translation: str) -> list[Quotation]:
        """The passages with these ids that exist."""
        query = select(
            passages.c.id, passages.c.book_id, passages.c.chapter, passages.c.verse, texts.c.text
        ).join(texts)
        query = query.where(passages.c.id.in_(list(ids)), texts.c.translation == translation)
        async with self._engine.connect() as sql:
            rows = (await sql.execute(query.order_by(passages.c.id))).all()
        return [
            Quotation(
                id=row.id,
                reference=reference(row.book_id, row.chapter, row.verse),
                translation=translation,
                text=row.text,
            )
            for row in rows
        ]

    async def _ranked(
        self, matched: Matched, words: str, translation: str, book: str | None, limit: int, offset: int
    ) -> Page:
        values = {
            "words": words,
            "positive": _EXCLUDED.sub(" ", words),
            "translation": translation,
            "book": book,
            "limit": limit,
            "offset": offset,
        }
        async with self._engine.connect() as sql:
            rows = (await sql.execute(text(_RANKED.format(query=_QUERIES[matched])), values)).all()
        total = rows[0].total if rows else 0
        return Page([_hit(row, translation) for row in rows], total, matched)


def _hit(row: Any, translation: str) -> Hit:
    return Hit(
        id=row.id,
        reference=reference(row.book_id, row.chapter, row.verse),
        translation=translation,
        text=row.text,
        highlights=_highlights(row.marked),
    )


def _highlights(marked: str) -> list[tuple[int, int]]:
    """The positions of marked words in the text without its marks."""
    spans = (found.span(1) for found in _MARK.finditer(marked))
    return [(start - 2 * n - 1, end - 2 * n - 1) for n, (start, end) in enumerate(spans)]


def _quotation(hit: Hit) -> Quotation:
    return Quotation(id=hit.id, reference=hit.reference, translation=hit.translation, text=hit.text)
