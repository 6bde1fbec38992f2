"""Recognition: keys that other libraries wrote are known, with their role, and never shown if sensitive."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path
from typing import Any

import pytest

from ephemera.embedded import Valkey
from ephemera.operations.audit import audit
from ephemera.operations.infer import infer
from ephemera.operations.libraries import LIBRARIES, identify
from tests.operations.library_writers import DOCUMENTED, WRITERS
from tests.operations.test_infer import imported

DOCS = Path(__file__).parents[2] / "docs"
JOBS = ("Celery", "RQ", "arq", "dramatiq", "huey", "taskiq", "BullMQ", "Sidekiq")
ANYBODYS = {"cashews": {"user:1"}, "Channels": {"asgitasks"}}
"""Names that the user of a library chooses freely."""


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
    """By name and type alone each of its keys belongs to it, but for names that users choose themselves."""
    written(own_valkey, library)
    foreign = set()
    for name in names(own_valkey) - ANYBODYS.get(library, set()):
        found = identify(name.encode(), str(own_valkey.ask("TYPE", name)))
        if found is None or found.library.name != library:
            foreign.add(name)
    assert foreign == ({"emails"} if library == "Celery" else set())  # this one is known by its messages


@pytest.mark.parametrize("library", JOBS)
def test_what_holds_jobs_has_role_queue(own_valkey: Valkey, library: str) -> None:
    """The proposal for a library of jobs imports, names it in each purpose, and declares no cache."""
    written(own_valkey, library)
    proposal = asyncio.run(infer(own_valkey.url))
    catalogue = imported(proposal.source)
    assert [space.pattern for space in catalogue if space.role != "queue"] == []
    assert [space.pattern for space in catalogue if not space.purpose.startswith(library)] == []
    assert f"{library} uses this server." in proposal.source


@pytest.mark.parametrize("library", ["Celery", "Django sessions", "limits"])
def test_an_audit_names_the_library(own_valkey: Valkey, library: str) -> None:
    """Undeclared keys of a library are attributed to it, with its role."""
    written(own_valkey, library)
    report = asyncio.run(audit(own_valkey.url, []))
    found = {shape.library: shape.role for shape in report.unknown.shapes if shape.library}
    assert found == {library: "cache" if library == "limits" else "queue"}
    (finding,) = [each for each in report.findings if each.kind == "unknown"]
    assert f"written by {library}" in finding.message


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
