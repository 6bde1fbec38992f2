"""The keys that tokens are signed with: made at the first start, kept in SQL, rotated when an admin says so.

All processes of the service share them. Each looks for changes every few seconds, so a new key is known to
all long before it signs (`key_ahead`). Keys that verify nothing any more are deleted at the next rotation.
With a `key_password` what SQL holds is encrypted.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.patterns.tokens import KeyRing, SigningKey
from ephemera_services.identity.keys import REFRESH_LIVES
from ephemera_services.identity.tables import signing_keys
from ephemera_services.runtime import InvalidSettings, Secret, advisory_lock, cancel_and_wait, problem

_OVERLAP = REFRESH_LIVES + timedelta(days=1)  # longer than the longest token lives
_LOOK_EVERY = 5.0  # seconds
_LOCK = "identity signing keys"

logger = logging.getLogger(__name__)


class SigningKeys:
    """The service's key ring, and its copy in SQL."""

    def __init__(self, engine: AsyncEngine, password: Secret | None) -> None:
        self._engine = engine
        self._password = None if password is None else password.reveal().encode()
        self.ring = KeyRing([], _OVERLAP)

    @classmethod
    @asynccontextmanager
    async def opened(cls, engine: AsyncEngine, password: Secret | None) -> AsyncIterator[SigningKeys]:
        """The keys, the first one made if there is none, and kept up to date meanwhile."""
        keys = cls(engine, password)
        async with engine.begin() as sql:
            await advisory_lock(sql, _LOCK)
            await keys._load(sql)
            if not keys.ring.keys:
                keys.ring.keys = (await asyncio.to_thread(KeyRing.generate, overlap=_OVERLAP)).keys
                await keys._insert(sql, keys.ring.keys[0])
        looking = asyncio.create_task(keys._look(), name="identity-signing-keys")
        try:
            yield keys
        finally:
            await cancel_and_wait([looking])

    async def rotate(self, ahead: timedelta) -> SigningKey:
        """A new key, published now, that signs from `ahead` on; 409 while another waits for that."""
        async with self._engine.begin() as sql:
            await advisory_lock(sql, _LOCK)
            await self._load(sql)
            if self.ring.keys[-1].signs_from > time.time():
                raise problem(409, "A new key is published already and waits for its time to sign.")
            ring = KeyRing(list(self.ring.keys), _OVERLAP)
            fresh = await asyncio.to_thread(ring.rotate, ahead=ahead)
            await self._insert(sql, fresh)
            for key in ring.keys[:-1]:
                change = update(signing_keys).where(signing_keys.c.kid == key.kid)
                await sql.execute(change.values(verifies_until=key.verifies_until))
            kept = [key.kid for key in ring.keys]
            await sql.execute(delete(signing_keys).where(signing_keys.c.kid.not_in(kept)))
        self.ring.keys = ring.keys
        logger.info("a new signing key", extra={"kid": fresh.kid})
        return fresh

    async def _look(self) -> None:
        """Learn of the rotations of other processes."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            with suppress(SQLAlchemyError):  # what is known is good enough while SQL is away
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
        if row.encrypted and self._password is None:
            raise InvalidSettings(["EPHEMERA_IDENTITY_KEY_PASSWORD must be set: the signing keys have one"])
        try:
            return SigningKey.from_pem(
                row.pem,
                password=self._password if row.encrypted else None,
                signs_from=row.signs_from,
                verifies_until=row.verifies_until,
            )
        except ValueError:
            problem = "EPHEMERA_IDENTITY_KEY_PASSWORD is not the password of the signing keys in SQL"
            raise InvalidSettings([problem]) from None

    async def _insert(self, sql: AsyncConnection, key: SigningKey) -> None:
        row = {
            "kid": key.kid,
            "pem": key.pem(password=self._password),
            "encrypted": self._password is not None,
            "signs_from": key.signs_from,
            "verifies_until": math.inf,
        }
        await sql.execute(insert(signing_keys).values(row))
