"""The running service: its parts, opened together and closed in reverse order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import httpx
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.patterns.preferences import BoundPreferences
from ephemera_services.runtime import MailTransport, NoMailServer, Resources, SmtpTransport, advisory_lock
from ephemera_services.scripture.access import Gate
from ephemera_services.scripture.answers import Answers
from ephemera_services.scripture.consumers import Consumers, Mailer
from ephemera_services.scripture.content import Content
from ephemera_services.scripture.corpus import ensure_corpus
from ephemera_services.scripture.ingest import Ingest
from ephemera_services.scripture.invalidation import Invalidation
from ephemera_services.scripture.key_set import KeySet
from ephemera_services.scripture.keys import PREFERENCES, ReadingPreferences
from ephemera_services.scripture.notifications import NotificationPreferences, UnsubscribeLinks
from ephemera_services.scripture.outbox import Outbox
from ephemera_services.scripture.push import Push
from ephemera_services.scripture.push_messages import PushMessages
from ephemera_services.scripture.revocations import Revocations
from ephemera_services.scripture.search import Search
from ephemera_services.scripture.settings import Settings
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
    notifications: NotificationPreferences
    unsubscribe_links: UnsubscribeLinks
    push: Push


@asynccontextmanager
async def open_scripture(settings: Settings, resources: Resources) -> AsyncIterator[Scripture]:
    """Open the service with its corpus, and its consumers unless they run in a worker."""
    engine, store = resources.engine, resources.store
    await _prepare(engine)
    search, outbox = Search(engine), Outbox(engine, store)
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx.AsyncClient())
        keys = await stack.enter_async_context(KeySet.open(settings))
        revocations = Revocations(settings, http)
        stack.push_async_callback(revocations.aclose)
        answers = await stack.enter_async_context(Answers.open(settings, store, search, engine))
        users = Users(engine, store, outbox)
        invalidation = Invalidation(store)
        choices = NotificationPreferences(engine)
        links = UnsubscribeLinks(settings.unsubscribe_key, settings.public_url)
        push = Push(engine, choices, _messages(settings), anywhere=settings.push_anywhere)
        stack.push_async_callback(push.aclose)
        if settings.consumers:
            mailer = Mailer(engine, _transport(settings), settings.mail_from, choices, links)
            consumers = Consumers(engine, store, users, outbox, mailer, invalidation, push, choices)
            await stack.enter_async_context(consumers.run())
        yield Scripture(
            gate=Gate(store, keys, revocations, users, settings),
            content=Content(engine, store),
            search=search,
            answers=answers,
            users=users,
            preferences=store[PREFERENCES],
            ingest=Ingest(engine, store, outbox, invalidation),
            notifications=choices,
            unsubscribe_links=links,
            push=push,
        )


def _transport(settings: Settings) -> MailTransport:
    if settings.mail_url is None:
        return NoMailServer()
    url = settings.mail_url.reveal()
    return SmtpTransport(url, ca=settings.mail_ca, plaintext=settings.mail_plaintext)


def _messages(settings: Settings) -> PushMessages | None:
    key, contact = settings.vapid_key, settings.vapid_contact
    return None if key is None or contact is None else PushMessages(key, contact)


async def _prepare(engine: AsyncEngine) -> None:
    """Create the default features and the corpus, by one process at a time."""
    async with engine.begin() as sql:
        await advisory_lock(sql, "preparing scripture")
        await ensure_features(sql)
        await ensure_corpus(sql)
