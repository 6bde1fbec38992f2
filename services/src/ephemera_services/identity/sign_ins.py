"""Sign-ins: created with a password, renewed by refresh tokens, and ended.

A sign-in is a row in SQL, and a family of tokens that carry its id: short-lived access tokens, and one
refresh token at a time. SQL knows the current refresh token and whether the sign-in has ended, so losing
Redis revives nothing. Redis revokes access tokens at their next request, in every process.

*Refreshing* replaces the refresh token in one UPDATE that names the old one. A used refresh token means that
it was copied, so the whole family is revoked. It requires Redis: while revocations cannot be checked the
answer is 503, and the refresh token stays valid.

*Role changes.* Tokens are issued at a time of Redis' clock that is read before the account. A role change is
committed first and revoked after, so a token either has the new role or is older than the revocation.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera import Store
from ephemera.errors import ConnectionFailed, InvalidToken, SessionsRevoked
from ephemera.patterns.tokens import Claims, Tokens
from ephemera.web import unavailable
from ephemera_services.identity.keys import (
    ACCESS_TOKEN_LIFETIME,
    REFRESH_TOKEN_LIFETIME,
    REVOKED,
    SESSIONS,
    SessionRecord,
)
from ephemera_services.identity.tables import sign_ins, users
from ephemera_services.runtime import unauthorized

_REUSED = "This refresh token was used before, so its whole sign-in is revoked: sign in again."
_ENDED = "This sign-in has ended: sign in again."


class Origin(NamedTuple):
    """The client of a request."""

    ip_address: str
    user_agent: str


class Issued(NamedTuple):
    """The tokens of a sign-in."""

    user_id: UUID
    sid: UUID
    access_token: str
    refresh_token: str


class SignIns:
    """The sign-ins of all users."""

    def __init__(self, engine: AsyncEngine, store: Store, tokens: Tokens) -> None:
        self._engine = engine
        self._records = store[SESSIONS]
        self._revoked = store[REVOKED]
        self._tokens = tokens

    async def begin(self, user_id: UUID, origin: Origin) -> Issued:
        """Sign a user in whose password was verified."""
        sign_in, now = await asyncio.gather(
            self._records.begin_sign_in(str(user_id)), self._revoked.now(str(user_id))
        )
        sid, refresh_id = uuid4(), uuid4().hex
        row = {
            "id": sid,
            "user_id": user_id,
            "refresh_id": refresh_id,
            "expires_at": _datetime(now) + REFRESH_TOKEN_LIFETIME,
            **origin._asdict(),
        }
        async with self._engine.begin() as sql:
            role = await _role(sql, user_id)
            expired = (sign_ins.c.user_id == user_id) & (sign_ins.c.expires_at < func.now())
            await sql.execute(delete(sign_ins).where(expired))
            await sql.execute(insert(sign_ins).values(row))
        return await self._issue(user_id, sid, refresh_id, role, now, origin, sign_in)

    async def refresh(self, token: str, origin: Origin) -> Issued:
        """Exchange a refresh token for new tokens; 401 if it is not valid."""
        claims = await self._current(token)
        user_id, sid, refresh_id = UUID(claims.sub), UUID(claims.family), uuid4().hex
        sign_in, now = await asyncio.gather(
            self._records.begin_sign_in(claims.sub), self._revoked.now(claims.sub)
        )
        async with self._engine.begin() as sql:
            changed = await sql.execute(
                update(sign_ins)
                .where(
                    sign_ins.c.id == sid,
                    sign_ins.c.user_id == user_id,
                    sign_ins.c.refresh_id == claims.jti,
                    sign_ins.c.ended_at.is_(None),
                )
                .values(
                    refresh_id=refresh_id,
                    refreshed_at=func.now(),
                    expires_at=_datetime(now) + REFRESH_TOKEN_LIFETIME,
                    **origin._asdict(),
                )
            )
            role = await _role(sql, user_id) if changed.rowcount else ""
        if not changed.rowcount:
            await self.end(user_id, sid)
            raise unauthorized(_REUSED)
        with suppress(ConnectionFailed):  # SQL already refuses it
            await self._revoked.revoke_token("refresh", claims.jti, until=claims.exp)
        issued = await self._issue(user_id, sid, refresh_id, role, now, origin, sign_in)
        with suppress(ConnectionFailed):
            await self._drop_records(claims.sub, str(sid), but=refresh_id)
        return issued

    async def is_valid(self, claims: Claims) -> bool:
        """Whether, according to SQL, an access token's sign-in is active and its role is current."""
        wanted = select(users.c.role).where(
            users.c.id == sign_ins.c.user_id,
            sign_ins.c.id == UUID(claims.family),
            sign_ins.c.user_id == UUID(claims.sub),
            sign_ins.c.ended_at.is_(None),
        )
        async with self._engine.connect() as sql:
            role = (await sql.execute(wanted)).scalar_one_or_none()
        return role is not None and role == claims.extra.get("role")

    async def end(self, user_id: UUID, sid: UUID) -> bool:
        """End a sign-in and revoke its tokens; False if the user has no such sign-in. Idempotent."""
        ending = update(sign_ins).where(sign_ins.c.id == sid, sign_ins.c.user_id == user_id)
        ending = ending.values(ended_at=func.coalesce(sign_ins.c.ended_at, func.now()))
        async with self._engine.begin() as sql:
            done = await sql.execute(ending.returning(sign_ins.c.refresh_id, sign_ins.c.expires_at))
            row = done.one_or_none()
        if row is None:
            return False
        await asyncio.gather(
            self._revoked.revoke_family(str(sid)),
            self._revoked.revoke_token("refresh", row.refresh_id, until=row.expires_at),
            self._drop_records(str(user_id), str(sid)),
        )
        return True

    async def end_by(self, claims: Claims) -> None:
        """Sign out: end the sign-in of an access token, and revoke the token."""
        await self.end(UUID(claims.sub), UUID(claims.family))
        await self._revoked.revoke_token("access", claims.jti, until=claims.exp)

    async def end_all(self, user_id: UUID) -> int:
        """End all sign-ins of a user, effective at their next request in every process; their number."""
        ending = update(sign_ins).where(sign_ins.c.user_id == user_id, sign_ins.c.ended_at.is_(None))
        async with self._engine.begin() as sql:
            ended = (await sql.execute(ending.values(ended_at=func.now()))).rowcount
        await self._revoked.revoke_user(str(user_id))
        await self._records.end_all(str(user_id))
        return ended

    async def of_user(self, user_id: UUID) -> list[tuple[Any, bool | None]]:
        """A user's sign-ins, newest first, each with whether it is active; None if that is unknown."""
        wanted = select(sign_ins).where(
            sign_ins.c.user_id == user_id,
            sign_ins.c.ended_at.is_(None),
            sign_ins.c.expires_at > func.now(),
        )
        async with self._engine.connect() as sql:
            rows = (await sql.execute(wanted.order_by(sign_ins.c.created_at.desc()))).all()
        try:
            listed = await self._records.of_user(str(user_id))
        except ConnectionFailed:
            return [(row, None) for row in rows]
        active = {each.session.session_id for each in listed}
        return [(row, str(row.id) in active) for row in rows]

    async def _current(self, token: str) -> Claims:
        """Return the claims of a refresh token unless Redis has it as revoked, or cannot be asked."""
        try:
            claims = self._tokens.verify(token, kind="refresh")
            user_id, sid = UUID(claims.sub), UUID(claims.family)
        except (InvalidToken, ValueError, TypeError):
            raise unauthorized("The refresh token is not valid.") from None
        verdict = await self._revoked.check(
            "refresh", jti=claims.jti, user=claims.sub, issued_at=claims.iat, family=claims.family
        )
        if not verdict.certain:
            raise unavailable("This sign-in cannot be checked at the moment; please try again.")
        if verdict.by == "token":
            await self.end(user_id, sid)
            raise unauthorized(_REUSED)
        if verdict.revoked:
            raise unauthorized(_ENDED)
        return claims

    async def _issue(
        self, user_id: UUID, sid: UUID, refresh_id: str, role: str, now: float, origin: Origin, sign_in: str
    ) -> Issued:
        """Sign the tokens, and record in Redis that the sign-in is active."""
        user, family, access_id = str(user_id), str(sid), uuid4().hex
        record = SessionRecord(
            user_id=user,
            session_id=family,
            access_id=access_id,
            refresh_id=refresh_id,
            created_at=_datetime(now),
            expires_at=_datetime(now) + timedelta(milliseconds=self._records.lifetime),
            **origin._asdict(),
        )
        try:
            with suppress(ConnectionFailed):  # the record is only for lists
                await self._records.create(record, sign_in=sign_in)
        except SessionsRevoked:
            raise unavailable("Your account was just changed; please try again.") from None
        usual: dict[str, Any] = {"sub": user, "iat": now, "family": family}
        access = Claims(
            **usual,
            jti=access_id,
            kind="access",
            exp=_expiry(now, ACCESS_TOKEN_LIFETIME),
            extra={"role": role},
        )
        refresh = Claims(**usual, jti=refresh_id, kind="refresh", exp=_expiry(now, REFRESH_TOKEN_LIFETIME))
        return Issued(user_id, sid, self._tokens.sign(access), self._tokens.sign(refresh))

    async def _drop_records(self, user: str, sid: str, but: str | None = None) -> None:
        """Delete the records of a sign-in, except that of the refresh token `but`."""
        for listed in await self._records.of_user(user):
            if listed.session.session_id == sid and listed.session.refresh_id != but:
                await self._records.end_by_id(user, listed.id)


async def _role(sql: AsyncConnection, user_id: UUID) -> str:
    role = (await sql.execute(select(users.c.role).where(users.c.id == user_id))).scalar_one_or_none()
    if role is None:
        raise unauthorized(_ENDED)
    return str(role)


def _datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _expiry(now: float, lifetime: timedelta) -> int:
    return int(now + lifetime.total_seconds())
