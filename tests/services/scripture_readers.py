"""Readers of the scripture service in tests, with their tokens, and what they find in SQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast
from uuid import uuid4

import httpx
import msgspec
import psycopg

from ephemera.embedded import Valkey
from ephemera.keyspace import SERVER_IDENTITY
from ephemera.patterns.tokens import Claims, KeyRing, Tokens
from tests.services.services import Served, serving

RING = KeyRing.generate(overlap=timedelta(days=1))
TOKENS = Tokens(RING, "ephemera-identity", "ephemera")
PLENTY = "1000000"
UNLIMITED = {
    f"EPHEMERA_SCRIPTURE_{name}": PLENTY
    for name in (
        *("SEARCH_FREE", "SEARCH_PAID", "PASSAGES_FREE", "PASSAGES_PAID", "LEXICON_FREE", "LEXICON_PAID"),
        *("AI_FREE", "AI_PAID", "AI_AI", "ACCOUNT_PER_MINUTE"),
    )
}


class Reader:
    """A user with an access token."""

    def __init__(self, served: Served, role: str = "user", user_id: str | None = None) -> None:
        self._served = served
        self.id = user_id or str(uuid4())
        self.email = f"{self.id}@example.com"
        now = time.time()
        claims = Claims(
            self.id, uuid4().hex, "access", now, now + 900, family=uuid4().hex, extra={"role": role}
        )
        self.token = TOKENS.sign(claims)

    def ask(self, method: str, path: str, at: Served | None = None, **more: Any) -> httpx.Response:
        """One request with the token, at another process if given."""
        headers = {"authorization": f"Bearer {self.token}", **more.pop("headers", {})}
        return (at or self._served).client.request(method, path, headers=headers, **more)


def administrator(served: Served) -> Reader:
    """An administrator."""
    return Reader(served, "admin")


def subscriber(served: Served, plan: str) -> Reader:
    """A user whom an administrator has added on a plan."""
    reader = Reader(served)
    form = {"user_id": reader.id, "email": reader.email, "name": "Ann", "plan": plan}
    answer = administrator(served).ask("POST", "/users", json=form)
    assert answer.status_code == 201, answer.text
    return reader


def verse(text: str, number: int = 1, **more: Any) -> dict[str, Any]:
    """A verse of Jude, which the shipped corpus does not have."""
    return {"book": "jude", "chapter": 1, "verse": number, "texts": {"web": text}, **more}


def ingest(served: Served, schema: str, *items: dict[str, Any]) -> Any:
    """What an ingest that succeeds answers."""
    answer = administrator(served).ask("POST", f"/ingest/{schema}", json={"items": list(items)})
    assert answer.status_code == 200, answer.text
    return answer.json()


@contextmanager
def reading(places: dict[str, str], valkey: Valkey, folder: Path, **variables: str) -> Iterator[Served]:
    """A scripture service on a server that is marked as its own, which takes our tokens."""
    valkey.ask("SET", SERVER_IDENTITY.key(), "scripture")
    with serving("scripture", folder, **places, **keys_in(folder), **variables) as running:
        yield running


def keys_in(folder: Path) -> dict[str, str]:
    """The variable that names a file with our public keys."""
    place = folder / "jwks.json"
    place.write_bytes(msgspec.json.encode(RING.jwks()))
    return {"EPHEMERA_SCRIPTURE_JWKS": str(place), "EPHEMERA_SCRIPTURE_REVOCATIONS": "none"}


def rows(places: dict[str, str], query: str, *values: Any) -> list[tuple[Any, ...]]:
    """What SQL has."""
    with psycopg.connect(places["EPHEMERA_DATABASE_URL"], autocommit=True) as sql:
        cursor = sql.execute(query, values)
        return cursor.fetchall() if cursor.description else []


def keys(valkey: Valkey, pattern: str) -> list[str]:
    """The keys that a server has of a pattern."""
    return cast("list[str]", valkey.ask("KEYS", pattern))


def eventually(holds: Callable[[], Any], seconds: float = 60) -> Any:
    """What a condition gives as soon as it holds; fail when it does not in time."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.02)
    return found


TOPICS_LOCK = "gl:lock:ingest:{topics}"
_WAITING = "SELECT 1 FROM pg_locks WHERE relation = 'scripture.passages'::regclass AND NOT granted"


class HeldUp(NamedTuple):
    """An ingest in progress."""

    answer: Future[httpx.Response]
    release: Callable[[], None]
    """Let SQL answer it."""


@contextmanager
def ingest_held_up(
    served: Served, places: dict[str, str], valkey: Valkey, topic: dict[str, Any]
) -> Iterator[HeldUp]:
    """An ingest of a topic that has its lock, and waits for SQL until it is released, or the block ends."""
    with psycopg.connect(places["EPHEMERA_DATABASE_URL"]) as sql, ThreadPoolExecutor(1) as threads:
        sql.execute("LOCK TABLE scripture.passages IN ACCESS EXCLUSIVE MODE")
        admin = administrator(served)
        answer = threads.submit(admin.ask, "POST", "/ingest/topics", json={"items": [topic]})
        eventually(lambda: valkey.ask("EXISTS", TOPICS_LOCK))
        eventually(lambda: rows(places, _WAITING))
        try:
            yield HeldUp(answer, sql.rollback)
        finally:
            sql.rollback()
