"""Changes of an account: its password, its address, its role, whether it is blocked, and its end.

Each is one SQL transaction with what belongs to it: the sign-ins it ends, the events it causes, the mail that
tells its owner. A code from a mail is used up in the transaction that it permits, so it works once, and not
at all if the account has changed its address since.
"""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera_services.identity.accounts import Accounts
from ephemera_services.identity.mailer import Mailer, Purpose, digest_of
from ephemera_services.identity.security_log import Origin, SecurityEvent, record
from ephemera_services.identity.sign_ins import SignIns
from ephemera_services.identity.tables import AnyRow, mail_tokens, sign_ins, users
from ephemera_services.identity.user_events import UserEvents
from ephemera_services.identity.user_locks import keeping_an_administrator, lock_user
from ephemera_services.runtime import problem

_BAD_CODE = (
    "This code is not valid: it was used, replaced by a newer one, or is too old. Ask for another mail."
)

logger = logging.getLogger(__name__)


class AccountChanges:
    """Changes accounts."""

    def __init__(
        self, engine: AsyncEngine, accounts: Accounts, sign_ins: SignIns, mailer: Mailer, events: UserEvents
    ) -> None:
        self._engine = engine
        self._accounts = accounts
        self._sign_ins = sign_ins
        self._mailer = mailer
        self._events = events

    async def change_password(self, user: AnyRow, password_hash: str, origin: Origin, keep: UUID) -> int:
        """Set a password and end all other sign-ins; their number."""

        async def change(sql: AsyncConnection) -> None:
            await self._set_password(sql, user.id, password_hash, "password_changed", origin)
            await self._mailer.request(sql, "password_changed", user.email)

        ended = await self._sign_ins.end_all(user.id, change, keep=keep)
        self._mailer.wake()
        return ended

    async def code_owner(self, code: str, *purposes: Purpose) -> AnyRow:
        """The user that a code was sent to, with its purpose; 400 if it is not valid."""
        query = select(
            users.c.id, users.c.email, users.c.first_name, users.c.last_name, mail_tokens.c.purpose
        )
        valid = (mail_tokens.c.digest == digest_of(code)) & (mail_tokens.c.expires_at > func.now())
        query = query.where(mail_tokens.c.user_id == users.c.id, valid, mail_tokens.c.purpose.in_(purposes))
        async with self._engine.connect() as sql:
            found = (await sql.execute(query)).one_or_none()
        if found is None:
            raise problem(400, _BAD_CODE)
        return found

    async def reset_password(self, user: AnyRow, code: str, password_hash: str, origin: Origin) -> int:
        """Set the password of the user that a code was sent to, and end all sign-ins; their number."""

        async def change(sql: AsyncConnection) -> None:
            used = await _use_up(sql, code)
            current = update(users).where(users.c.id == user.id, users.c.email == used.email)
            confirmed = func.coalesce(users.c.email_verified_at, func.now())
            if not (await sql.execute(current.values(email_verified_at=confirmed))).rowcount:
                raise problem(400, _BAD_CODE)
            await self._set_password(sql, user.id, password_hash, "password_reset", origin)
            await self._mailer.request(sql, "password_changed", user.email)

        ended = await self._sign_ins.end_all(user.id, change)
        self._mailer.wake()
        return ended

    async def request_email(self, user_id: UUID, email: str, origin: Origin) -> None:
        """Send a code to a user's new address."""
        async with self._engine.begin() as sql:
            await lock_user(sql, user_id)
            await record(sql, user_id, "email_change_requested", origin)
            await self._mailer.request(sql, "change", email, user_id)
        self._mailer.wake()

    async def confirm_email(self, user: AnyRow, code: str, origin: Origin) -> None:
        """Confirm a user's address, or change it to the one that the code was sent to; 409 if it is taken."""
        is_change = user.purpose == "change"
        confirm = update(users).where(users.c.id == user.id)
        try:
            async with self._engine.begin() as sql:
                used = await _use_up(sql, code)
                if not is_change:
                    confirm = confirm.where(users.c.email == used.email)
                values = {"email": used.email, "email_verified_at": func.now(), "updated_at": func.now()}
                row = (await sql.execute(confirm.values(values).returning(users))).one_or_none()
                if row is None:
                    raise problem(400, _BAD_CODE)
                await record(sql, user.id, "email_changed" if is_change else "email_confirmed", origin)
                await self._events.updated(sql, row)
                if is_change:
                    await self._mailer.request(sql, "email_changed", user.email)
        except IntegrityError:
            raise problem(409, "Another account has this address.") from None
        self._mailer.wake()
        await self._accounts.changed(str(user.id))

    async def set_role(self, user_id: UUID, role: str, by: UUID, origin: Origin) -> int:
        """Set a user's role, and end all sign-ins, whose tokens carry the old one; their number.

        Like a block and a deletion, 409 for the last administrator, and 403 unless `by` still is one.
        """

        async def change(sql: AsyncConnection) -> None:
            async with keeping_an_administrator(sql, by):
                await sql.execute(_updated(user_id, role=role))
            await record(sql, user_id, "role_changed", origin)
            await self._events.role_changed(sql, user_id, role)

        ended = await self._sign_ins.end_all(user_id, change)
        self._events.publish_soon()
        return ended

    async def end_sign_ins(self, user_id: UUID, origin: Origin) -> int:
        """End all sign-ins of a user; their number."""
        return await self._sign_ins.end_all(
            user_id, lambda sql: record(sql, user_id, "all_sessions_ended", origin)
        )

    async def block(self, user_id: UUID, by: UUID, origin: Origin) -> int:
        """End all sign-ins of a user and permit no new one; their number."""

        async def change(sql: AsyncConnection) -> None:
            since = func.coalesce(users.c.blocked_at, func.now())
            async with keeping_an_administrator(sql, by):
                await sql.execute(_updated(user_id, blocked_at=since))
            await sql.execute(delete(mail_tokens).where(mail_tokens.c.user_id == user_id))
            await record(sql, user_id, "blocked", origin)

        return await self._sign_ins.end_all(user_id, change)

    async def unblock(self, user_id: UUID, origin: Origin) -> None:
        """Permit a user to sign in again."""
        async with self._engine.begin() as sql:
            await lock_user(sql, user_id)
            await sql.execute(_updated(user_id, blocked_at=None))
            await record(sql, user_id, "unblocked", origin)

    async def delete(self, user: AnyRow, by: UUID | None = None) -> None:
        """Delete a user with everything that belongs to them, by an administrator or by themselves.

        Their ended sign-ins stay for an hour without the address and the browser, for `revocation_feed`.
        """

        async def change(sql: AsyncConnection) -> None:
            mine = update(sign_ins).where(sign_ins.c.user_id == user.id)
            await sql.execute(mine.values(ip_address="", user_agent=""))
            async with keeping_an_administrator(sql, by):
                await sql.execute(delete(users).where(users.c.id == user.id))
            await self._events.deleted(sql, user.id)
            await self._mailer.request(sql, "deleted", user.email)

        await self._sign_ins.end_all(user.id, change)
        logger.info("deleted a user", extra={"user_id": str(user.id)})
        self._mailer.wake()
        await self._accounts.changed(str(user.id))

    async def _set_password(
        self, sql: AsyncConnection, user_id: UUID, password_hash: str, what: SecurityEvent, origin: Origin
    ) -> None:
        """Set a password, and void the codes that were sent before."""
        version = users.c.password_version + 1
        await sql.execute(_updated(user_id, password_hash=password_hash, password_version=version))
        await sql.execute(delete(mail_tokens).where(mail_tokens.c.user_id == user_id))
        await record(sql, user_id, what, origin)


def _updated(user_id: UUID, **values: Any) -> Any:
    return update(users).where(users.c.id == user_id).values(**values, updated_at=func.now())


async def _use_up(sql: AsyncConnection, code: str) -> AnyRow:
    """Use a code up; 400 if another request did."""
    mine = mail_tokens.c.digest == digest_of(code)
    used = delete(mail_tokens).where(mine, mail_tokens.c.expires_at > func.now()).returning(mail_tokens)
    found = (await sql.execute(used)).one_or_none()
    if found is None:
        raise problem(400, _BAD_CODE)
    return found
