"""Embedded PostgreSQL: ready when returned, crash-safe, with or without root, no trace when stopped."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from ephemera.embedded import Postgres, postgres
from ephemera.embedded import _postgresql as postgresql
from ephemera.embedded import _processes as processes
from ephemera.errors import EmbeddedError
from tests.embedded.owners import alive, family

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another user for PostgreSQL")


def query(url: str, statement: str) -> list[tuple[object, ...]]:
    """Return the rows of one statement, committed at once."""
    with psycopg.connect(url, autocommit=True) as connection:
        done = connection.execute(statement.encode())
        return done.fetchall() if done.description else []


def shared_memory(running: Postgres) -> str:
    """Return the id of the server's System V segment."""
    return (running.data / "postmaster.pid").read_text().splitlines()[6].split()[1]


def all_shared_memory() -> list[str]:
    """Return the ids of the System V segments there are."""
    listing = Path("/proc/sysvipc/shm")
    return [line.split()[1] for line in listing.read_text().splitlines()]


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A PostgreSQL for the tests that leave it as it was."""
    with postgres() as running:
        yield running


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="ephemera-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_it_is_ready_when_returned(server: Postgres) -> None:
    """Psycopg connects at once, to PostgreSQL 18 with UTF-8 and Unicode rules."""
    assert str(query(server.url, "SHOW server_version")[0][0]).startswith("18.")
    assert query(server.url, "SELECT upper('ä'), current_setting('server_encoding')") == [("Ä", "UTF8")]


def test_it_cannot_be_reached_from_elsewhere(server: Postgres) -> None:
    """There is no port, and only its user may enter the socket's folder."""
    assert query(server.url, "SHOW listen_addresses") == [("",)]
    assert server.log.parent.stat().st_mode & 0o007 == 0


def test_a_database_is_created_once(server: Postgres) -> None:
    """database() gives the same empty database each time, whatever characters its name has."""
    url = server.database('odd "name" & more')
    query(url, "CREATE TABLE kept (value int)")
    assert server.database('odd "name" & more') == url
    assert query(url, "SELECT current_database()") == [('odd "name" & more',)]
    assert query(url, "TABLE kept") == []
    assert query(server.url, "SELECT to_regclass('kept')") == [(None,)]


def test_a_database_that_cannot_be_made_is_an_error(server: Postgres) -> None:
    """The error contains what PostgreSQL says about the name."""
    with pytest.raises(EmbeddedError, match="zero-length"):
        server.database("")


def test_commits_survive_a_kill_and_stop_leaves_nothing(server: Postgres) -> None:
    """What was committed to one of two servers survives kill(); nothing of it is left after stop()."""
    running = postgres()
    with running, psycopg.connect(running.url) as client:
        query(running.url, "CREATE TABLE kept AS SELECT 1 AS value")
        killed = family(running.supervisor_pid)[1:]
        running.kill()
        assert not any(map(alive, killed))
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
        running.restart()
        assert query(running.url, "TABLE kept") == [(1,)]
        assert query(server.url, "SELECT to_regclass('kept')") == [(None,)]
        memory = shared_memory(running)
        running.kill()
    running.stop()
    assert not running.log.parent.exists()
    assert not alive(running.supervisor_pid)
    assert memory not in all_shared_memory()


def test_an_open_connection_does_not_delay_a_restart(server: Postgres) -> None:
    """restart() ends the connections of clients that stay connected."""
    with psycopg.connect(server.url) as client:
        client.execute("SELECT 1")
        server.restart()
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
    assert query(server.url, "SELECT 1") == [(1,)]


def test_pause_hangs_open_connections_too(server: Postgres) -> None:
    """pause() stops the backends that already serve clients; resume() lets them finish."""
    with psycopg.connect(server.url) as client:
        client.execute("SELECT 1")
        server.pause()
        client.pgconn.send_query(b"SELECT 2")
        status = Path(f"/proc/{client.info.backend_pid}/stat")
        if status.exists():
            assert status.read_text().rpartition(")")[2].split()[0] == "T"
        server.resume()
        result = client.pgconn.get_result()
        assert result is not None
        assert result.get_value(0, 0) == b"2"
        while client.pgconn.get_result():
            pass


def test_a_data_folder_survives_its_server(open_folder: Path) -> None:
    """Data in a given folder, even where initdb once crashed, is kept, and used by one server at a time."""
    crashed = open_folder / ".data.ephemera-initdb"
    crashed.mkdir()
    (crashed / "PG_VERSION").write_text("18\n")
    with postgres(data=open_folder / "data") as running:
        url = running.database("app")
        query(url, "CREATE TABLE kept AS SELECT 1 AS value")
        assert query(url, "SHOW fsync") == [("on",)]
        with pytest.raises(EmbeddedError, match=r"postmaster\.pid"):
            postgres(data=open_folder / "data")
        assert shared_memory(running) in all_shared_memory()
    with postgres(data=str(open_folder / "data")) as running:
        assert query(running.database("app"), "TABLE kept") == [(1,)]
    assert [path.name for path in open_folder.iterdir()] == ["data"]


def test_a_folder_with_other_files_is_refused(open_folder: Path) -> None:
    """A folder with other contents is left as it is."""
    data = open_folder / "data"
    data.mkdir()
    (data / "letter.txt").write_text("mine")
    if os.geteuid() == 0:
        os.chown(data, 65534, 65534)
    with pytest.raises(EmbeddedError, match="not empty"):
        postgres(data=data)
    assert [path.name for path in data.iterdir()] == ["letter.txt"]


@as_root
def test_roots_own_folder_is_refused_and_left_alone(open_folder: Path) -> None:
    """A folder of root's never changes its owner so that PostgreSQL can run."""
    with pytest.raises(EmbeddedError, match="does not run as root"):
        postgres(data=open_folder)
    assert open_folder.stat().st_uid == 0


@as_root
def test_an_unreachable_folder_is_explained_and_left_alone(tmp_path: Path) -> None:
    """A data folder below one that is closed to others is an error that says so."""
    tmp_path.chmod(0o700)
    with pytest.raises(EmbeddedError, match="must be able to enter every folder above"):
        postgres(data=tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


@as_root
def test_programs_that_others_cannot_reach_are_copied_once(
    tmp_path: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the wheel in a private folder, root's readable copy is run; a tampered one is not."""
    name = postgresql.PACKAGE
    installed = processes.wheel_folder(name).parent
    tmp_path.chmod(0o700)
    for part in (name, f"{name}.libs"):
        (tmp_path / part).symlink_to(installed / part)
    monkeypatch.setattr(postgresql, "wheel_folder", lambda name: tmp_path / name)
    monkeypatch.setattr("tempfile.tempdir", str(open_folder))
    with postgres() as running:
        assert query(running.url, "SELECT 1") == [(1,)]
    (copy,) = open_folder.iterdir()
    assert (copy.stat().st_uid, copy.stat().st_mode & 0o777) == (0, 0o755)
    assert postgresql.runnable_install((65534, 65534, 65534)) == copy / name / postgresql.INSTALL
    copy.chmod(0o777)
    with pytest.raises(EmbeddedError, match="remove it"):
        postgres()
