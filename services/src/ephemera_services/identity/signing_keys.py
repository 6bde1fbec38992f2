"""The keys that sign tokens: created at the first start, stored in SQL, rotated by an administrator.

All processes of the service share them. Each polls for changes every few seconds, so every process knows a
new key long before it signs (`key_ahead`). Keys that no longer verify anything are deleted at the next
rotation. Private keys are always encrypted in SQL, by EPHEMERA_IDENTITY_KEY_PASSWORD: a backup of the
database must not be enough to sign tokens. Without the setting, an embedded database has a random password,
beside its data if that is kept, and a service in development a public one, with a warning.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.patterns.tokens import KeyRing, SigningKey
from ephemera_services.identity.keys import REFRESH_TOKEN_LIFETIME
from ephemera_services.identity.settings import Settings
from ephemera_services.identity.tables import signing_keys
from ephemera_services.runtime import InvalidSettings, Secret, advisory_lock, cancel_and_wait, problem

_OVERLAP = REFRESH_TOKEN_LIFETIME + timedelta(days=1)  # longer than any token is valid
_POLL_INTERVAL = 5.0  # seconds
_LOCK = "identity signing keys"

_DEVELOPMENT_PASSWORD = Secret("development only: anyone can read this")

logger = logging.getLogger(__name__)


def key_password(settings: Settings) -> Secret:
    """What encrypts the private keys, for settings that were checked."""
    if settings.key_password is not None:
        return settings.key_password
    if settings.database_url is not None:
        logger.warning("the signing keys are encrypted with a public password: only for development")
        return _DEVELOPMENT_PASSWORD
    if settings.data is None:
        return Secret(secrets.token_urlsafe(32))
    return _stored_password(Path(settings.data) / settings.service / "key_password")


def _stored_password(path: Path) -> Secret:
    """Read the password of an embedded database that is kept, or create it, for this user alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return Secret(path.read_text(encoding="utf-8"))
    with os.fdopen(descriptor, "w", encoding="utf-8") as created:
        created.write(secrets.token_urlsafe(32))
    return Secret(path.read_text(encoding="utf-8"))


class SigningKeys:
    """The service's key ring, as stored in SQL."""

    def __init__(self, engine: AsyncEngine, password: Secret) -> None:
        self._engine = engine
        self._password = password.reveal().encode()
        self.ring = KeyRing([], _OVERLAP)

    @classmethod
    @asynccontextmanager
    async def open(cls, engine: AsyncEngine, password: Secret) -> AsyncIterator[SigningKeys]:
        """Load the keys, create the first one if there is none, and poll for changes in the meantime."""
        keys = cls(engine, password)
        async with engine.begin() as sql:
            await advisory_lock(sql, _LOCK)
            await keys._load(sql)
            if not keys.ring.keys:
                keys.ring.keys = (await asyncio.to_thread(KeyRing.generate, overlap=_OVERLAP)).keys
                await keys._insert(sql, keys.ring.keys[0])
        polling = asyncio.create_task(keys._poll(), name="identity-signing-keys")
        try:
            yield keys
        finally:
            await cancel_and_wait([polling])

    async def rotate(self, ahead: timedelta) -> SigningKey:
        """Publish a new key that signs after `ahead`; 409 while another one is waiting."""
        async with self._engine.begin() as sql:
            await advisory_lock(sql, _LOCK)
            await self._load(sql)
            if self.ring.keys[-1].signs_from > time.time():
                raise problem(409, "A new key is already published and does not sign yet.")
            ring = KeyRing(list(self.ring.keys), _OVERLAP)
            fresh = await asyncio.to_thread(ring.rotate, ahead=ahead)
            await self._insert(sql, fresh)
            for key in ring.keys[:-1]:
                change = update(signing_keys).where(signing_keys.c.kid == key.kid)
                await sql.execute(change.values(verifies_until=key.verifies_until))
            remaining = [key.kid for key in ring.keys]
            await sql.execute(delete(signing_keys).where(signing_keys.c.kid.not_in(remaining)))
        self.ring.keys = ring.keys
        logger.info("published a signing key", extra={"kid": fresh.kid})
        return fresh

    async def _poll(self) -> None:
        """Load the rotations of other processes."""
        while True:
            await asyncio.sleep(_POLL_INTERVAL)
            with suppress(SQLAlchemyError):  # the known keys are good enough while SQL is down
                async with self._engine.connect() as sql:
                    await self._load(sql)

    async def _load(self, sql: AsyncConnection) -> None:
        known = {key.kid: key for key in self.ring.keys}
        rows = (await sql.execute(select(signing_keys).order_by(signing_keys.c.signs_from))).all()
        loaded = [known.get(row.kid) or self._key(row) for row in rows]
        for key, row in zip(loaded, rows, strict=True):
            key.verifies_until = row.verifies_until
        if loaded and loaded != self.ring.keys:
            self.ring.keys = loaded

    def _key(self, row: Any) -> SigningKey:
        try:
            return SigningKey.from_pem(
                row.pem,
                password=self._password,
                signs_from=row.signs_from,
                verifies_until=row.verifies_until,
            )
        except ValueError:
            problem = "EPHEMERA_IDENTITY_KEY_PASSWORD does not decrypt the signing keys in SQL"
            raise InvalidSettings([problem]) from None

    async def _insert(self, sql: AsyncConnection, key: SigningKey) -> None:
        row = {
            "kid": key.kid,
            "pem": key.pem(password=self._password),
            "signs_from": key.signs_from,
            "verifies_until": math.inf,
        }
        await sql.execute(insert(signing_keys).values(row))
