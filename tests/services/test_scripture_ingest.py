"""Taking content in while others read, while others take in, and while processes hang or die."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import httpx
import pytest

from ephemera.embedded import Valkey
from tests.services.scripture_readers import (
    TOPICS_LOCK,
    UNLIMITED,
    administrator,
    eventually,
    ingest,
    ingest_held_up,
    reading,
    rows,
    verse,
)
from tests.services.services import Served


@pytest.fixture(scope="module")
def one(places: dict[str, str], valkey: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A process of the service."""
    with reading(places, valkey, tmp_path_factory.mktemp("logs"), **UNLIMITED) as running:
        yield running


@pytest.fixture(scope="module")
def other(
    one: Served, places: dict[str, str], valkey: Valkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Another process of it."""
    with reading(places, valkey, tmp_path_factory.mktemp("logs"), **UNLIMITED) as running:
        yield running


class Seen(NamedTuple):
    """What one read saw."""

    began: float
    passage: int
    chapter: int


def test_no_reader_sees_the_old_passage_after_the_ingest_is_acknowledged(
    one: Served, other: Served, valkey: Valkey
) -> None:
    """Readers of two processes, which keep copies, never see less than what was acknowledged before."""
    ingest(one, "passages", verse("version 0", 5))
    acknowledged, stop = [time.monotonic()], threading.Event()
    asked = _asked(valkey)
    with ThreadPoolExecutor(4) as threads:
        readers = [threads.submit(_read, served.url, stop) for served in (one, other) for _ in range(2)]
        for version in range(1, 7):
            ingest((one, other)[version % 2], "passages", verse(f"version {version}", 5))
            acknowledged.append(time.monotonic())
        stop.set()
        seen = [each for reader in readers for each in reader.result(30)]
    for each in seen:
        due = max(version for version, at in enumerate(acknowledged) if version == 0 or at <= each.began)
        assert min(each.passage, each.chapter) >= due, each
    assert {each.passage for each in seen} >= set(range(1, 7)), "they were read all the time"
    assert _asked(valkey) - asked < len(seen), "most reads were answered by copies"


def test_a_process_that_hangs_meanwhile_does_not_serve_its_copy_afterwards(
    one: Served, other: Served
) -> None:
    """A local copy that missed the ingest's invalidation is not trusted when its process resumes."""
    ingest(one, "passages", verse("before", 6))
    with ThreadPoolExecutor(1) as threads:
        assert _text(other.client, 6) == "before"
        other.process.send_signal(signal.SIGSTOP)
        try:
            ingest(one, "passages", verse("after", 6))
            answer = threads.submit(_text, other.client, 6)
        finally:
            other.process.send_signal(signal.SIGCONT)
        assert answer.result(20) == "after"


def test_an_ingest_that_outlives_its_lock_is_refused_by_sql(
    one: Served, other: Served, valkey: Valkey, places: dict[str, str]
) -> None:
    """A process hangs with the lock, its lease ends, another ingests: the first one's write is refused."""
    with ingest_held_up(one, places, valkey, _topic("old")) as held_up:
        one.process.send_signal(signal.SIGSTOP)
        try:
            valkey.ask("PEXPIRE", TOPICS_LOCK, 1)
            eventually(lambda: not valkey.ask("EXISTS", TOPICS_LOCK))
            held_up.release()
            newer = ingest(other, "topics", _topic("new"))
        finally:
            one.process.send_signal(signal.SIGCONT)
        refused = held_up.answer.result(20)
    assert refused.status_code == 409, refused.text
    assert "has taken over" in refused.json()["detail"]
    assert rows(places, "SELECT title FROM scripture.topics WHERE id = 'contested'") == [("new",)]
    ((fence,),) = rows(places, "SELECT fence FROM scripture.lock_fences WHERE lock = %s", TOPICS_LOCK)
    assert fence == newer["fence"]
    assert {each.client.get("/topics/contested").json()["title"] for each in (one, other)} == {"new"}


def test_one_ingest_of_a_schema_at_a_time(
    one: Served, other: Served, valkey: Valkey, places: dict[str, str]
) -> None:
    """While an ingest runs another one of its schema is refused at once, one of another schema is not."""
    entry = {"id": "g1", "language": "greek", "lemma": "ἄλφα", "transliteration": "a", "gloss": "alpha"}
    with ingest_held_up(one, places, valkey, _topic("first")) as held_up:
        busy = administrator(other).ask("POST", "/ingest/topics", json={"items": [_topic("second")]})
        assert (busy.status_code, "in progress" in busy.json()["detail"]) == (409, True)
        assert ingest(other, "lexicon", {**entry, "definition": "The first letter."})["lexicon"] == ["g1"]
    assert held_up.answer.result(20).status_code == 200


def test_an_ingest_is_published_after_its_process_died(
    one: Served, valkey: Valkey, places: dict[str, str]
) -> None:
    """What was committed with its event is published by the relay, and its consumer ends what is cached."""
    ingest(one, "passages", verse("announced", 7))
    assert _text(one.client, 7) == "announced"
    rows(places, "UPDATE scripture.texts SET text = 'unpublished' WHERE passage_id = 'jude.1.7'")
    event = '{"ingest_id": "x", "schema": "passages", "passages": ["jude.1.7"]}'
    left = "INSERT INTO scripture.outbox_events (stream, event, at) VALUES ('ingest', %s, 'yesterday')"
    rows(places, left, event)
    eventually(lambda: _text(one.client, 7) == "unpublished")
    assert rows(places, "SELECT 1 FROM scripture.outbox_events WHERE published_at IS NULL") == []


def test_an_ingest_without_redis_writes_nothing(one: Served, valkey: Valkey, places: dict[str, str]) -> None:
    """No lock, no ingest: 503, and what is there is read from SQL meanwhile."""
    ingest(one, "passages", verse("there", 8))
    valkey.kill()
    try:
        answer = administrator(one).ask("POST", "/ingest/passages", json={"items": [verse("not", 8)]})
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert _text(one.client, 8) == "there"
        eventually(lambda: one.client.get("/readyz").json()["status"] == "degraded")
    finally:
        valkey.restart()
    eventually(lambda: one.client.get("/readyz").json()["status"] == "ready")
    ingest(one, "passages", verse("back", 8))
    assert _text(one.client, 8) == "back"


def _topic(title: str) -> dict[str, Any]:
    return {"id": "contested", "title": title, "summary": "S", "passages": ["ps.23.1"]}


def _text(client: httpx.Client, number: int) -> str:
    return str(client.get(f"/passages/jude.1.{number}").json()["texts"]["web"])


def _read(url: str, stop: threading.Event) -> list[Seen]:
    """Read a passage and its chapter again and again."""
    seen = []
    with httpx.Client(base_url=url, timeout=30) as client:
        while not stop.is_set():
            began = time.monotonic()
            passage = _text(client, 5)
            verses = client.get("/chapters/jude.1").json()["verses"]
            chapter = next(each["text"] for each in verses if each["verse"] == 5)
            seen.append(Seen(began, int(passage.split()[1]), int(chapter.split()[1])))
    return seen


def _asked(valkey: Valkey) -> int:
    """How often the server was asked for entries."""
    said = str(valkey.ask("INFO", "commandstats"))
    return sum(int(calls) for calls in re.findall(r"cmdstat_get(?:range)?:calls=(\d+)", said))
