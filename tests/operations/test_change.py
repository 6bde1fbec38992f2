"""Changes of a catalogue: what a plan says comes true, and a sweep removes what nothing declares."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ephemera import embedded
from ephemera.embedded import Cluster, Valkey
from ephemera.keyspace import Catalogue, connect, fixed, permanent
from ephemera.operations.audit import audit
from ephemera.operations.change import SweepOptions, adoption, plan, sweep
from ephemera.operations.documentation import as_json, describe
from ephemera.wire import open_client
from tests.cli.commands import ephemera

HOUR = {"lifetime": fixed(hours=1), "purpose": "x"}


class Before(msgspec.Struct):
    name: str
    age: int


class Wider(msgspec.Struct):
    name: str
    age: int | None
    city: str = ""


class Narrower(msgspec.Struct):
    name: str


class Stricter(msgspec.Struct):
    name: str
    age: int
    city: str


class Other(msgspec.Struct):
    name: str
    age: str


class Lists(msgspec.Struct):
    name: str
    age: list[int]


def declared(kind: str, pattern: str, *held: Any, **options: Any) -> Catalogue:
    """A catalogue of one keyspace."""
    catalogue = Catalogue("one")
    getattr(catalogue, kind)(pattern, *held, **{**HOUR, **options})
    return catalogue


def kinds(old: Catalogue, new: Catalogue) -> list[str]:
    """The kinds of planned changes."""
    return [change.kind for change in plan(describe(old), describe(new))]


@pytest.mark.parametrize("kind", ["hash", "value"])
@pytest.mark.parametrize(
    ("new", "planned", "reads_old", "old_reads"),
    [
        (Before, [], True, True),
        (Wider, ["unreadable-by-old-code"], True, False),
        (Narrower, ["unreadable-by-old-code"], True, False),
        (Stricter, ["unreadable"], False, True),
        (Other, ["unreadable"], False, False),
        (Lists, ["unreadable"], False, False),
    ],
)
async def test_what_is_planned_of_records_comes_true(
    server: Valkey, kind: str, new: type, planned: list[str], reads_old: bool, old_reads: bool
) -> None:
    """Values that a plan calls unreadable are misses for that version's code, and others are not."""
    old_catalogue, new_catalogue = (
        declared(kind, f"planned:{kind}:{new.__name__}:{{id}}", held) for held in (Before, new)
    )
    if kind == "hash" and new is Other:  # a hash stores numbers as text
        planned, reads_old = ["unreadable-by-old-code"], True
    assert kinds(old_catalogue, new_catalogue) == planned
    (old_space,), (new_space,) = old_catalogue, new_catalogue
    examples: dict[type, dict[str, Any]] = {
        Before: {"name": "a", "age": 1},
        Wider: {"name": "a", "age": None},
        Other: {"name": "a", "age": "x"},
        Lists: {"name": "a", "age": [1]},
    }
    examples |= {Narrower: {"name": "a"}, Stricter: {"name": "a", "age": 1, "city": "b"}}
    async with connect(server.url, old_catalogue) as old, connect(server.url, new_catalogue) as store:
        await old[old_space].put(Before("a", 1), id=1)
        assert (await store[new_space].get(id=1) is not None) == reads_old
        await store[new_space].put(new(**examples[new]), id=2)
        assert (await old[old_space].get(id=2) is not None) == old_reads


@pytest.mark.parametrize(
    ("old", "new", "planned"),
    [
        (declared("counter", "a:{x}"), declared("counter", "a:{y}"), []),
        (declared("counter", "a:{x}"), declared("counter", "b:{x}"), ["orphaned", "new"]),
        (declared("counter", "a:{x}"), declared("counter", "a:{x}", hash_tag="x"), ["orphaned", "new"]),
        (declared("counter", "a:{x}"), declared("set", "a:{x}", str), ["wrong-type"]),
        (declared("counter", "a:{x}"), declared("flag", "a:{x}"), ["unreadable"]),
        (declared("set", "a:{x}", int), declared("set", "a:{x}", str), ["unreadable"]),
        (declared("value", "a:{x}", int), declared("value", "a:{x}", float), ["unreadable-by-old-code"]),
        (
            declared("counter", "a:{x}"),
            declared("counter", "a:{x}", role="queue", lifetime=permanent(reason="x")),
            ["moved", "will-vanish"],
        ),
        (
            declared("counter", "a:{x}", lifetime=permanent(reason="x")),
            declared("counter", "a:{x}"),
            ["never-expires"],
        ),
        (
            declared("counter", "a:{x}"),
            declared("counter", "a:{x}", lifetime=fixed(minutes=1)),
            ["shorter-lifetime"],
        ),
        (
            declared("counter", "a:{x}", sensitive=True),
            declared("counter", "a:{x}", lifetime=fixed(hours=2)),
            ["longer-lifetime", "no-longer-sensitive"],
        ),
    ],
)
def test_every_change_is_planned(old: Catalogue, new: Catalogue, planned: list[str]) -> None:
    """Keys, types, roles, lifetimes: each difference that matters to existing keys is named, no other."""
    assert kinds(old, new) == planned


@pytest.fixture
def swept() -> Iterator[Valkey]:
    """A server with 2,500 orphaned keys, a hundred that are still declared, and one of another program."""
    with embedded.valkey() as server:
        for name, count in (("gone", 2500), ("kept", 100)):
            server.ask("MSET", *(part for n in range(count) for part in (f"{name}:{n}", "1")))
        server.ask("SET", "theirs", 1)
        yield server


OLD = Catalogue("swept")
OLD.counter("gone:{id}", **HOUR)  # type: ignore[arg-type]
OLD.counter("kept:{id}", **HOUR)  # type: ignore[arg-type]
NEW = declared("counter", "kept:{other}")


async def test_a_sweep_counts_first_and_then_removes_orphans_alone(swept: Valkey) -> None:
    """Without `delete` nothing is removed; with it only what the new version cannot render."""
    old, new = describe(OLD), describe(NEW)
    dry = await sweep(swept.url, old, new)
    assert (dry.found, dry.removed, dry.cursor) == ({"gone:{id}": 2500}, 0, None)
    assert swept.ask("DBSIZE") == 2601
    wet = await sweep(swept.url, old, new, SweepOptions(delete=True, rate=1e9))
    assert wet.removed == 2500
    assert swept.ask("DBSIZE") == 101
    assert (await sweep(swept.url, old, new)).found == {}


async def test_a_sweep_is_bounded_and_resumes(swept: Valkey) -> None:
    """It removes no more than asked, and its cursors lead through all of the server."""
    old, new = describe(OLD), describe(NEW)
    cursor, removed, rounds = None, 0, 0
    while rounds == 0 or cursor is not None:
        options = SweepOptions(delete=True, rate=1e9, at_most=700, cursor=cursor)
        report = await sweep(swept.url, old, new, options)
        assert report.removed <= 700
        removed, cursor, rounds = removed + report.removed, report.cursor, rounds + 1
    assert (removed, rounds) == (2500, 4)
    assert swept.ask("DBSIZE") == 101


async def test_what_a_lost_connection_left_is_not_counted_as_removed(swept: Valkey) -> None:
    """If the server dies between two batches, only the first was removed, and the sweep can be resumed."""
    options = SweepOptions(delete=True, rate=50.0)
    running = asyncio.create_task(sweep(swept.url, describe(OLD), describe(NEW), options))
    async with open_client(swept.url) as client:
        while (left := await client.call("DBSIZE")) > 2501:
            await asyncio.sleep(0.01)
    swept.kill()  # while it waits two seconds for its rate
    result = await running
    assert (result.removed, left) == (100, 2501)
    assert result.stopped is not None
    assert result.cursor is not None


async def test_a_pattern_that_became_narrower_protects_its_keys(swept: Valkey) -> None:
    """A key that a new pattern could render is kept, even if the earlier pattern is gone."""
    swept.ask("SET", "gone:1:2", 1)
    narrow = Catalogue("narrow")
    narrow.counter("gone:1", **HOUR)  # type: ignore[arg-type]
    narrow.counter("kept:{id}", **HOUR)  # type: ignore[arg-type]
    report = await sweep(swept.url, describe(OLD), describe(narrow))
    assert report.found == {"gone:{id}": 2499}


async def test_a_cluster_is_swept_on_every_master(own_cluster: Cluster) -> None:
    """Orphans of all masters are removed, whatever their slots."""
    async with open_client(own_cluster.url) as client:
        for node in client.nodes():
            await node.call("FLUSHALL")
        for number in range(300):
            await client.call("SET", f"gone:{number}", 1)
        await client.call("SET", "kept:1", 1)
    old, new = describe(OLD), describe(NEW)
    assert (await sweep(own_cluster.url, old, new, SweepOptions(delete=True, rate=1e9))).removed == 300
    assert (await audit(own_cluster.url, [NEW])).unknown.keys == 0


@pytest.mark.parametrize("width", [80, 120])
def test_the_commands_compare_with_a_released_version(
    swept: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """`plan` counts the keys of each change, `sweep` removes them, on lines that fit the terminal."""
    monkeypatch.chdir(tmp_path)
    Path("released.json").write_text(as_json(OLD))
    Path("deployed.json").write_text(as_json(NEW))
    versions, at = ("released.json", "deployed.json"), ("--url", swept.url)
    shown = ephemera("plan", *versions, *at, env={"COLUMNS": str(width)})
    assert shown.code == 0
    assert "gone:{id}, 2,500 keys" in shown.out
    assert max(map(len, shown.out.splitlines())) <= width
    (change,) = json.loads(ephemera("plan", *versions, *at, "--json").out)
    assert (change["kind"], change["keys"]) == ("orphaned", 2500)
    dry = ephemera("sweep", *versions, *at)
    assert "nothing was removed: add --delete" in dry.out
    part = ephemera("sweep", *versions, *at, "--delete", "--rate", "1000000", "--at-most", "10")
    assert part.code == 1
    assert "10 keys removed" in part.out
    assert "resume with --cursor" in part.out
    assert ephemera("plan", "released.json", "missing.json").code == 2


def test_a_file_that_is_no_catalogue_is_refused(tmp_path: Path) -> None:
    """The error says what the file should be."""
    wrong = tmp_path / "wrong.json"
    wrong.write_text("[]")
    outcome = ephemera("plan", str(wrong), str(wrong))
    assert outcome.code == 2
    assert "the JSON of `ephemera catalogue --json`" in outcome.said


async def test_adoption_begins_with_what_may_be_lost(own_valkey: Valkey) -> None:
    """Caches come before queues; each step has its hazards and an existing page."""
    own_valkey.ask("FLUSHALL")
    own_valkey.ask("LPUSH", "celery", "{}")
    own_valkey.ask("SET", ":1:page", "x")
    own_valkey.ask("SET", "somebody", "x")
    steps = adoption(await audit(own_valkey.url, []))
    assert [step.library for step in steps] == ["Django cache", "Celery"]
    assert all(step.hazards and step.first for step in steps)


async def test_adoption_ends_with_what_costs_most(own_valkey: Valkey) -> None:
    """Limits, then locks, sessions and jobs, however many keys each has."""
    own_valkey.ask("FLUSHALL")
    for number in range(9):
        own_valkey.ask("HSET", f"rq:job:{number}", "data", "x")
        own_valkey.ask("SET", f"starsessions.{number:032x}", "{}", "EX", 60)
    own_valkey.ask("SET", "lock:report", "0123456789abcdef0123456789abcdef", "EX", 60)
    own_valkey.ask("SET", "LIMITS:LIMITER/1/10/1/minute", 1, "EX", 60)
    steps = adoption(await audit(own_valkey.url, []))
    assert [step.library for step in steps] == ["limits", "redis-py locks", "starsessions", "RQ"]


@pytest.mark.parametrize("width", [80, 120])
def test_adopt_fits_the_terminal(own_valkey: Valkey, width: int) -> None:
    """The steps are numbered, and keys of no library are left to `infer`."""
    own_valkey.ask("FLUSHALL")
    own_valkey.ask("LPUSH", "celery", "{}")
    own_valkey.ask("SET", "somebody", "x")
    shown = ephemera("adopt", "--url", own_valkey.url, env={"COLUMNS": str(width)}).out
    assert "1. Celery, 1 key, role queue" in shown
    assert "see docs/migration/celery.md" in shown
    assert "1 key of no known library" in shown
    assert max(map(len, shown.splitlines())) <= width
