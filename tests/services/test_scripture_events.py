"""Events of scripture: consumers that are killed, events that cannot be handled, and an outage of Redis."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from ephemera.embedded import Valkey
from tests.cli.commands import ephemera
from tests.services.scripture_mail import MailServer
from tests.services.scripture_readers import (
    UNLIMITED,
    Reader,
    administrator,
    eventually,
    keys_in,
    reading,
    rows,
    subscriber,
)
from tests.services.services import COMMAND, Served, environment

STREAM = "gl:events:users"
ELSEWHERE = {"EPHEMERA_SCRIPTURE_CONSUMERS": "false"}


@pytest.fixture(scope="module")
def gateway(
    places: dict[str, str], valkey: Valkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A service that leaves events to workers."""
    with reading(places, valkey, tmp_path_factory.mktemp("logs"), **UNLIMITED, **ELSEWHERE) as running:
        yield running


@pytest.fixture
def mails() -> Iterator[MailServer]:
    """A mail server."""
    with MailServer() as server:
        yield server


@contextmanager
def worker(places: dict[str, str], folder: Path, mails: MailServer) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that works, as `ephemera worker scripture` runs it."""
    log = folder / f"worker-{uuid4().hex}.log"
    variables = {
        **places,
        **keys_in(folder),
        "EPHEMERA_SCRIPTURE_MAIL_URL": mails.url,
        "EPHEMERA_SCRIPTURE_MAIL_PLAINTEXT": "true",
    }
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [COMMAND, "worker", "scripture"], env=environment(**variables), stderr=stderr
        )
    try:
        eventually(lambda: b'"working"' in log.read_bytes(), 60)
        yield process
    finally:
        process.terminate()
        assert process.wait(30) in (0, -9), log.read_text()[-2000:]


def test_a_worker_that_is_killed_in_mid_batch_loses_nothing(
    gateway: Served, places: dict[str, str], mails: MailServer, tmp_path: Path
) -> None:
    """Killed with mails in its hands; another takes them over, and everybody gets theirs."""
    with worker(places, tmp_path, mails) as first:
        mails.open.clear()
        readers = [subscriber(gateway, "free") for _ in range(15)]
        eventually(lambda: mails.waiting >= 10)  # as many as it handles at a time
        first.kill()
        first.wait()
    at_hand = mails.waiting
    mails.open.set()
    with worker(places, tmp_path, mails):
        everybody = {each.email for each in readers}
        unsent = 'SELECT 15 - count(*) FROM scripture.mails WHERE sent_at IS NOT NULL AND "to" = ANY(%s)'
        eventually(lambda: rows(places, unsent, list(everybody)) == [(0,)], 60)
        eventually(lambda: _settled(places))
    counts = Counter(mails.recipients())
    assert counts.keys() == everybody
    assert sum(counts.values()) <= 15 + at_hand, "only what was in its hands may have come twice"
    ids = {str(each["To"]): str(each["Message-ID"]) for each in mails.taken}
    assert {(str(each["To"]), str(each["Message-ID"])) for each in mails.taken} == set(ids.items())
    history = rows(places, "SELECT user_id FROM scripture.user_history WHERE what = 'created'")
    assert Counter(user for (user,) in history if user in {each.id for each in readers}) == Counter(
        each.id for each in readers
    )


def test_a_poisoned_event_is_a_dead_letter_and_can_be_replayed(
    gateway: Served, valkey: Valkey, places: dict[str, str], mails: MailServer, tmp_path: Path
) -> None:
    """A failing event becomes a dead letter while others pass; fixed and replayed, it is handled once."""
    lost = str(uuid4())
    with worker(places, tmp_path, mails):
        poison = valkey.ask("XADD", STREAM, "*", "event", f'{{"type":"UserCreated","user_id":"{lost}"}}')
        garbage = valkey.ask("XADD", STREAM, "*", "event", "{no json")
        healthy = subscriber(gateway, "free")
        eventually(lambda: healthy.email in mails.recipients())
        dead = eventually(lambda: _dead(places, 3), 60)
        assert dead[poison, "users-welcome"] == (6, f"UnknownUser: there is no user {lost}")
        assert {group: error for (origin, group), (_, error) in dead.items() if origin == garbage} == {
            group: dead[garbage, group][1] for group in ("users-welcome", "users-history")
        }
        assert "cannot be decoded" in dead[garbage, "users-history"][1]

        insert = "INSERT INTO scripture.users (id, email, name, plan) VALUES (%s, %s, 'Lost', 'free')"
        rows(places, insert, lost, f"{lost}@example.com")
        letter = next(each for each in _letters(places) if each["origin"] == poison)
        replayed = ephemera(
            *("events", "replay", "scripture", "--url", places["EPHEMERA_URL"], "--stream", STREAM),
            *("--id", letter["id"]),
        )
        assert replayed.code == 0, replayed.said
        eventually(lambda: f"{lost}@example.com" in mails.recipients())
        eventually(lambda: _settled(places))
    assert mails.recipients().count(f"{lost}@example.com") == 1
    history = rows(places, "SELECT what FROM scripture.user_history WHERE user_id = %s", lost)
    assert history == [("created",)], "the replay is for the group that failed alone"


def test_a_mail_server_that_refuses_is_asked_again(
    gateway: Served, places: dict[str, str], mails: MailServer, tmp_path: Path
) -> None:
    """A notification is tried again until its mail is taken, and then no more."""
    mails.refuse = 3
    with worker(places, tmp_path, mails):
        ann = subscriber(gateway, "paid")
        eventually(lambda: ann.email in mails.recipients(), 60)
        sent = "SELECT 1 FROM scripture.mails WHERE key = %s AND transport = 'smtp' AND sent_at IS NOT NULL"
        eventually(lambda: rows(places, sent, f"welcome:{ann.id}"))
        eventually(lambda: _settled(places))
    assert mails.refused == 3
    assert mails.recipients() == [ann.email]


def test_a_user_who_signs_up_during_an_outage_is_welcomed_later(
    gateway: Served, valkey: Valkey, places: dict[str, str], mails: MailServer, tmp_path: Path
) -> None:
    """The event is in SQL with the user, and published when Redis is back."""
    with worker(places, tmp_path, mails):
        valkey.kill()
        try:
            ann = Reader(gateway)
            form = {"user_id": ann.id, "email": ann.email, "name": "Ann"}
            assert administrator(gateway).ask("POST", "/users", json=form).status_code == 201
            assert len(rows(places, "SELECT 1 FROM scripture.outbox_events WHERE published_at IS NULL")) == 1
        finally:
            valkey.restart()
        eventually(lambda: ann.email in mails.recipients(), 60)
    assert rows(places, "SELECT 1 FROM scripture.outbox_events WHERE published_at IS NULL") == []


def _letters(places: dict[str, str]) -> list[dict[str, str]]:
    shown = ephemera(
        *("events", "dead", "scripture", "--url", places["EPHEMERA_URL"], "--stream", STREAM, "--json")
    )
    letters: list[dict[str, str]] = msgspec.json.decode(shown.out)
    return letters


def _dead(places: dict[str, str], count: int) -> dict[tuple[str, str], tuple[str, str]] | None:
    """Dead letters by origin and group, when there are so many."""
    found = {
        (each["origin"], each["group"]): (each["deliveries"], each["error"]) for each in _letters(places)
    }
    return found if len(found) >= count else None


def _settled(places: dict[str, str]) -> bool:
    """Whether no group has anything left to do."""
    shown = ephemera("events", "groups", "scripture", "--url", places["EPHEMERA_URL"], "--json")
    streams = msgspec.json.decode(shown.out)
    return all(
        group["lag"] == 0 and group["pending"] == 0 for stream in streams for group in stream["groups"]
    )
