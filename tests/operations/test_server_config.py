"""The configuration of each role boots a server that has its settings."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from ephemera import embedded
from ephemera.embedded import free_ports, send_command, valkey_binary
from ephemera.errors import InvalidValue, ServerError
from ephemera.keyspace import Role
from ephemera.operations.configuration import server_config, server_settings
from tests.wire.debian_redis import BINARY

ROLES = pytest.mark.parametrize("role", get_args(Role))
EXPECTED = {
    "cache": {"maxmemory-policy": "allkeys-lru", "save": "", "appendonly": "no"},
    "queue": {
        "maxmemory-policy": "noeviction",
        "save": "900 1",
        "appendonly": "yes",
        "appendfsync": "everysec",
    },
}


def setting(address: tuple[str, int] | str, name: str, password: str | None = None) -> str:
    """The value of one setting of a running server."""
    reply = send_command(address, "CONFIG", "GET", name, password=password)
    assert isinstance(reply, list)
    return str(reply[1])


def config_of(role: Role, memory: str) -> dict[str, str]:
    """The settings of a role for the embedded server, which chooses its own address."""
    return {each.name: each.value for each in server_settings(role, memory) if each.name != "bind"}


@pytest.fixture(params=["valkey", "redis7"])
def binary(request: pytest.FixtureRequest) -> str:
    """Each supported server."""
    if request.param == "valkey":
        return valkey_binary()
    if not BINARY.exists():
        pytest.skip(f"Redis 7 is not installed: there is no {BINARY}")
    return str(BINARY)


@pytest.fixture
def booted(binary: str, role: Role, tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A server started with the printed file; only its port and folder differ."""
    [port] = free_ports(1)
    file = tmp_path / f"{role}.conf"
    file.write_text(server_config(role, "64mb"))
    process = subprocess.Popen(
        [binary, str(file), "--port", str(port), "--dir", str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        with process.stdout or pytest.fail("no output"):
            log = ""
            while "Ready to accept connections" not in log:
                line = process.stdout.readline() if process.stdout else ""
                assert line, f"it did not start: {log}"
                log += line
            yield ("127.0.0.1", port)
    finally:
        process.kill()
        process.wait()


@ROLES
def test_the_printed_file_boots_a_server_that_has_its_settings(booted: tuple[str, int], role: Role) -> None:
    """valkey-server and redis-server 7 accept the file unchanged."""
    for name, value in EXPECTED[role].items():
        assert setting(booted, name) == value
    assert setting(booted, "maxmemory") == str(64 * 1024 * 1024)
    assert setting(booted, "bind") == "127.0.0.1 -::1"
    assert setting(booted, "protected-mode") == "yes"


@ROLES
def test_the_embedded_server_accepts_the_settings(role: Role) -> None:
    """Tests and demos can use the production settings."""
    with embedded.valkey(config=config_of(role, "64mb")) as server:
        for name, value in EXPECTED[role].items():
            assert setting(server.address, name, server.password) == value


def test_a_full_cache_evicts_and_a_full_queue_refuses() -> None:
    """With hardly any memory, a cache evicts and a queue refuses writes."""
    value = "x" * 100_000
    with embedded.valkey(config=config_of("cache", "3mb")) as cache:
        assert all(cache.ask("SET", f"key:{n}", value) == "OK" for n in range(50))
        assert int(str(cache.ask("DBSIZE"))) < 50
    with embedded.valkey(config=config_of("queue", "3mb")) as queue, pytest.raises(ServerError, match="OOM"):
        [queue.ask("SET", f"key:{n}", value) for n in range(50)]


@ROLES
def test_every_setting_has_its_reason_above_it(role: Role) -> None:
    """Each line of the file has a comment with its reason."""
    blocks = server_config(role).split("\n\n")[1:]
    assert len(blocks) == len(server_settings(role))
    assert all(block.startswith("# ") and block.count("\n") >= 1 for block in blocks)
    assert "volatile-*" in server_config("cache")


@pytest.mark.parametrize(
    "memory", ["", "0", "0mb", "lots", "-1", "1 gb", "1tb", "256mb\nport 1", "12", "12k", "900kb"]
)
def test_invalid_memory_is_refused(memory: str) -> None:
    """An amount that the server would not understand is refused."""
    with pytest.raises(InvalidValue, match="maxmemory"):
        server_settings("cache", memory)
