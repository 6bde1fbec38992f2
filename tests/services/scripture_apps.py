"""The scripture service in the test's own process, and its callers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from ephemera.embedded import Postgres, Valkey
from ephemera.keyspace import SERVER_IDENTITY
from ephemera.patterns.tokens import Claims
from tests.defects.service_apps import App, opened
from tests.services.scripture_readers import TOKENS, UNLIMITED, keys_in


class Gateway:
    """An open service, on a database of its own."""

    def __init__(self, app: App, variables: dict[str, str]) -> None:
        self.app = app
        self.variables = variables

    async def ask(self, method: str, path: str, *, role: str | None = None, **more: Any) -> httpx.Response:
        """One request, without a token or as a new user with a role."""
        headers = {} if role is None else {"authorization": f"Bearer {token(role)}"}
        return await self.app.ask(method, path, headers=headers, **more)

    async def get(self, path: str, **params: Any) -> Any:
        """What a request that succeeds answers."""
        answer = await self.ask("GET", path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def admin(self, method: str, path: str, **more: Any) -> Any:
        """What an administrator's request that succeeds answers."""
        answer = await self.ask(method, path, role="admin", **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def ingest(
        self, *verses: tuple[str, str], translation: str = "test", schema: str = "passages"
    ) -> Any:
        """Ingest verses: their ids and texts."""
        items = [verse_of(name, text, translation) for name, text in verses]
        return await self.admin("POST", f"/ingest/{schema}", json={"items": items})

    async def found(self, words: str, **params: Any) -> list[str]:
        """The ids that a search finds, best first."""
        page = await self.get("/search", **{"translation": "test", **params}, q=words)
        return [each["id"] for each in page["passages"]]


def token(role: str = "user", user_id: str | None = None) -> str:
    """An access token."""
    now = time.time()
    return TOKENS.sign(
        Claims(
            user_id or str(uuid4()),
            uuid4().hex,
            "access",
            now,
            now + 900,
            family=uuid4().hex,
            extra={"role": role},
        )
    )


def verse_of(name: str, text: str, translation: str = "test") -> dict[str, Any]:
    """A verse as an ingest has it."""
    book, chapter, verse = name.split(".")
    return {"book": book, "chapter": int(chapter), "verse": int(verse), "texts": {translation: text}}


@asynccontextmanager
async def open_gateway(
    server: Valkey, postgres: Postgres, folder: Path, **variables: str
) -> AsyncIterator[Gateway]:
    """A service without limits that tests would meet."""
    server.ask("FLUSHALL")
    server.ask("SET", SERVER_IDENTITY.key(), "scripture")
    given = {
        "EPHEMERA_URL": server.url,
        "EPHEMERA_DATABASE_URL": postgres.database(f"scripture_{uuid4().hex[:12]}"),
        **keys_in(folder),
        **UNLIMITED,
        **variables,
    }
    async with opened("scripture", server, postgres, given, empty=False) as app:
        yield Gateway(app, given)
