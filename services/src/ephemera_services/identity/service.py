"""The running service: its parts, opened together and closed in reverse order."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.patterns.tokens import Tokens
from ephemera.web import Problem
from ephemera_services.identity.access import Gate
from ephemera_services.identity.accounts import Accounts
from ephemera_services.identity.redis_stats import RedisStatistics
from ephemera_services.identity.settings import Settings
from ephemera_services.identity.sign_ins import SignIns
from ephemera_services.identity.signing_keys import SigningKeys
from ephemera_services.runtime import Passwords, Resources

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Identity:
    """The parts that the routes use."""

    settings: Settings
    engine: AsyncEngine
    accounts: Accounts
    passwords: Passwords
    keys: SigningKeys
    sign_ins: SignIns
    gate: Gate
    redis: RedisStatistics


@asynccontextmanager
async def open_identity(settings: Settings, resources: Resources) -> AsyncIterator[Identity]:
    """Open the service; create its signing keys and, if configured, its first administrator."""
    engine, store = resources.engine, resources.store
    async with SigningKeys.open(engine, settings.key_password) as keys:
        tokens = Tokens(keys.ring, settings.issuer, settings.audience)
        sign_ins = SignIns(engine, store, tokens)
        identity = Identity(
            settings=settings,
            engine=engine,
            accounts=Accounts(engine, store),
            passwords=Passwords(settings.password_memory),
            keys=keys,
            sign_ins=sign_ins,
            gate=Gate(store, keys.ring, tokens, sign_ins, settings),
            redis=RedisStatistics(resources.redis_urls),
        )
        try:
            await _ensure_administrator(identity)
            yield identity
        finally:
            identity.passwords.close()
            await identity.accounts.aclose()


async def _ensure_administrator(identity: Identity) -> None:
    email, password = identity.settings.admin_email, identity.settings.admin_password
    if email is None or password is None or await identity.accounts.by_email(email) is not None:
        return
    password_hash = await identity.passwords.hash(password.reveal())
    profile = {"first_name": "Administrator", "last_name": "", "phone": "", "address": ""}
    try:
        await identity.accounts.register(email, password_hash, "admin", **profile)
    except Problem:  # another process created it
        return
    logger.info("created the administrator")
