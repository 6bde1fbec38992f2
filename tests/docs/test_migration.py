"""The pages on migration: both sides run on a real server, and print what the page shows.

The peers are those of the extra `test`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from tests.docs.pages import DOCS, Block, blocks_of

PEERS = (
    "redis-py",
    "limits",
    "cashews",
    "celery",
    "django-redis",
    "fastapi-limiter",
    "slowapi",
    "fastapi-cache",
)


@pytest.fixture(scope="module")
def own_valkey() -> Iterator[Valkey]:
    """A server for the pages alone: each page has a database of it."""
    with embedded.valkey() as running:
        yield running


def run(block: Block, folder: Path, environment: dict[str, str]) -> str:
    """What a program of a page prints; it ends well."""
    name = block.text.partition("\n")[0].removeprefix("# ")
    done = subprocess.run(
        [sys.executable, name],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shown_after(block: Block, page: str) -> str:
    """The next block of text behind a program, even when a sentence stands between."""
    if not block.note.startswith("run by"):
        return ""
    rest = page[page.index(block.text) + len(block.text) :].partition("```python")[0]
    return next((found.text for found in blocks_of("", rest[3:]) if found.language == "text"), "")


@pytest.mark.parametrize("name", PEERS)
def test_both_sides_print_what_the_page_says(
    name: str, tmp_path: Path, own_valkey: Valkey, request: pytest.FixtureRequest
) -> None:
    """The programs of a page run in its order, on one server, with the workers that it starts."""
    page = (DOCS / "migration" / f"{name}.md").read_text(encoding="utf-8")
    where = {"URL": f"{own_valkey.url}/{PEERS.index(name)}"}
    if name == "celery":
        postgres: Postgres = request.getfixturevalue("postgres")
        where["DATABASE_URL"] = postgres.database("test_migration_page")
    environment = {**os.environ, **where, "PYTHONPATH": str(tmp_path)}
    found = [block for block in blocks_of(f"docs/migration/{name}.md", page) if block.language != "text"]
    for block in found:
        if block.note.startswith("run by"):
            (tmp_path / block.text.partition("\n")[0].removeprefix("# ")).write_text(block.text)
    with ExitStack() as workers:
        for block in found:
            if block.note.startswith("command"):
                assert _start(block, tmp_path, environment, where).wait(60) == 0, str(block)
            if block.note.startswith("worker"):
                workers.callback(_stop, _start(block, tmp_path, environment, where))
        for block in found:
            if shown := shown_after(block, page):  # the others are modules that these import
                assert run(block, tmp_path, environment) == shown, str(block)


def _start(
    block: Block, folder: Path, environment: dict[str, str], where: dict[str, str]
) -> subprocess.Popen[bytes]:
    """A command or a worker of a page, as a process of its own."""
    line = block.text.removeprefix("$ ").strip()
    program, *words = [where.get(word.removeprefix("$"), word) for word in shlex.split(line)]
    command = Path(sys.executable).with_name(program)
    with (folder / f"{program}.log").open("wb") as log:
        return subprocess.Popen([command, *words], cwd=folder, env=environment, stdout=log, stderr=log)


def _stop(worker: subprocess.Popen[bytes]) -> None:
    worker.terminate()
    try:
        worker.wait(20)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
