"""SEC1: another user of the machine read and wrote the data of the embedded servers."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psutil
import psycopg
import pytest

from ephemera.embedded import Cluster, Postgres, Sentinel, Valkey, cluster, sentinel, valkey
from ephemera_services.demo.external_servers import ServerUrls
from ephemera_services.demo.servers import open_servers

_NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Valkey]]:
    """One server of each kind: on a port, on a socket, and the parts of a cluster and of Sentinel."""
    with ExitStack() as stack:
        shards: Cluster = stack.enter_context(cluster(masters=1, replicas=1))
        watched: Sentinel = stack.enter_context(sentinel())
        single = [stack.enter_context(valkey()), stack.enter_context(valkey(unix=True))]
        yield [*single, *shards.nodes, *watched.nodes, *watched.sentinels]


def as_nobody(work: Callable[[], str]) -> str:
    """What a function returns, or the name of its error, in a process of another user."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(_NOBODY)
            os.setuid(_NOBODY)
            answer = work()
        except BaseException as problem:
            answer = type(problem).__name__
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    answer = json.loads(os.read(reading, 10_000))
    os.close(reading)
    os.waitpid(child, 0)
    return str(answer)


def without_password(server: Valkey) -> str:
    """The replies to a write and a read over a new connection."""
    with socket.socket(socket.AF_UNIX if isinstance(server.address, str) else socket.AF_INET) as connection:
        connection.connect(server.address)
        connection.sendall(b"SET sec1 x\r\n")
        reply = connection.recv(100)
        connection.sendall(b"GET sec1\r\n")
        return (reply + connection.recv(100)).decode()


@needs_root
def test_sec1_another_user_can_neither_read_nor_write(servers: list[Valkey]) -> None:
    """Ports ask for the password, and the folder of a socket is closed."""
    for server in servers:
        answer = as_nobody(lambda server=server: without_password(server))  # type: ignore[misc]
        assert answer.count("NOAUTH") == 2 or answer == "PermissionError", (server, answer)


def test_sec1_a_port_asks_even_its_own_user_for_the_password(servers: list[Valkey]) -> None:
    """The same without root: who does not know the URL is refused."""
    for server in servers:
        if server.port:
            assert without_password(server).count("NOAUTH") == 2, server


def test_sec1_the_password_is_shown_nowhere(servers: list[Valkey]) -> None:
    """Command lines, logs and reprs do not contain it, and only the owner can read its file."""
    for server in servers:
        if server.port:
            assert server.password
            processes = [psutil.Process(pid).cmdline() for pid in (server.pid, server.supervisor_pid)]
            for shown in (str(processes), server.log.read_text(), repr(server)):
                assert server.password not in shown
                assert server.password.encode().hex() not in shown.replace("\\x", "")
        assert server.log.parent.stat().st_mode & 0o077 == 0
        assert all(file.stat().st_mode & 0o077 == 0 for file in [server.log, *server.data.glob("*.rdb")])


@needs_root
def test_sec1_postgres_started_by_root_is_closed_to_the_user_that_it_runs_as(postgres: Postgres) -> None:
    """It runs as `nobody`; other processes of `nobody` reach neither its socket nor its data."""
    folder = unquote(urlsplit(postgres.url).query.removeprefix("host="))

    def connect() -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"{folder}/.s.PGSQL.5432")
        return "connected"

    assert connect() == "connected"
    assert psutil.Process(postgres.pid).uids().real == _NOBODY
    assert as_nobody(connect) == "PermissionError"
    assert as_nobody(lambda: str(list(Path(folder).iterdir()))) == "PermissionError"
    for door in ("cwd", "root"):
        path = Path(f"/proc/{postgres.pid}/{door}")
        assert as_nobody(lambda path=path: str(list(path.iterdir()))) == "PermissionError"  # type: ignore[misc]


def test_sec1_a_data_folder_is_made_private(tmp_path: Path) -> None:
    """A snapshot in a folder that the server made is readable by its owner only."""
    with valkey(data=tmp_path / "new", unix=True) as server:
        server.ask("SET", "key", "value")
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0
    assert (tmp_path / "new" / "dump.rdb").stat().st_mode & 0o077 == 0


async def test_sec1_the_demo_is_closed_to_other_users() -> None:
    """Its servers open no TCP port at all, and their sockets are in folders of their owner alone."""
    async with open_servers(ServerUrls()) as demo:
        assert len(demo.embedded_redis) == 2
        for server in demo.embedded_redis:
            assert isinstance(server.address, str)
            assert stat.S_IMODE(Path(server.address).parent.stat().st_mode) == 0o700
            assert server.ask("CONFIG", "GET", "port") == ["port", "0"]
            for pid in (server.pid, server.supervisor_pid):
                assert psutil.Process(pid).net_connections("inet") == []
        async with await psycopg.AsyncConnection.connect(demo.database_url) as sql:
            listens = await (await sql.execute("SHOW listen_addresses")).fetchone()
            assert listens == ("",)
        folder = Path(unquote(urlsplit(demo.database_url).query.removeprefix("host=")))
        assert folder.stat().st_mode & 0o007 == 0
        if os.geteuid() == 0:
            for closed in (folder, *(Path(each.address).parent for each in demo.embedded_redis)):  # type: ignore[arg-type]
                assert as_nobody(lambda closed=closed: str(list(closed.iterdir()))) == "PermissionError"  # type: ignore[misc]


def test_sec1_no_password_must_be_asked_for() -> None:
    """An empty password opens the port to all local users, on purpose."""
    with valkey(password="") as server:
        assert server.url == f"redis://127.0.0.1:{server.port}"
        assert without_password(server) == "+OK\r\n$1\r\nx\r\n"
