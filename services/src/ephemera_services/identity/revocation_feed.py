"""The sign-ins and tokens that were revoked recently, for services that accept identity's access tokens.

    GET /.well-known/ended-sign-ins                 {"cursor": "7213", "ended": ["5f1c...", ...]}
    GET /.well-known/ended-sign-ins?after=7213      those that ended since

A service that verifies tokens by the key set alone would accept them until they expire, even after a
sign-out, a role change or the reuse of a refresh token. Each of these ends sign-ins, and every access token
names its own (the claim `family`). An access token may also be revoked alone, by its id (the claim `jti`). So
it is enough to know which of both ended within the lifetime of an access token. The list has a digest of each
id, `sha256(id)[:32]` in hexadecimal: it is public like the key set, needs no credentials, and reveals to a
reader who does not hold the token only how many were revoked.

*Nothing is missed.* A row has the number of the transaction that ended it. The cursor is the oldest
transaction that was still running when the list was read, so what commits later comes with the next request,
whichever process of identity answers it. Entries may be repeated.

*Cost.* Each process reads SQL at most every 100 ms, however many requests there are, and answers from memory.
A reader whose cursor is current gets a few entries. Others get up to all of them, so these reads are limited
by address.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from datetime import timedelta
from hashlib import sha256

from sqlalchemy import Text, cast, func, select, text, union_all
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera_services.identity.keys import ACCESS_TOKEN_LIFETIME
from ephemera_services.identity.tables import revoked_tokens, sign_ins

_MAX_AGE = 0.1  # seconds
_RECENT = 60.0  # seconds; a reader asks twice per second, and a long transaction keeps all cursors back alike
_RETENTION = ACCESS_TOKEN_LIFETIME + timedelta(minutes=1)
_OLDEST_RUNNING = text("pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest")


class RevocationFeed:
    """The ended sign-ins and revoked tokens, as SQL has them."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._ended: deque[tuple[int, str, float]] = deque()  # transaction, digest, when it can be dropped
        self._cursor = 0
        self._read_at = -_MAX_AGE
        self._recent, self._marked, self._marked_at = 1, 1, -_RECENT  # cursors; 0 is never recent
        self._reading = asyncio.Lock()

    def is_recent(self, cursor: int) -> bool:
        """Whether a reader with this cursor has read the list about a minute ago or later."""
        return cursor >= self._recent

    async def after(self, cursor: int) -> tuple[int, list[str]]:
        """The next cursor, and the digests of what was revoked since a cursor; 0 for all."""
        async with self._reading:
            if time.monotonic() - self._read_at >= _MAX_AGE:
                await self._read()
        return self._cursor, [digest for number, digest, _ in self._ended if number >= cursor]

    async def _read(self) -> None:
        now = time.monotonic()
        recently = func.now() - _RETENTION
        families = select(cast(sign_ins.c.id, Text).label("id"), sign_ins.c.ended_by).where(
            sign_ins.c.ended_by >= self._cursor, sign_ins.c.ended_at > recently
        )
        alone = select(revoked_tokens.c.id, revoked_tokens.c.revoked_by).where(
            revoked_tokens.c.revoked_by >= self._cursor, revoked_tokens.c.revoked_at > recently
        )
        async with self._engine.connect() as sql:
            # First the oldest running transaction, then the rows: what commits in between is in both.
            oldest = (await sql.execute(select(_OLDEST_RUNNING))).scalar_one()
            rows = (await sql.execute(union_all(families, alone).order_by("ended_by"))).all()
        while self._ended and self._ended[0][2] < now:
            self._ended.popleft()
        known = {digest for number, digest, _ in self._ended if number >= self._cursor}
        drop_at = now + _RETENTION.total_seconds()
        for row in rows:
            digest = digest_of(row.id)
            if digest not in known:
                self._ended.append((row.ended_by, digest, drop_at))
        self._cursor, self._read_at = oldest, now
        if now - self._marked_at >= _RECENT:
            self._recent, self._marked, self._marked_at = self._marked, oldest, now


def digest_of(revoked: str) -> str:
    """The digest of the id of a sign-in or of a token, as the list has it."""
    return sha256(revoked.encode()).hexdigest()[:32]
