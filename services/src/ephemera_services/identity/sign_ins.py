"""Sign-ins: created with a password, renewed by refresh tokens, and ended.

A sign-in is a row in SQL, and a family of tokens that carry its id: short-lived access tokens, and one
refresh token at a time. SQL knows the current refresh token and whether the sign-in has ended, so losing
Redis revives nothing. Redis revokes access tokens at their next request, in every process.

*Refreshing* replaces the refresh token in one UPDATE that names the old one. A used refresh token means that
it was copied, so the whole family is revoked. It requires Redis: while revocations cannot be checked the
answer is 503, and the refresh token stays valid.

*Role changes.* Tokens are issued at a time of Redis' clock that is read before the account. A role change is
committed first and revoked after, so a token either has the new role or is older than the revocation. In SQL
the change and the end of the user's sign-ins are one transaction, which locks the user's row; a request that
issues tokens reads the role under a shared lock. So every token with an old role belongs to an ended sign-
in, which is what other services learn (`revocation_feed`).

The same holds for a new password, a block and a deletion.

*Absolute end.* Refreshing extends a sign-in by a week, but never beyond `lifetime` after its beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, NoReturn
from uuid import UUID, uuid4

from sqlalchemy import delete, func, insert, select, text, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera import Store
from ephemera.errors import ConnectionFailed, InvalidToken, ServerError, SessionsRevoked
from ephemera.patterns.tokens import Claims, Tokens
from ephemera.web import unavailable
from ephemera_services.identity.keys import (
    ACCESS_TOKEN_LIFETIME,
    REFRESH_TOKEN_LIFETIME,
    REVOKED,
    SESSIONS,
    SessionRecord,
)
from ephemera_services.identity.security_log import Origin, SecurityEvent, record
from ephemera_services.identity.tables import revoked_tokens, sign_ins, users
from ephemera_services.identity.user_locks import ENDED, lock_role, lock_user
from ephemera_services.runtime import unauthorized

_REUSED = "This refresh token was used before, so its whole sign-in is revoked: sign in again."
Change = Callable[[AsyncConnection], Awaitable[object]]
_TRANSACTION = text("pg_current_xact_id()::text::bigint")


class Issued(NamedTuple):
    """The tokens of a sign-in."""

    user_id: UUID
    sid: UUID
    access_token: str
    refresh_token: str


class SignIns:
    """The sign-ins of all users."""

    def __init__(self, engine: AsyncEngine, store: Store, tokens: Tokens, lifetime: timedelta) -> None:
        self._engine = engine
        self._lifetime = lifetime
        self._records = store[SESSIONS]
        self._revoked = store[REVOKED]
        self._tokens = tokens

    async def begin(self, user_id: UUID, origin: Origin, password_version: int) -> Issued:
        """Sign in a user whose password was verified, unless it has changed since."""
        sign_in, now = await asyncio.gather(
            self._records.begin_sign_in(str(user_id)), self._revoked.now(str(user_id))
        )
        sid, refresh_id = uuid4(), uuid4().hex
        began = _datetime(now)
        expires_at = began + min(REFRESH_TOKEN_LIFETIME, self._lifetime)
        row = {
            "id": sid,
            "user_id": user_id,
            "refresh_id": refresh_id,
            "created_at": began,
            "expires_at": expires_at,
            **_client(origin),
        }
        async with self._engine.begin() as sql:
            role = await lock_role(sql, user_id, password_version)
            expired = (sign_ins.c.user_id == user_id) & (sign_ins.c.expires_at < func.now())
            await sql.execute(delete(sign_ins).where(expired))
            await sql.execute(insert(sign_ins).values(row))
            await record(sql, user_id, "signed_in", origin)
        return await self._issue(user_id, sid, refresh_id, role, now, expires_at, origin, sign_in)

    def verify(self, token: str) -> Claims:
        """The claims of a refresh token that we signed and that has not expired; 401 otherwise."""
        try:
            claims = self._tokens.verify(token, kind="refresh")
            UUID(claims.sub), UUID(claims.family)
        except (InvalidToken, ValueError, TypeError):
            raise unauthorized("The refresh token is not valid.") from None
        return claims

    async def refresh(self, claims: Claims, origin: Origin) -> Issued:
        """Exchange a verified refresh token for new tokens; 401 if it was used or its sign-in has ended."""
        await self._check_current(claims, origin)
        user_id, sid, refresh_id = UUID(claims.sub), UUID(claims.family), uuid4().hex
        sign_in, now = await asyncio.gather(
            self._records.begin_sign_in(claims.sub), self._revoked.now(claims.sub)
        )
        async with self._engine.begin() as sql:
            role = await lock_role(sql, user_id)
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
                    expires_at=func.least(
                        _datetime(now) + REFRESH_TOKEN_LIFETIME, sign_ins.c.created_at + self._lifetime
                    ),
                    **_client(origin),
                )
                .returning(sign_ins.c.expires_at)
            )
            expires_at = changed.scalar_one_or_none()
        if expires_at is None:
            await self._refuse(user_id, sid, claims.jti, origin)
        with suppress(ConnectionFailed):  # SQL already refuses it
            await self._revoked.revoke_token("refresh", claims.jti, until=claims.exp)
        issued = await self._issue(user_id, sid, refresh_id, role, now, expires_at, origin, sign_in)
        with suppress(ConnectionFailed):
            await self._drop_records(claims.sub, str(sid), but=refresh_id)
        return issued

    async def is_valid(self, claims: Claims) -> bool:
        """Whether, according to SQL, an access token and its sign-in are active and its role is current."""
        alone = select(revoked_tokens.c.id).where(revoked_tokens.c.id == claims.jti)
        query = select(users.c.role).where(
            users.c.id == sign_ins.c.user_id,
            sign_ins.c.id == UUID(claims.family),
            sign_ins.c.user_id == UUID(claims.sub),
            sign_ins.c.ended_at.is_(None),
            ~alone.exists(),
        )
        async with self._engine.connect() as sql:
            role = (await sql.execute(query)).scalar_one_or_none()
        return role is not None and role == claims.extra.get("role")

    async def is_current(self, claims: Claims) -> bool:
        """Whether a refresh token is the one that its sign-in accepts next."""
        query = select(sign_ins.c.id).where(
            sign_ins.c.id == UUID(claims.family),
            sign_ins.c.user_id == UUID(claims.sub),
            sign_ins.c.refresh_id == claims.jti,
            sign_ins.c.ended_at.is_(None),
            sign_ins.c.expires_at > func.now(),
        )
        async with self._engine.connect() as sql:
            return (await sql.execute(query)).one_or_none() is not None

    async def end(
        self, user_id: UUID, sid: UUID, why: SecurityEvent, origin: Origin, *, refresh_id: str | None = None
    ) -> bool:
        """End a sign-in and revoke its tokens; False if the user has no such sign-in. Idempotent.

        With `refresh_id` only if this is its current refresh token, or was when it ended.
        """
        ending = update(sign_ins).where(sign_ins.c.id == sid, sign_ins.c.user_id == user_id)
        if refresh_id is not None:
            ending = ending.where(sign_ins.c.refresh_id == refresh_id)
        ending = ending.values(
            ended_at=func.coalesce(sign_ins.c.ended_at, func.now()),
            ended_by=func.coalesce(sign_ins.c.ended_by, _TRANSACTION),
        )
        async with self._engine.begin() as sql:
            done = await sql.execute(ending.returning(sign_ins.c.refresh_id, sign_ins.c.expires_at))
            row = done.one_or_none()
            if row is not None:
                await record(sql, user_id, why, origin)
        if row is None:
            return False
        await asyncio.gather(
            self._revoked.revoke_family(str(sid)),
            self._revoked.revoke_token("refresh", row.refresh_id, until=row.expires_at),
            self._drop_records(str(user_id), str(sid)),
        )
        return True

    async def end_by(self, claims: Claims, origin: Origin) -> None:
        """Sign out: end the sign-in of a token, and revoke the token."""
        await self.end(UUID(claims.sub), UUID(claims.family), "signed_out", origin)
        if claims.kind == "access":
            await self._revoked.revoke_token("access", claims.jti, until=claims.exp)

    async def end_by_refresh_token(self, claims: Claims, origin: Origin) -> None:
        """End the sign-in of its current refresh token; an older token ends nothing.

        What has ended is revoked again: the first attempt may have failed between SQL and Redis.
        """
        user, sid = UUID(claims.sub), UUID(claims.family)
        await self.end(user, sid, "signed_out", origin, refresh_id=claims.jti)

    async def revoke_access(self, claims: Claims) -> None:
        """Revoke one access token; its sign-in stays active. SQL has it for other services."""
        row = {"id": claims.jti, "revoked_by": _TRANSACTION}
        adding = postgresql.insert(revoked_tokens).values(row).on_conflict_do_nothing()
        async with self._engine.begin() as sql:
            await sql.execute(adding)
        await self._revoked.revoke_token("access", claims.jti, until=claims.exp)

    async def end_all(self, user_id: UUID, change: Change | None = None, *, keep: UUID | None = None) -> int:
        """End all sign-ins of a user, but for `keep`, effective at their next request; their number.

        `change(sql)` is part of the same transaction, which has locked the user's row. 503 before anything is
        changed if Redis is down.
        """
        await self._revoked.now(str(user_id))
        ending = update(sign_ins).where(sign_ins.c.user_id == user_id, sign_ins.c.ended_at.is_(None))
        if keep is not None:
            ending = ending.where(sign_ins.c.id != keep)
        async with self._engine.begin() as sql:
            await lock_user(sql, user_id)
            done = await sql.execute(
                ending.values(ended_at=func.now(), ended_by=_TRANSACTION).returning(sign_ins.c.id)
            )
            ended = list(done.scalars())
            if change is not None:
                await change(sql)
        await (self._revoke_user(user_id) if keep is None else self._revoke_families(user_id, ended))
        return len(ended)

    async def of_user(self, user_id: UUID) -> list[tuple[Any, bool | None]]:
        """A user's sign-ins, newest first, each with whether it is active; None if that is unknown."""
        query = select(sign_ins).where(
            sign_ins.c.user_id == user_id,
            sign_ins.c.ended_at.is_(None),
            sign_ins.c.expires_at > func.now(),
        )
        async with self._engine.connect() as sql:
            rows = (await sql.execute(query.order_by(sign_ins.c.created_at.desc()))).all()
        try:
            listed = await self._records.of_user(str(user_id))
        except (ConnectionFailed, ServerError):  # also for an index that another program overwrote
            return [(row, None) for row in rows]
        active = {each.session.session_id for each in listed}
        return [(row, str(row.id) in active) for row in rows]

    async def _check_current(self, claims: Claims, origin: Origin) -> None:
        """Refuse a refresh token that Redis has as revoked, or while it cannot be asked."""
        verdict = await self._revoked.check(
            "refresh", jti=claims.jti, user=claims.sub, issued_at=claims.iat, family=claims.family
        )
        if not verdict.certain:
            raise unavailable("This sign-in cannot be checked at the moment; please try again.")
        if verdict.by == "token":
            await self._refuse(UUID(claims.sub), UUID(claims.family), claims.jti, origin)
        if verdict.revoked:
            raise unauthorized(ENDED)

    async def _refuse(self, user_id: UUID, sid: UUID, refresh_id: str, origin: Origin) -> NoReturn:
        """Refuse a refresh token. Only one that was replaced means theft: the last one just came too late."""
        mine = (sign_ins.c.id == sid) & (sign_ins.c.user_id == user_id)
        async with self._engine.connect() as sql:
            current = (await sql.execute(select(sign_ins.c.refresh_id).where(mine))).scalar_one_or_none()
        if current is None or current == refresh_id:
            raise unauthorized(ENDED)
        await self.end(user_id, sid, "refresh_token_reused", origin)
        raise unauthorized(_REUSED)

    async def _issue(
        self,
        user_id: UUID,
        sid: UUID,
        refresh_id: str,
        role: str,
        now: float,
        expires_at: datetime,
        origin: Origin,
        sign_in: str,
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
            **_client(origin),
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
            exp=int(min(now + ACCESS_TOKEN_LIFETIME.total_seconds(), expires_at.timestamp())),
            extra={"role": role},
        )
        refresh = Claims(**usual, jti=refresh_id, kind="refresh", exp=int(expires_at.timestamp()))
        return Issued(user_id, sid, self._tokens.sign(access), self._tokens.sign(refresh))

    async def _revoke_user(self, user_id: UUID) -> None:
        await self._revoked.revoke_user(str(user_id))
        await self._records.end_all(str(user_id))

    async def _revoke_families(self, user_id: UUID, ended: list[UUID]) -> None:
        for sid in ended:
            await self._revoked.revoke_family(str(sid))
            await self._drop_records(str(user_id), str(sid))

    async def _drop_records(self, user: str, sid: str, but: str | None = None) -> None:
        """Delete the records of a sign-in, except that of the refresh token `but`."""
        for listed in await self._records.of_user(user):
            if listed.session.session_id == sid and listed.session.refresh_id != but:
                await self._records.end_by_id(user, listed.id)


def _client(origin: Origin) -> dict[str, str]:
    return {"ip_address": origin.ip_address, "user_agent": origin.user_agent}


def _datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
