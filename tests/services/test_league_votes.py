"""Votes reach SQL exactly once even if processes die; and a thousand polling clients cost almost nothing."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from ephemera import connect
from ephemera.embedded import Valkey
from ephemera_services.league import catalogue
from ephemera_services.league.keys import SESSIONS, Session
from tests.services.league_users import LIVE_MATCH, league, referee, sql, until
from tests.services.services import Served

VOTERS = 120
CLIENTS, POLLS, CONNECTIONS = 1000, 6, 50
DAY = 86_400_000  # milliseconds
CHOICES = ("home", "draw", "away")


@pytest.fixture
def voters(valkey: Valkey, places: dict[str, str], tmp_path: Path) -> dict[int, str]:
    """Users with a session each, who have not voted."""
    with league(tmp_path, places):
        pass  # the tables and the season are there
    sql(places, "DELETE FROM league.votes")
    made = sql(
        places,
        "INSERT INTO league.users (name, password_hash, role) "
        f"SELECT 'voter-' || md5(random()::text), '-', 'user' FROM generate_series(1, {VOTERS}) RETURNING id",
    )
    return asyncio.run(_sessions(valkey.url, [number for (number,) in made]))


async def _sessions(url: str, ids: list[int]) -> dict[int, str]:
    async with connect(url, catalogue) as store:
        create = store[SESSIONS].create
        tokens = await asyncio.gather(*(create(Session(str(each), f"voter {each}", "user")) for each in ids))
    return dict(zip(ids, tokens, strict=True))


async def _vote(url: str, voters: dict[int, str]) -> list[int]:
    """Everybody votes, twice; the statuses of the answers."""
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:

        async def one(number: int, token: str) -> list[int]:
            cookie = {"cookie": f"league-session={token}"}
            path, ballot = f"/api/matches/{LIVE_MATCH}/votes", {"choice": CHOICES[number % 3]}
            return [(await client.post(path, json=ballot, headers=cookie)).status_code for _ in range(2)]

        answers = await asyncio.gather(*(one(number, token) for number, token in voters.items()))
    return [status for pair in answers for status in pair]


@pytest.mark.parametrize(
    ("locked", "waits_for"),
    [("votes", "before the commit"), ("matches", "after the commit, before it is acknowledged")],
)
def test_a_killed_writer_loses_no_vote_and_doubles_none(
    voters: dict[int, str], places: dict[str, str], tmp_path: Path, locked: str, waits_for: str
) -> None:
    """A process is killed while it writes a batch; the next one brings it, and SQL has each vote once."""
    with psycopg.connect(places["EPHEMERA_DATABASE_URL"]) as blocking:
        with league(tmp_path, places) as served:
            served.client.get(f"/api/matches/{LIVE_MATCH}/live").raise_for_status()
            blocking.execute(f"LOCK TABLE league.{locked} IN SHARE MODE")
            statuses = asyncio.run(_vote(served.url, voters))
            assert sorted(statuses) == [202] * VOTERS + [409] * VOTERS
            until(lambda: _waiting_for(places, locked))
            served.process.send_signal(signal.SIGKILL)
            served.process.wait()
        blocking.rollback()
    with league(tmp_path, places) as successor:
        assert until(lambda: _counted(successor) == VOTERS, 60), waits_for
        rows = sql(places, "SELECT user_id, choice FROM league.votes WHERE user_id > 5")
        assert sorted(rows) == sorted((number, CHOICES[number % 3]) for number in voters)
        with referee(successor) as admin:
            assert until(lambda: admin.get("/api/admin/monitoring").json()["votes_waiting"] == 0)
        assert _counted(successor) == VOTERS
    assert sql(places, "SELECT count(*) FROM write_behind_rejected") == [(0,)]


def _waiting_for(places: dict[str, str], table: str) -> bool:
    """Whether a session waits for this table's lock."""
    found = sql(
        places,
        "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation "
        f"WHERE NOT l.granted AND c.relname = '{table}'",
    )
    return bool(found[0][0])


def _counted(served: Served) -> int:
    return sum(served.client.get(f"/api/matches/{LIVE_MATCH}/live").json()["votes"].values())


def test_a_second_vote_is_refused_and_never_counted(
    voters: dict[int, str], valkey: Valkey, places: dict[str, str], tmp_path: Path
) -> None:
    """It is known for a month who has voted; if Redis has lost that, the second vote changes nothing."""
    number, token = next(iter(voters.items()))
    path, cookie = f"/api/matches/{LIVE_MATCH}/votes", {"cookie": f"league-session={token}"}
    written = f"SELECT choice FROM league.votes WHERE user_id = {number}"
    with league(tmp_path, places) as served, referee(served) as admin:

        def vote(choice: str) -> int:
            return served.client.post(path, json={"choice": choice}, headers=cookie).status_code

        assert [vote("home"), vote("away")] == [202, 409]
        assert until(lambda: sql(places, written)) == [("home",)]
        (flag,) = cast("list[str]", valkey.ask("KEYS", f"votes:idempotency:*:{number}.{LIVE_MATCH}"))
        assert int(cast("int", valkey.ask("PTTL", flag))) > 29 * DAY
        valkey.ask("UNLINK", flag)
        assert [vote("away"), vote("draw")] == [202, 409]
        assert until(lambda: admin.get("/api/admin/monitoring").json()["votes_waiting"] == 0)
        assert _counted(served) == 1
    assert sql(places, written) == [("home",)]


def test_a_thousand_clients_poll_and_get_304(
    places: dict[str, str], tmp_path: Path, record_property: Any
) -> None:
    """All polls but the first of each client are 304; their share, and the bytes it saves, are reported."""
    with league(tmp_path, places) as served:
        figures = asyncio.run(_poll(served.url))
        with referee(served) as admin:
            report = admin.get("/api/admin/monitoring").json()
    share = figures["not_modified"] / figures["polls"]
    saved = 1 - figures["bytes"] / figures["without"]
    for name, value in {"share_of_304": share, "bytes_saved": saved, **figures}.items():
        record_property(name, value)
    assert figures["polls"] == CLIENTS * POLLS
    assert figures["errors"] == 0
    # A page that expires meanwhile has the same content, and so the same tag.
    assert figures["not_modified"] == CLIENTS * (POLLS - 1)
    assert saved > 0.75
    assert report["pages"]["hit_ratio"] > 0.85


async def _poll(url: str) -> dict[str, int]:
    """All clients at once, over some connections, by a client that costs little: it is not what is tried."""
    figures = dict.fromkeys(("polls", "not_modified", "errors", "bytes", "without"), 0)
    address = urlsplit(url)
    free: asyncio.Queue[Any] = asyncio.Queue()
    connections = [await asyncio.open_connection(address.hostname, address.port) for _ in range(CONNECTIONS)]
    for connection in connections:
        free.put_nowait(connection)

    async def visitor(number: int) -> None:
        path = ("/api/league/table", "/api/league/schedule")[number % 2]
        tag, size = "", 0
        for _ in range(POLLS):
            reader, writer = await free.get()
            status, tag, received = await _asked(reader, writer, path, tag)
            free.put_nowait((reader, writer))
            figures["polls"] += 1
            figures["errors"] += status not in (200, 304)
            figures["not_modified"] += status == 304
            size = received or size
            figures["bytes"] += received
            figures["without"] += size

    try:
        async with asyncio.TaskGroup() as visitors:
            for number in range(CLIENTS):
                visitors.create_task(visitor(number))
    finally:
        for _, writer in connections:
            writer.close()
            await writer.wait_closed()
    return figures


async def _asked(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, tag: str
) -> tuple[int, str, int]:
    """The status of a page's answer, its tag, and how long its body is; `tag` is what the client has.

    A page that is being loaded for the first time is asked for again when the response says (202).
    """
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", *([f"If-None-Match: {tag}"] if tag else []), "", ""]
    writer.write("\r\n".join(lines).encode())
    first, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}
    size = int(headers.get("content-length", 0))
    await reader.readexactly(size)
    status = int(first.split()[1])
    if status == 202:
        await asyncio.sleep(int(headers["retry-after"]))
        return await _asked(reader, writer, path, tag)
    return status, headers["etag"], size
