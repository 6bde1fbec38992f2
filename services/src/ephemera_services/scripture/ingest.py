"""The ingest: one at a time for each schema, fenced in SQL, and acknowledged when nobody reads the old.

A lock keeps others out while it lives and is renewed as long as the process does. It can be lost: the
process hangs for longer than the lease, or Redis loses its data. Then another may begin, with a larger fence,
and SQL refuses whoever comes with the smaller one, whatever they think they hold. The fence is the first
statement of the transaction that writes, so what is compared is what is there.

Then exactly what changed is ended in every cache (`invalidation`), and told as an event, which is in SQL
already: a process that dies in between leaves it to the relay, and the event's consumer ends the same.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import uuid4

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.errors import LockLost, StaleFencingToken
from ephemera.patterns.locks import HeldLock
from ephemera_services.runtime import problem
from ephemera_services.scripture.events import ContentChanged
from ephemera_services.scripture.ingest_forms import Document, TopicDocument
from ephemera_services.scripture.ingest_writes import write
from ephemera_services.scripture.invalidation import Invalidation
from ephemera_services.scripture.keys import INGEST_LOCK
from ephemera_services.scripture.outbox import Outbox
from ephemera_services.scripture.tables import FENCES, passages


class Written(NamedTuple):
    """An ingest that SQL has."""

    change: ContentChanged
    fence: int
    number: int | None
    """Of its event; None when nothing changed."""


class Ingest:
    """Takes documents in."""

    def __init__(self, engine: AsyncEngine, store: Store, outbox: Outbox, invalidation: Invalidation) -> None:
        self._engine = engine
        self._locks = store[INGEST_LOCK]
        self._outbox = outbox
        self._invalidation = invalidation

    async def take_in(self, schema: str, document: Document) -> Written:
        """Write a document; when this returns, no reader sees what was there before."""
        _refuse_twice(document)
        try:
            written = await self._locked(schema, document)
        except (StaleFencingToken, LockLost):
            raise problem(
                409, "Another ingest of this schema has taken over: look at what is there, and repeat yours."
            ) from None
        if written.number is not None:
            await self._invalidation.apply(written.change)
            await self._outbox.publish(written.number)
            await self._invalidation.settled()
        return written

    async def _locked(self, schema: str, document: Document) -> Written:
        async with self._locks.try_hold(schema=schema) as held:
            if held is None:
                raise problem(409, "An ingest of this schema is under way: try again when it is over.")
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
        """Refuse topics with passages that the corpus has not."""
        if not isinstance(document, TopicDocument):
            return
        named = {each for topic in document.items for each in topic.passages}
        async with self._engine.connect() as sql:
            known = set((await sql.execute(select(passages.c.id).where(passages.c.id.in_(named)))).scalars())
        if missing := sorted(named - known):
            raise problem(422, f"The corpus has no {', '.join(missing[:10])}.")


def _refuse_twice(document: Document) -> None:
    seen: set[str] = set()
    for item in document.items:
        if item.id in seen:
            raise problem(422, f"The document has {item.id} twice.")
        seen.add(item.id)
