"""The running service: its parts, opened together and closed in reverse order."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from ephemera import Store
from ephemera.patterns.usage import BoundUsage
from ephemera.patterns.write_behind import CounterTable, Flusher, create_tables
from ephemera_services.runtime import Passwords, Resources, advisory_lock
from ephemera_services.slides import demo_data
from ephemera_services.slides.access import Gate
from ephemera_services.slides.accounts import Accounts
from ephemera_services.slides.embedded_worker import embedded_worker
from ephemera_services.slides.keys import JOBS, USAGE, VIEWS
from ephemera_services.slides.plans import Plans
from ephemera_services.slides.redis_retry import RetryQueue
from ephemera_services.slides.settings import Settings
from ephemera_services.slides.tables import shares
from ephemera_services.slides.workspace import Workspace

_WRITE_DELAY = timedelta(seconds=2)
"""The queue's server may lose its last second (appendfsync everysec); flushed counts must not reappear."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Slides:
    """The parts that the routes use."""

    settings: Settings
    store: Store
    gate: Gate
    plans: Plans
    accounts: Accounts
    workspace: Workspace
    usage: BoundUsage


@asynccontextmanager
async def open_slides(settings: Settings, resources: Resources) -> AsyncIterator[Slides]:
    """Open the service; it flushes views and usage, and with embedded servers also runs workers."""
    engine, store = resources.engine, resources.store
    await create_tables(engine)
    async with AsyncExitStack() as stack:
        retries = await stack.enter_async_context(RetryQueue())
        passwords = Passwords(memory=settings.password_memory)
        stack.callback(passwords.close)
        usage = store[USAGE]
        view_table = CounterTable(engine, shares, VIEWS, insert=False)
        slides = Slides(
            settings=settings,
            store=store,
            gate=Gate(store, settings),
            plans=Plans(engine, store, retries),
            accounts=Accounts(engine, store, passwords, retries),
            workspace=Workspace(engine, store, store[JOBS], usage, view_table),
            usage=usage,
        )
        async with engine.begin() as sql:
            # Processes that start in parallel would each create the organization, and split its users.
            await advisory_lock(sql, "first accounts of slides")
            await _ensure_administrator(slides)
            if settings.demo:
                await demo_data.seed(slides)
        await stack.enter_async_context(
            usage.flusher(flush_every=settings.usage_flush, write_delay=_WRITE_DELAY)
        )
        views = Flusher(store[VIEWS], view_table, flush_every=settings.views_flush, write_delay=_WRITE_DELAY)
        await stack.enter_async_context(views)
        await stack.enter_async_context(embedded_worker(settings, resources))
        yield slides


async def _ensure_administrator(slides: Slides) -> None:
    email, password = slides.settings.admin_email, slides.settings.admin_password
    if email is None or password is None or await slides.accounts.id_of(email) is not None:
        return
    organization_id = await slides.accounts.add_organization(slides.settings.organization)
    await slides.accounts.add(organization_id, email, password.reveal(), "admin")
    logger.info("created the administrator")
