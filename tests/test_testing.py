"""The pytest plugin gives users' own suites an empty store on a real server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SUITE = """
import msgspec, pytest
from ephemera import Catalogue, fixed

class Note(msgspec.Struct):
    text: str

catalogue = Catalogue("notes")
NOTE = catalogue.hash("note:{note_id}", Note, lifetime=fixed(minutes=1), purpose="test")

@pytest.fixture
def ephemera_catalogues():
    return (catalogue,)

async def test_writes(ephemera_store):
    await ephemera_store[NOTE].put(Note("first"), note_id=1)
    assert await ephemera_store.call("DBSIZE") == 1

async def test_starts_empty_again(ephemera_store):
    assert await ephemera_store.call("DBSIZE") == 0

def test_sync_store_starts_empty_too(ephemera_sync_store):
    assert ephemera_sync_store.call("DBSIZE") == 0
    assert ephemera_sync_store[NOTE].get(note_id=1) is None
"""


# Plugins of packages that our tests install, which take seconds to load.
UNUSED = ("faker", "langsmith_plugin", "locust", "platformdirs", "schemathesis", "valkey")


def pytest_in(folder: Path, *options: str) -> str:
    """The output of pytest for the suite in a folder."""
    unused = (word for name in UNUSED for word in ("-p", f"no:{name}"))
    command = [sys.executable, "-m", "pytest", "-q", *unused, *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=90, check=False)
    return done.stdout + done.stderr


def test_each_test_gets_an_empty_store(tmp_path: Path) -> None:
    """Both stores start empty in every test, whatever the previous test left behind."""
    (tmp_path / "test_notes.py").write_text(SUITE)
    assert "3 passed" in pytest_in(tmp_path, "-o", "asyncio_mode=auto")


def test_anyio_takes_the_same_fixture_where_there_is_no_pytest_asyncio(tmp_path: Path) -> None:
    """A suite on anyio's plugin, with pytest-asyncio switched off, uses the store as well."""
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n"
    )
    (tmp_path / "test_notes.py").write_text(
        "import pytest\n\n@pytest.mark.anyio\nasync def test_pings(ephemera_store):\n"
        "    assert await ephemera_store.call('PING') == b'PONG'\n"
    )
    assert "1 passed" in pytest_in(tmp_path, "-p", "no:asyncio")
