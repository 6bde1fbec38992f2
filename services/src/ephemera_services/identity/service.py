"""The running service: its parts, opened together and closed in reverse order."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera.patterns.tokens import Tokens
from ephemera_services.identity.access import Gate
from ephemera_services.identity.account_changes import AccountChanges
from ephemera_services.identity.accounts import Accounts
from ephemera_services.identity.background import BackgroundTasks
from ephemera_services.identity.directory import UserDirectory
from ephemera_services.identity.documents import DocumentQuota, Documents
from ephemera_services.identity.mailer import Mailer
from ephemera_services.identity.redis_stats import RedisStatistics
from ephemera_services.identity.revocation_feed import RevocationFeed
from ephemera_services.identity.security_log import SecurityLog
from ephemera_services.identity.settings import Settings
from ephemera_services.identity.sign_ins import SignIns
from ephemera_services.identity.signing_keys import SigningKeys, key_password
from ephemera_services.identity.token_status import TokenStatus
from ephemera_services.identity.upkeep import upkeep
from ephemera_services.identity.user_events import UserEvents
from ephemera_services.runtime import (
    BearerTokens,
    MailFolder,
    MailTransport,
    NoMailServer,
    Passwords,
    Resources,
    SmtpTransport,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Identity:
    """The parts that the routes use."""

    settings: Settings
    engine: AsyncEngine
    accounts: Accounts
    changes: AccountChanges
    directory: UserDirectory
    documents: Documents
    passwords: Passwords
    keys: SigningKeys
    sign_ins: SignIns
    tokens: TokenStatus
    introspection_tokens: BearerTokens | None
    log: SecurityLog
    mailer: Mailer
    ended: RevocationFeed
    gate: Gate
    redis: RedisStatistics


@asynccontextmanager
async def open_identity(settings: Settings, resources: Resources) -> AsyncIterator[Identity]:
    """Open the service; create its signing keys and, if configured, its first administrator."""
    engine, store = resources.engine, resources.store
    async with AsyncExitStack() as stack:
        keys = await stack.enter_async_context(SigningKeys.open(engine, key_password(settings)))
        background = BackgroundTasks()
        stack.push_async_callback(background.aclose)
        events = await stack.enter_async_context(UserEvents.open(engine, settings, background))
        transport = _mail_transport(settings, stack)
        mailer = Mailer(engine, transport, settings.mail_from, settings.public_url)
        accounts = Accounts(engine, store, mailer, events)
        stack.push_async_callback(accounts.aclose)
        tokens = Tokens(keys.ring, settings.issuer, settings.audience)
        sign_ins = SignIns(engine, store, tokens, settings.sign_in_lifetime)
        identity = Identity(
            settings=settings,
            engine=engine,
            accounts=accounts,
            changes=AccountChanges(engine, accounts, sign_ins, mailer, events),
            directory=UserDirectory(engine),
            documents=Documents(
                engine, DocumentQuota(settings.documents_per_user, settings.document_bytes_per_user)
            ),
            passwords=Passwords(settings.password_memory),
            keys=keys,
            sign_ins=sign_ins,
            tokens=TokenStatus(store, tokens, sign_ins),
            introspection_tokens=_introspection_tokens(settings),
            log=SecurityLog(engine, background),
            mailer=mailer,
            ended=RevocationFeed(engine),
            gate=Gate(store, keys.ring, tokens, sign_ins, settings),
            redis=RedisStatistics(resources.redis_urls),
        )
        stack.callback(identity.passwords.close)
        await _ensure_administrator(identity)
        await stack.enter_async_context(mailer.run())
        await stack.enter_async_context(upkeep(engine))
        yield identity


def _mail_transport(settings: Settings, stack: AsyncExitStack) -> MailTransport:
    """The mail server, or a folder; in production, without either, nothing is sent."""
    if settings.mail_url is not None:
        url = settings.mail_url.reveal()
        return SmtpTransport(url, ca=settings.mail_ca, plaintext=settings.mail_plaintext)
    if settings.mail_folder is not None:
        folder = settings.mail_folder
    elif settings.data is not None:
        folder = str(Path(settings.data) / "identity" / "mail")
    elif settings.development:
        folder = stack.enter_context(TemporaryDirectory(prefix="identity-mail-"))
    else:
        logger.warning("no mail is sent: set EPHEMERA_IDENTITY_MAIL_URL")
        return NoMailServer()
    logger.info("mails are written to a folder", extra={"folder": folder})
    return MailFolder(folder)


def _introspection_tokens(settings: Settings) -> BearerTokens | None:
    if settings.introspection_tokens is None:
        return None
    return BearerTokens("EPHEMERA_IDENTITY_INTROSPECTION_TOKENS", settings.introspection_tokens)


async def _ensure_administrator(identity: Identity) -> None:
    email, password = identity.settings.admin_email, identity.settings.admin_password
    if email is None or password is None or await identity.accounts.by_email(email) is not None:
        return
    password_hash = await identity.passwords.hash(password.reveal())
    profile = {"first_name": "Administrator", "last_name": "", "phone": "", "address": ""}
    if await identity.accounts.register(email, password_hash, profile, role="admin") is not None:
        logger.info("created the administrator")  # otherwise another process did
