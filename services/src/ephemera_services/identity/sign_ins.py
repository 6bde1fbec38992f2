"""Sign-ins: from a password to two tokens, their renewal, and their end.

A sign-in is a row in SQL, and a family of tokens that carry its id: short access tokens, and one refresh
token at a time. SQL says which refresh token is the current one and whether the sign-in is over, so that
losing Redis brings nothing back; Redis makes access tokens void at the next request, on every process.

Refreshing replaces the refresh token in one UPDATE that names the old one. Whoever comes with a used one has
a copy, or had it copied: the whole family ends. It needs Redis, too: while nobody can tell what is revoked,
nobody is refreshed (503), and nothing is used up.

Tokens are issued at an instant of Redis' clock, taken before the account is read. A change of rights is
committed first and revoked after, so a token either says the new role or is older than the revocation.
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
from ephemera.web._problems import unavailable
from ephemera_services.identity.keys import ACCESS_LIVES, REFRESH_LIVES, REVOKED, SESSIONS, SessionRecord
from ephemera_services.identity.tables import sign_ins, users
from ephemera_services.runtime import unauthorized

_REUSED = "This refresh token was used before, so everything of its sign-in is void: sign in again."
_OVER = "This sign-in is over: sign in again."


class Origin(NamedTuple):
    """Where a request comes from."""

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
        """Sign a user in, whose password was right."""
        sign_in, now = await asyncio.gather(
            self._records.begin_sign_in(str(user_id)), self._revoked.now(str(user_id))
        )
        sid, refresh_id = uuid4(), uuid4().hex
        row = {
            "id": sid,
            "user_id": user_id,
            "refresh_id": refresh_id,
            "expires_at": _instant(now) + REFRESH_LIVES,
            **origin._asdict(),
        }
        async with self._engine.begin() as sql:
            role = await _role(sql, user_id)
            lapsed = (sign_ins.c.user_id == user_id) & (sign_ins.c.expires_at < func.now())
            await sql.execute(delete(sign_ins).where(lapsed))
            await sql.execute(insert(sign_ins).values(row))
        return await self._issue(user_id, sid, refresh_id, role, now, origin, sign_in)

    async def refresh(self, token: str, origin: Origin) -> Issued:
        """New tokens for a refresh token, which is used up; 401 when it is void."""
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
                    expires_at=_instant(now) + REFRESH_LIVES,
                    **origin._asdict(),
                )
            )
            role = await _role(sql, user_id) if changed.rowcount else ""
        if not changed.rowcount:
            await self.end(user_id, sid)
            raise unauthorized(_REUSED)
        with suppress(ConnectionFailed):  # SQL knows that it is used up
            await self._revoked.revoke_token("refresh", claims.jti, until=claims.exp)
        issued = await self._issue(user_id, sid, refresh_id, role, now, origin, sign_in)
        with suppress(ConnectionFailed):
            await self._drop_records(claims.sub, str(sid), but=refresh_id)
        return issued

    async def stands(self, claims: Claims) -> bool:
        """Whether, by SQL, an access token's sign-in goes on, and its user has the role that it says."""
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
        """End a sign-in, whoever has its tokens; False when the user has no such one. May be repeated."""
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
        """Sign out: end the sign-in of an access token, and the token itself."""
        await self.end(UUID(claims.sub), UUID(claims.family))
        await self._revoked.revoke_token("access", claims.jti, until=claims.exp)

    async def end_all(self, user_id: UUID) -> int:
        """End all sign-ins of a user, on every process at their next request; how many there were."""
        ending = update(sign_ins).where(sign_ins.c.user_id == user_id, sign_ins.c.ended_at.is_(None))
        async with self._engine.begin() as sql:
            ended = (await sql.execute(ending.values(ended_at=func.now()))).rowcount
        await self._revoked.revoke_user(str(user_id))
        await self._records.end_all(str(user_id))
        return ended

    async def of_user(self, user_id: UUID) -> list[tuple[Any, bool | None]]:
        """A user's sign-ins, the newest first, each with whether it is in use; None: nobody can tell."""
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
        in_use = {each.session.session_id for each in listed}
        return [(row, str(row.id) in in_use) for row in rows]

    async def _current(self, token: str) -> Claims:
        """What a refresh token says, unless Redis knows that it is void, or cannot tell."""
        try:
            claims = self._tokens.verify(token, kind="refresh")
            user_id, sid = UUID(claims.sub), UUID(claims.family)
        except (InvalidToken, ValueError, TypeError):
            raise unauthorized("The refresh token is not valid.") from None
        verdict = await self._revoked.check(
            "refresh", jti=claims.jti, user=claims.sub, issued_at=claims.iat, family=claims.family
        )
        if not verdict.certain:
            raise unavailable("Whether this sign-in is still valid cannot be told at the moment.")
        if verdict.by == "token":
            await self.end(user_id, sid)
            raise unauthorized(_REUSED)
        if verdict.revoked:
            raise unauthorized(_OVER)
        return claims

    async def _issue(
        self, user_id: UUID, sid: UUID, refresh_id: str, role: str, now: float, origin: Origin, sign_in: str
    ) -> Issued:
        """Sign the tokens, and note in Redis that the sign-in is in use."""
        user, family, access_id = str(user_id), str(sid), uuid4().hex
        record = SessionRecord(
            user_id=user,
            session_id=family,
            access_id=access_id,
            refresh_id=refresh_id,
            created_at=_instant(now),
            expires_at=_instant(now) + timedelta(milliseconds=self._records.lifetime),
            **origin._asdict(),
        )
        try:
            with suppress(ConnectionFailed):  # the record is for lists only
                await self._records.create(record, sign_in=sign_in)
        except SessionsRevoked:
            raise unavailable("Your account was changed at this moment; please try again.") from None
        usual: dict[str, Any] = {"sub": user, "iat": now, "family": family}
        access = Claims(
            **usual, jti=access_id, kind="access", exp=_end(now, ACCESS_LIVES), extra={"role": role}
        )
        refresh = Claims(**usual, jti=refresh_id, kind="refresh", exp=_end(now, REFRESH_LIVES))
        return Issued(user_id, sid, self._tokens.sign(access), self._tokens.sign(refresh))

    async def _drop_records(self, user: str, sid: str, but: str | None = None) -> None:
        """Forget the records of a sign-in, except that of the refresh token `but`."""
        for listed in await self._records.of_user(user):
            if listed.session.session_id == sid and listed.session.refresh_id != but:
                await self._records.end_by_id(user, listed.id)


async def _role(sql: AsyncConnection, user_id: UUID) -> str:
    role = (await sql.execute(select(users.c.role).where(users.c.id == user_id))).scalar_one_or_none()
    if role is None:
        raise unauthorized(_OVER)
    return str(role)


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _end(now: float, lives: timedelta) -> int:
    return int(now + lives.total_seconds())
