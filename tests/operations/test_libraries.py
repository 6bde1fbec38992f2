"""Recognition: keys that other libraries wrote are known, with their role, and never shown if sensitive."""

from __future__ import annotations

import asyncio
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import redis

from ephemera.embedded import Valkey
from ephemera.operations.audit import audit
from ephemera.operations.infer import infer
from ephemera.operations.libraries import LIBRARIES, identify, needs_content, signs_of
from tests.cli.commands import ephemera
from tests.operations.library_writers import DOCUMENTED, WRITERS
from tests.operations.test_infer import imported

DOCS = Path(__file__).parents[2] / "docs"
JOBS = ("Celery", "RQ", "arq", "dramatiq", "huey", "taskiq", "BullMQ", "Sidekiq")
ANYBODYS = {"cashews": {"user:1"}, "Channels": {"asgitasks"}}
"""Names that the user of a library chooses freely."""
OF_THEIR_SHAPE = {"Django cache": {"myapp:1:page-2"}}
"""Keys that are known by their neighbours."""
LOOK_ALIKES = {
    "session:7": "SET session:7 {}",
    "checkpoint:7": "HSET checkpoint:7 at 12",
    "lock:door": "SET lock:door 1",
    "redlock:door": "SET redlock:door closed",
    "feature:a|b": "SET feature:a|b on",
    "_lock:a|b": "SET _lock:a|b on",
    "board": "ZADD board 1 ann",
    "emails": 'LPUSH emails {"to":"ann"}',
    "user:1:name": "SET user:1:name ann",
}
"""Names that libraries write, too, with what other programs keep there."""


def written(server: Valkey, library: str) -> None:
    """Fill an empty server with the keys of a library."""
    server.ask("FLUSHALL")
    if library in DOCUMENTED:
        for command in DOCUMENTED[library]:
            server.ask(*command.split())
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other libraries, about each other
        WRITERS[library](server.url)


def names(server: Valkey) -> set[str]:
    """The names of all keys."""
    found: Any = server.ask("KEYS", "*")
    return set(map(str, found))


@pytest.mark.parametrize("library", [*WRITERS, *DOCUMENTED])
def test_every_key_of_a_library_is_recognized(own_valkey: Valkey, library: str) -> None:
    """By name, type and content each of its keys belongs to it, but for names that users choose."""
    written(own_valkey, library)
    foreign = set()
    for name in names(own_valkey) - ANYBODYS.get(library, set()):
        kind = str(own_valkey.ask("TYPE", name))
        found = identify(name.encode(), kind, signs(own_valkey, name, kind))
        if found is None or found.library.name != library:
            foreign.add(name)
    assert foreign == OF_THEIR_SHAPE.get(library, set())


def signs(server: Valkey, name: str, kind: str) -> frozenset[str]:
    """What tells in the content of a key, where its name does not."""
    read = {"string": ("GET",), "list": ("LRANGE", 0, -1), "zset": ("ZRANGE", 0, -1)}
    if not needs_content(name.encode(), kind):
        return frozenset()
    command, *rest = read[kind]
    with redis.from_url(server.url) as connection:  # as bytes
        return signs_of(kind, connection.execute_command(command, name, *rest))


@pytest.mark.parametrize("name", LOOK_ALIKES)
async def test_a_name_alone_is_not_attributed(own_valkey: Valkey, name: str) -> None:
    """Keys of other programs that are named like a library's belong to none, in audits and proposals."""
    own_valkey.ask("FLUSHALL")
    own_valkey.ask(*LOOK_ALIKES[name].split())
    report = await audit(own_valkey.url, [])
    assert [shape.library for shape in report.unknown.shapes] == [None]
    assert [each.library for each in (await infer(own_valkey.url)).keyspaces] == [None]


async def test_pickles_of_one_user_are_not_djangos(own_valkey: Valkey) -> None:
    """A number in the middle is Django's version only if all keys of a shape have it."""
    with redis.from_url(own_valkey.url) as connection:
        connection.flushall()
        for number in range(1, 30):
            connection.set(f"user:{number}:profile", pickle.dumps("x"))
    report = await audit(own_valkey.url, [])
    assert [shape.library for shape in report.unknown.shapes] == [None]


@pytest.mark.parametrize("library", JOBS)
def test_what_holds_jobs_has_role_queue(own_valkey: Valkey, library: str) -> None:
    """The proposal for a library of jobs imports, names it in each purpose, and declares no cache."""
    written(own_valkey, library)
    proposal = asyncio.run(infer(own_valkey.url))
    catalogue = imported(proposal.source)
    assert [space.pattern for space in catalogue if space.role != "queue"] == []
    assert [space.pattern for space in catalogue if not space.purpose.startswith(library)] == []
    assert f"{library} uses this server." in proposal.source


@pytest.mark.parametrize("library", [*WRITERS, *DOCUMENTED])
def test_an_audit_names_the_library(own_valkey: Valkey, library: str) -> None:
    """Undeclared keys of a library are attributed to it, with its role, whatever a queue is named."""
    written(own_valkey, library)
    report = asyncio.run(audit(own_valkey.url, []))
    assert {shape.library for shape in report.unknown.shapes} - {None} == {library}
    unknown = {key for shape in report.unknown.shapes if not shape.library for key in shape.examples}
    assert unknown <= ANYBODYS.get(library, set())
    if library in JOBS:
        assert {shape.role for shape in report.unknown.shapes} == {"queue"}
    (finding,) = [each for each in report.findings if each.kind == "unknown"]
    assert f"written by {library}" in finding.message


def test_adoption_finds_queues_of_any_name_unless_contents_are_not_read(own_valkey: Valkey) -> None:
    """`adopt` reads the messages of a list; `audit --no-contents` does not, and leaves it unknown."""
    written(own_valkey, "Celery")
    for name in names(own_valkey) - {"emails"}:
        own_valkey.ask("UNLINK", name)
    assert "1. Celery" in ephemera("adopt", "--url", own_valkey.url).out
    words = ("audit", "--url", own_valkey.url, "--json")
    assert '"library":"Celery"' in ephemera(*words).out.replace(": ", ":")
    assert "Celery" not in ephemera(*words, "--no-contents").out


async def test_common_names_prove_nothing_alone(own_valkey: Valkey) -> None:
    """A list `queue:x` is Sidekiq's only where a key was found that no other program writes."""
    own_valkey.ask("FLUSHALL")
    own_valkey.ask("LPUSH", "queue:x", "{}")
    report = await audit(own_valkey.url, [])
    assert [shape.library for shape in report.unknown.shapes] == [None]
    own_valkey.ask("INCR", "stat:processed")
    report = await audit(own_valkey.url, [])
    assert {shape.library for shape in report.unknown.shapes} == {"Sidekiq"}


async def test_a_name_of_another_type_is_not_recognized(own_valkey: Valkey) -> None:
    """A string named `celery` is not a queue."""
    own_valkey.ask("FLUSHALL")
    own_valkey.ask("SET", "celery", "a vegetable")
    (proposed,) = (await infer(own_valkey.url)).keyspaces
    assert (proposed.library, proposed.role) == (None, "cache")


def test_every_declaration_is_tested_and_its_page_exists() -> None:
    """Each library is written by a test, and says what to change first and where to read about it."""
    assert {each.name for each in LIBRARIES} == {*WRITERS, *DOCUMENTED}
    assert [each.name for each in LIBRARIES if not (each.first and (DOCS / each.page).is_file())] == []
