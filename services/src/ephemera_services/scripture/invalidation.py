"""Having every cache forget exactly what an ingest changed: the entries, the answers, and the copies.

`apply` ends the entries in Redis, and the AI answers that rest on changed passages. Other processes drop
their copies when the server's word reaches them, about a trip later; one that hangs may not hear it. But no
copy is trusted for longer than `COPIES_TRUSTED`, so whoever waits for that long after `apply` knows that
nobody reads the old content any more, whatever happened to whom: a process that is cut off from Redis reads
from SQL what it has no such young copy of. `settled` waits for that.
"""

from __future__ import annotations

import asyncio

from ephemera import Store
from ephemera.patterns.semantic_cache import BoundSemanticCache
from ephemera_services.scripture.events import ContentChanged
from ephemera_services.scripture.keys import (
    CHAPTERS,
    COPIES_TRUSTED,
    LEXICON,
    PARTS,
    PASSAGES,
    TOPICS,
    AnswerScope,
)
from ephemera_services.scripture.records import AiAnswer

_ON_ITS_WAY = 0.3  # seconds; a reply that was read before the change is dropped by the wire when it is older
_AT_ONCE = 50  # sources that are ended together


class Invalidation:
    """What happens to caches when content has changed."""

    def __init__(self, store: Store, answers: BoundSemanticCache[AiAnswer, AnswerScope]) -> None:
        self._passages, self._parts, self._chapters = store[PASSAGES], store[PARTS], store[CHAPTERS]
        self._topics, self._lexicon = store[TOPICS], store[LEXICON]
        self._answers = answers

    async def apply(self, change: ContentChanged) -> None:
        """End what is cached of this; `ConnectionFailed` when Redis could not be told all of it."""
        await asyncio.gather(
            self._passages.delete_many({"passage_id": each} for each in change.passages),
            self._parts.delete_many(
                {"passage_id": each.passage_id, "suffix": each.suffix} for each in change.parts
            ),
            self._chapters.delete_many(
                {"book_id": each.book_id, "chapter": each.chapter, "translation": each.translation}
                for each in change.chapters
            ),
            self._topics.delete_many({"topic_id": each} for each in change.topics),
            self._lexicon.delete_many({"word_id": each} for each in change.lexicon),
        )
        for start in range(0, len(change.passages), _AT_ONCE):
            some = change.passages[start : start + _AT_ONCE]
            await asyncio.gather(*map(self._answers.invalidate_source, some))

    async def settled(self) -> None:
        """Wait until no process can serve a copy from before the last `apply`."""
        await asyncio.sleep(COPIES_TRUSTED.total_seconds() + _ON_ITS_WAY)
