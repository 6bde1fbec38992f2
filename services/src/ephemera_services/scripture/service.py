"""The service itself: its parts, opened together and closed in reverse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.patterns.preferences import Settings as Preferences
from ephemera_services.runtime import Resources, advisory_lock
from ephemera_services.scripture.access import Gate
from ephemera_services.scripture.answers import Answers
from ephemera_services.scripture.consumers import Consumers
from ephemera_services.scripture.content import Content
from ephemera_services.scripture.corpus import have_corpus
from ephemera_services.scripture.ingest import Ingest
from ephemera_services.scripture.invalidation import Invalidation
from ephemera_services.scripture.key_set import KeySet
from ephemera_services.scripture.keys import PREFERENCES, Look
from ephemera_services.scripture.mail import Mailer, Nobody, Smtp
from ephemera_services.scripture.outbox import Outbox
from ephemera_services.scripture.people import People, have_features
from ephemera_services.scripture.search import Search
from ephemera_services.scripture.settings import Settings
from ephemera_services.scripture.tables import FENCES, ONCE


@dataclass(frozen=True)
class Scripture:
    """What the routes work with."""

    gate: Gate
    content: Content
    search: Search
    answers: Answers
    people: People
    preferences: Preferences[Look]
    ingest: Ingest


@asynccontextmanager
async def open_scripture(settings: Settings, resources: Resources) -> AsyncIterator[Scripture]:
    """The service, with its corpus, and its consumers unless they run elsewhere."""
    engine, store = resources.engine, resources.store
    await _prepare(engine)
    search, outbox = Search(engine), Outbox(engine, store)
    async with AsyncExitStack() as stack:
        keys = await stack.enter_async_context(KeySet.opened(settings))
        answers = await stack.enter_async_context(Answers.opened(settings, store, search))
        people = People(engine, store, outbox)
        invalidation = Invalidation(store, answers.kept)
        if settings.consumers:
            carrier = Nobody() if settings.mail_url is None else Smtp(settings.mail_url.reveal())
            mailer = Mailer(engine, carrier, settings.mail_from)
            consumers = Consumers(engine, store, outbox, mailer, invalidation)
            await stack.enter_async_context(consumers.running())
        yield Scripture(
            gate=Gate(store, keys, people, settings),
            content=Content(engine, store),
            search=search,
            answers=answers,
            people=people,
            preferences=store[PREFERENCES],
            ingest=Ingest(engine, store, outbox, invalidation),
        )


async def _prepare(engine: AsyncEngine) -> None:
    """Have the guards' tables, the plans' features and the corpus, by one process at a time."""
    async with engine.begin() as sql:
        await advisory_lock(sql, "preparing scripture")
        for guard in (FENCES, ONCE):
            await sql.execute(text(guard.table))
        await have_features(sql)
        await have_corpus(sql)
