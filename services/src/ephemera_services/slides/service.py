"""The running service: its parts, opened together and closed in reverse order."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from ephemera import Store
from ephemera.patterns.usage import BoundUsage
from ephemera.patterns.write_behind import CounterTable, Flusher
from ephemera_services.runtime import BearerTokens, OpenStreams, Passwords, Resources, advisory_lock
from ephemera_services.slides import demo_data
from ephemera_services.slides.access import Gate
from ephemera_services.slides.accounts import Accounts
from ephemera_services.slides.api_keys import ApiKeys
from ephemera_services.slides.brand_kits import BrandKits
from ephemera_services.slides.embedded_workers import embedded_workers
from ephemera_services.slides.keys import JOBS, USAGE, VIEWS
from ephemera_services.slides.plans import Plans
from ephemera_services.slides.redis_retry import RetryQueue
from ephemera_services.slides.settings import Settings
from ephemera_services.slides.slide_editor import SlideEditor
from ephemera_services.slides.tables import shares
from ephemera_services.slides.usage_counts import UsageRecount
from ephemera_services.slides.webhooks import Webhooks
from ephemera_services.slides.workspace import Workspace

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Slides:
    """The parts that the routes use."""

    settings: Settings
    store: Store
    gate: Gate
    plans: Plans
    accounts: Accounts
    passwords: Passwords
    api_keys: ApiKeys
    streams: OpenStreams
    workspace: Workspace
    editor: SlideEditor
    brand_kits: BrandKits
    recount: UsageRecount
    webhooks: Webhooks
    usage: BoundUsage
    operator_token: BearerTokens | None


@asynccontextmanager
async def open_slides(settings: Settings, resources: Resources) -> AsyncIterator[Slides]:
    """Open the service; it flushes views and usage, and with embedded servers also runs workers."""
    engine, store = resources.engine, resources.store
    async with AsyncExitStack() as stack:
        retries = await stack.enter_async_context(RetryQueue())
        passwords = Passwords(memory=settings.password_memory)
        stack.callback(passwords.close)
        usage = store[USAGE]
        view_table = CounterTable(engine, shares, VIEWS, insert=False)
        workspace = Workspace(engine, store, settings, jobs=store[JOBS], usage=usage, view_table=view_table)
        slides = Slides(
            settings=settings,
            store=store,
            gate=Gate(store, settings),
            plans=Plans(engine, store, retries),
            accounts=Accounts(engine, store, passwords),
            passwords=passwords,
            api_keys=ApiKeys(engine),
            streams=OpenStreams(settings.streams_per_user),
            workspace=workspace,
            editor=SlideEditor(engine, workspace),
            brand_kits=BrandKits(engine),
            recount=UsageRecount(engine, usage, settings.cost_micros_per_1k_tokens),
            usage=usage,
            webhooks=Webhooks(engine, store, anywhere=settings.webhooks_anywhere),
            operator_token=_operator_token(settings),
        )
        async with engine.begin() as sql:
            # Processes that start in parallel would each create the organization, and split its users.
            await advisory_lock(sql, "first accounts of slides")
            await _ensure_administrator(slides)
            if settings.demo:
                await demo_data.seed(slides)
        await stack.enter_async_context(slides.accounts.sign_outs.run())
        await stack.enter_async_context(usage.flusher(flush_every=settings.usage_flush))
        views = Flusher(store[VIEWS], view_table, flush_every=settings.views_flush)
        await stack.enter_async_context(views)
        await stack.enter_async_context(slides.webhooks.run())
        await stack.enter_async_context(embedded_workers(settings, resources))
        yield slides


def _operator_token(settings: Settings) -> BearerTokens | None:
    secret = settings.operator_token
    return None if secret is None else BearerTokens("EPHEMERA_SLIDES_OPERATOR_TOKEN", secret)


async def _ensure_administrator(slides: Slides) -> None:
    email, password, name = (
        slides.settings.admin_email,
        slides.settings.admin_password,
        slides.settings.organization,
    )
    if email is None or password is None or await slides.accounts.id_of(name, email) is not None:
        return
    organization_id = await slides.accounts.add_organization(name)
    await slides.accounts.add(organization_id, email, password.reveal(), "admin")
    logger.info("created the administrator")
