"""What scripture keeps in Redis is what its design says, documented, read back, and what an audit finds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ephemera.embedded import Valkey
from ephemera.keyspace import RESERVED
from ephemera.operations.audit import audit
from ephemera.operations.documentation import as_markdown
from ephemera_services.scripture import catalogue
from tests.cli.commands import ephemera
from tests.services.scripture_readers import (
    TOPICS_LOCK,
    Reader,
    eventually,
    ingest,
    ingest_held_up,
    keys,
    reading,
    rows,
    subscriber,
    verse,
)
from tests.services.services import Served

PAGE = Path(__file__).parents[2] / "docs" / "services" / "scripture.md"
HOUR = 3600
TOPIC = {"id": "held-up", "title": "T", "summary": "S", "passages": ["ps.23.1"]}


@pytest.fixture(scope="module")
def scripture(
    places: dict[str, str], valkey: Valkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A service with the limits of the design."""
    with reading(places, valkey, tmp_path_factory.mktemp("logs")) as running:
        yield running


@pytest.mark.parametrize(
    ("pattern", "kind", "seconds"),
    [
        ("gl:passage:{passage_id}", "value", HOUR),
        ("gl:passage:{passage_id}:{suffix}", "value", HOUR),
        ("gl:chapter:{book_id}.{chapter}:{translation}", "value", HOUR),
        ("gl:topic:{topic_id}", "value", HOUR),
        ("gl:lexicon:{word_id}", "value", 24 * HOUR),
        ("gl:entitlements:{plan_id}:{feature}", "value", 60),
        ("gl:ai:cache:{prompt_hash}", "value", HOUR),
        ("gl:session:{user_id}:prefs", "value", 7 * 24 * HOUR),
        ("gl:ratelimit:{subject}:{endpoint}", "value", None),
        ("gl:events:notifications", "stream", None),
        ("gl:events:users", "stream", None),
        ("gl:events:ingest", "stream", None),
        ("gl:lock:ingest:{schema}", "value", 120),
    ],
)
def test_the_designs_keys_are_declared_as_designed(pattern: str, kind: str, seconds: int | None) -> None:
    """Each key of the design's table has its pattern, kind and longest life; buckets have no windows."""
    (space,) = [each for each in catalogue if each.pattern == pattern]
    assert space.kind == kind
    assert space.lifetime.milliseconds == (None if seconds is None else seconds * 1000)


def test_the_page_is_made_from_the_catalogue() -> None:
    """docs/services/scripture.md is what `ephemera catalogue scripture --format markdown` prints."""
    assert PAGE.read_text(encoding="utf-8") == as_markdown(catalogue)
    assert ephemera("catalogue", "scripture", "--format", "markdown").out == as_markdown(catalogue)


def test_every_lifetime_is_on_the_server(scripture: Served, valkey: Valkey, places: dict[str, str]) -> None:
    """Each key, read back, has the life of the design: content less its jitter, buckets until full."""
    reader = _work(scripture, places)

    def left(key: str) -> float:
        return int(str(valkey.ask("PTTL", key))) / 1000

    def is_trimmed(stream: str) -> bool:
        return int(str(valkey.ask("XLEN", stream))) <= 1

    for key, life in (
        ("gl:passage:{john.3.16}", HOUR),
        ("gl:passage:{john.3.16}:words", HOUR),
        ("gl:chapter:ps.{23}:web", HOUR),
        ("gl:topic:{love}", HOUR),
        ("gl:lexicon:{g26}", 24 * HOUR),
    ):
        assert 0.9 * life - 60 < left(key) <= life, key
    for key, life in (
        ("gl:entitlements:free:words", 60),
        (f"gl:user:{reader.id}:plan", 60),
        (f"gl:session:{reader.id}:prefs", 7 * 24 * HOUR),
        *((key, HOUR) for key in keys(valkey, "gl:ai:cache:*")),
    ):
        assert life - 30 < left(key) <= life, key
    assert valkey.ask("GET", "gl:entitlements:free:words") == "1"
    assert valkey.ask("GET", "gl:entitlements:free:commentary") == "0"
    assert 600 < left(f"gl:ratelimit:user-{reader.id}:ai") <= HOUR / 5, "one of five an hour"
    for stream in ("notifications", "users", "ingest"):
        assert left(f"gl:events:{stream}") == -0.001
        eventually(partial(is_trimmed, f"gl:events:{stream}"))  # when it is handled
    with ingest_held_up(scripture, places, valkey, TOPIC) as held_up:
        assert 100 < left(TOPICS_LOCK) <= 120
    assert held_up.answer.result(20).status_code == 200
    assert valkey.ask("EXISTS", TOPICS_LOCK) == 0


def test_an_audit_of_a_server_it_has_worked_on_finds_nothing_wrong(
    scripture: Served, valkey: Valkey, places: dict[str, str]
) -> None:
    """After all kinds of work: nothing unknown, endless, of a wrong type, too long-lived or unreadable."""
    _work(scripture, places)
    report = asyncio.run(audit(valkey.url, [catalogue, RESERVED]))
    wrong = {"unknown", "no-ttl", "wrong-type", "ttl-above-policy", "undecodable", "big-key", "misplaced"}
    assert [finding for finding in report.findings if finding.kind in wrong] == []
    assert report.unknown.keys == 0
    shown = ephemera(
        *("audit", "--url", valkey.url, "--catalogue", "scripture", "--fail-on", ",".join(sorted(wrong)))
    )
    assert shown.code == 0, shown.out


def _work(served: Served, places: dict[str, str]) -> Reader:
    """Leave something in every space that keeps anything; the reader who did it."""
    reader = subscriber(served, "free")
    for path in (
        *("/passages/john.3.16?include=words,xrefs", "/chapters/ps.23", "/topics/love", "/lexicon/g26"),
        "/search?q=light",
    ):
        assert reader.ask("GET", path).status_code == 200, path
    assert reader.ask("GET", "/passages/john.3.16?include=commentary").status_code == 403
    assert reader.ask("PUT", "/me/preferences", json={"font_size": 20}).status_code == 200
    question = {"question": f"What is light? {reader.id}"}
    assert reader.ask("POST", "/ai/ask", json=question).status_code == 200
    ingest(served, "passages", verse(f"As {reader.id} has it."))
    eventually(lambda: rows(places, "SELECT 1 FROM scripture.mails WHERE key = %s", f"welcome:{reader.id}"))
    return reader
