"""Reports, documentation and sweeps of catalogues whose keys are typed."""

from __future__ import annotations

import asyncio
from datetime import date
from enum import Enum, IntEnum
from pathlib import Path

import msgspec
import pytest

from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue, Key, Template, connect, fixed
from ephemera.operations.change import SweepOptions, orphans, plan, read_declarations, sweep
from ephemera.operations.documentation import KeyspaceDoc, as_json, describe, typed_pattern
from ephemera.operations.metrics import dashboard_json
from tests.cli.commands import ephemera


class Plan(Enum):
    FREE = "free"
    PRO = "pro:2"


class Level(IntEnum):
    LOW = 1


class Visit(Key, pattern="visit:{page}:{day}"):
    page: str
    day: date


class Usage(Key, pattern="usage:{plan}:{level}:{user_id}"):
    plan: Plan
    level: Level
    user_id: int


HOUR = fixed(hours=1)
catalogue = Catalogue("typed")
VISITS = catalogue.counter(Visit.pattern, lifetime=HOUR, purpose="Visits")
USAGE = catalogue.value(Usage.pattern, str, lifetime=HOUR, purpose="Usage")
HERE = "tests.operations.test_typed_keys:catalogue"


async def fill(url: str) -> None:
    """Write a key of each keyspace, one with a wrong type, and ones that the types exclude."""
    async with connect(url, catalogue) as store:
        await store[VISITS].add(page="home", day=date(2026, 1, 1))
        await store[USAGE].put("x", plan=Plan.PRO, level=Level.LOW, user_id=7)
        for words in (("LPUSH", "usage:free:1:8", "x"), ("SET", "visit:home:today", "1")):
            await store.client().nodes()[0].call(*words)


@pytest.mark.parametrize(
    "words",
    [
        ("audit", "--json"),
        ("audit", "--json", "--slow-log"),
        ("doctor", "--json", "--watch", "100ms", "--hot-keys", "100ms"),
        ("catalogue", "--json"),
        ("dashboard",),
    ],
    ids=" ".join,
)
def test_typed_keys_are_printed_as_json(own_valkey: Valkey, words: tuple[str, ...]) -> None:
    """Every command that prints JSON about a catalogue prints the patterns of typed keys as text."""
    asyncio.run(fill(own_valkey.url))
    command, *flags = words
    if command == "dashboard":
        assert Usage.pattern in dashboard_json(catalogue)
        return
    at = [HERE] if command == "catalogue" else ["--url", own_valkey.url, "--catalogue", HERE]
    outcome = ephemera(command, *at, *flags)
    assert outcome.code in (0, 1), outcome.said
    assert Usage.pattern in str(msgspec.json.decode(outcome.out))


def test_a_report_about_typed_keys_is_compared(own_valkey: Valkey, tmp_path: Path) -> None:
    """`audit --against` reads what `audit --json` printed of typed keys."""
    asyncio.run(fill(own_valkey.url))
    at = ("audit", "--url", own_valkey.url, "--catalogue", HERE)
    earlier = tmp_path / "earlier.json"
    earlier.write_text(ephemera(*at, "--json").out)
    outcome = ephemera(*at, "--against", str(earlier), "--json")
    assert outcome.code == 0, outcome.said
    assert msgspec.json.decode(outcome.out)["since"]["days"] < 1


def documented(tmp_path: Path) -> list[KeyspaceDoc]:
    """The declarations as a file of `ephemera catalogue --json` has them."""
    path = tmp_path / "old.json"
    path.write_text(as_json(catalogue))
    return read_declarations(path)


def test_documented_types_render_and_refuse_the_same_keys(tmp_path: Path) -> None:
    """A pattern read back from JSON parses what the declaration parses, and refuses what it refuses."""
    docs = documented(tmp_path)
    assert docs == describe(catalogue)
    for keyspace, doc in zip(catalogue, docs, strict=True):
        read = Template(typed_pattern(doc), hash_tag=doc.hash_tag)
        for key in (
            "visit:home:2026-01-01", "visit:home:today", "visit:2026-01-01", "usage:pro%3A2:1:7",
            "usage:free:1:-3", "usage:free:2:7", "usage:basic:1:7", "usage:free:1:x",
        ):  # fmt: skip
            assert read.parse_text(key) == keyspace.template.parse_text(key), key
    assert plan(docs, describe(catalogue)) == []
    assert orphans(docs, []) == docs


async def test_a_sweep_keeps_keys_that_the_types_exclude(own_valkey: Valkey, tmp_path: Path) -> None:
    """Keys that the old catalogue could not have written are not its orphans."""
    await fill(own_valkey.url)
    result = await sweep(own_valkey.url, documented(tmp_path), [], SweepOptions(delete=True))
    assert (result.removed, result.found) == (3, {Usage.pattern: 2, Visit.pattern: 1})
    assert own_valkey.ask("EXISTS", "visit:home:today") == 1
