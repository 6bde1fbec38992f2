"""Everything that the service stores about a user, as a zip file: `account.json`, and their documents.

Documents are read one at a time, and the file is written to disk beyond a megabyte, so that an export needs
little memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any
from uuid import UUID
from zipfile import ZIP_DEFLATED, ZipFile

import msgspec
from sqlalchemy import select

from ephemera_services.identity.security_log import Origin, record
from ephemera_services.identity.tables import AnyRow, security_events, sign_ins, users

if TYPE_CHECKING:
    from ephemera_services.identity.service import Identity

_IN_MEMORY = 1_000_000  # bytes
_CHUNK = 65_536  # bytes
_WITHHELD = frozenset(("password_hash", "password_version", "refresh_id", "ended_by"))
"""Secrets, and numbers that mean nothing outside the database."""


async def export(service: Identity, user_id: UUID, origin: Origin) -> AsyncIterator[bytes]:
    """The zip file of a user, in chunks."""
    facts = await _facts(service, user_id, origin)
    file: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed by `_chunks`
    try:
        with ZipFile(file, "w", ZIP_DEFLATED) as archive:
            archive.writestr("account.json", msgspec.json.format(msgspec.json.encode(facts)))
            for each in facts["documents"]:
                document = await service.documents.read(user_id, each["document_id"])
                name = f"documents/{each['document_id']}/{document.name}"
                await asyncio.to_thread(archive.writestr, name, document.content)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return _chunks(file)


async def _facts(service: Identity, user_id: UUID, origin: Origin) -> dict[str, Any]:
    await service.directory.account(user_id)  # 404 if it was just deleted
    async with service.engine.begin() as sql:
        await record(sql, user_id, "exported", origin)
        account = (await sql.execute(select(users).where(users.c.id == user_id))).one()
        sessions = await sql.execute(select(sign_ins).where(sign_ins.c.user_id == user_id))
        events = select(security_events).where(security_events.c.user_id == user_id)
        log = await sql.execute(events.order_by(security_events.c.number))
        facts = {"account": _shown(account), "sessions": [*map(_shown, sessions)], "log": [*map(_shown, log)]}
    documents = await service.documents.of_user(user_id)
    return {**facts, "documents": [_shown(each) for each in documents]}


def _shown(row: AnyRow) -> dict[str, Any]:
    return {name: value for name, value in row._mapping.items() if name not in _WITHHELD}


async def _chunks(file: SpooledTemporaryFile[bytes]) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            yield chunk
