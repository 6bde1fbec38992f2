"""Invalidates exactly what an ingest changed: cache entries and local copies.

`apply` deletes the entries in Redis. Other processes drop their local copies when the server notifies them,
about one round trip later; a process that hangs may miss it. But no local copy is used for longer than
`LOCAL_MAX_AGE`, so after waiting that long no process serves the old content: one that is cut off from Redis
reads SQL. `wait_until_visible` waits for that.

Cached answers need no invalidation: each is compared with the corpus when it is read (`answers`).
"""

from __future__ import annotations

import asyncio

from ephemera import Store
from ephemera_services.scripture.events import ContentChanged
from ephemera_services.scripture.keys import (
    CHAPTERS,
    CONTENTS,
    LEXICON,
    LOCAL_MAX_AGE,
    PARTS,
    PASSAGES,
    TOPICS,
    TRANSLATIONS,
)

_IN_FLIGHT = 0.3  # seconds; the wire drops a reply from before the change when it is older


class Invalidation:
    """Invalidates caches after an ingest."""

    def __init__(self, store: Store) -> None:
        self._passages, self._parts, self._chapters = store[PASSAGES], store[PARTS], store[CHAPTERS]
        self._topics, self._lexicon = store[TOPICS], store[LEXICON]
        self._contents, self._translations = store[CONTENTS], store[TRANSLATIONS]

    async def apply(self, change: ContentChanged) -> None:
        """Invalidate a change; `ConnectionFailed` if Redis did not confirm all of it."""
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
            self._contents.delete_many({"translation": each} for each in change.contents),
        )
        if change.contents:
            await self._translations.delete()

    async def wait_until_visible(self) -> None:
        """Wait until no process can serve a local copy from before the last `apply`."""
        await asyncio.sleep(LOCAL_MAX_AGE.total_seconds() + _IN_FLIGHT)
