"""The running service: its parts, opened together and closed in reverse order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.patterns.preferences import BoundPreferences
from ephemera_services.runtime import Resources, advisory_lock
from ephemera_services.scripture.access import Gate
from ephemera_services.scripture.answers import Answers
from ephemera_services.scripture.consumers import Consumers, Mailer, NoMailServer, SmtpTransport
from ephemera_services.scripture.content import Content
from ephemera_services.scripture.corpus import ensure_corpus
from ephemera_services.scripture.ingest import Ingest
from ephemera_services.scripture.invalidation import Invalidation
from ephemera_services.scripture.key_set import KeySet
from ephemera_services.scripture.keys import PREFERENCES, ReadingPreferences
from ephemera_services.scripture.outbox import Outbox
from ephemera_services.scripture.search import Search
from ephemera_services.scripture.settings import Settings
from ephemera_services.scripture.tables import FENCES, ONCE
from ephemera_services.scripture.users import Users, ensure_features


@dataclass(frozen=True)
class Scripture:
    """The parts that the routes use."""

    gate: Gate
    content: Content
    search: Search
    answers: Answers
    users: Users
    preferences: BoundPreferences[ReadingPreferences]
    ingest: Ingest


@asynccontextmanager
async def open_scripture(settings: Settings, resources: Resources) -> AsyncIterator[Scripture]:
    """Open the service with its corpus, and its consumers unless they run in a worker."""
    engine, store = resources.engine, resources.store
    await _prepare(engine)
    search, outbox = Search(engine), Outbox(engine, store)
    async with AsyncExitStack() as stack:
        keys = await stack.enter_async_context(KeySet.open(settings))
        answers = await stack.enter_async_context(Answers.open(settings, store, search))
        users = Users(engine, store, outbox)
        invalidation = Invalidation(store, answers.cache)
        if settings.consumers:
            transport = (
                NoMailServer() if settings.mail_url is None else SmtpTransport(settings.mail_url.reveal())
            )
            mailer = Mailer(engine, transport, settings.mail_from)
            consumers = Consumers(engine, store, outbox, mailer, invalidation)
            await stack.enter_async_context(consumers.run())
        yield Scripture(
            gate=Gate(store, keys, users, settings),
            content=Content(engine, store),
            search=search,
            answers=answers,
            users=users,
            preferences=store[PREFERENCES],
            ingest=Ingest(engine, store, outbox, invalidation),
        )


async def _prepare(engine: AsyncEngine) -> None:
    """Create the guards' tables, the default features and the corpus, by one process at a time."""
    async with engine.begin() as sql:
        await advisory_lock(sql, "preparing scripture")
        for guard in (FENCES, ONCE):
            await sql.execute(text(guard.table))
        await ensure_features(sql)
        await ensure_corpus(sql)
