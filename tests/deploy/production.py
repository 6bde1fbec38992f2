"""Servers started by `deploy/servers/start.sh` with the generated files, as their containers would."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from ephemera.embedded import free_ports
from tests.wire.certificates import Authority
from tests.wire.debian_redis import BINARY
from tools.deploy.layout import TLS, USERS, host

SERVERS = Path(__file__).parents[2] / "deploy/servers"
_STARTS_WITHIN = 60.0  # seconds


class Places(NamedTuple):
    """Where the files of a production are."""

    folder: Path
    settings: Path
    tls: dict[str, str]
    """By the server's name for them; empty without TLS."""
    passwords: dict[str, str]

    def options(self) -> list[str]:
        """The TLS settings of the servers."""
        return [word for name, path in self.tls.items() for word in (f"--{name}", path)]


def places(folder: Path, *, tls: bool) -> Places:
    """The files with passwords and certificates made for now; without TLS for servers that have none."""
    settings = folder / "servers"
    shutil.copytree(SERVERS, settings)
    files: dict[str, str] = {}
    if tls:
        authority = Authority(folder, "ours")
        certificate, key = authority.certify("all", "localhost", "127.0.0.1")
        files = {
            "tls-cert-file": str(certificate),
            "tls-key-file": str(key),
            "tls-ca-cert-file": str(authority.ca),
        }
    else:
        (settings / "tls.conf").write_text("port 6379\n")
    passwords = {user: secrets.token_hex(16) for user in USERS}
    (folder / "secrets").mkdir()
    for user, password in passwords.items():
        (folder / f"secrets/redis-{user}").write_text(f"{password}\n")
    return Places(folder, settings, files, passwords)


@contextmanager
def started(
    where: Places,
    group: str,
    port: int,
    *options: str,
    program: str,
    announce: str = "localhost",
    first: str = "",
) -> Iterator[Path]:
    """A server of a group, which accepts connections; gives its data folder."""
    data = where.folder / f"{group}-{port}"
    data.mkdir(exist_ok=True)
    variables = {
        "SETTINGS": str(where.settings),
        "SECRETS": str(where.folder / "secrets"),
        "DATA": str(data),
        "ANNOUNCE": announce,
        "FIRST": first or f"{announce} {port}",
        "PROGRAM": program,
        "PATH": os.environ["PATH"],
    }
    kind = "--tls-port" if where.tls else "--port"
    words = ["/bin/sh", str(where.settings / "start.sh"), group, kind, str(port), *where.options(), *options]
    log = data / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(words, env=variables, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + _STARTS_WITHIN
        while not any(
            sign in log.read_text() for sign in ("eady to accept connections", "+monitor master queue")
        ):
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.05)
        yield data
    finally:
        process.kill()
        process.wait()


def cli(where: Places, *words: str, user: str | None = "admin") -> str:
    """What redis-cli says, as the administrator; a Sentinel knows none."""
    files = ("--cert", where.tls["tls-cert-file"], "--key", where.tls["tls-key-file"])
    who = () if user is None else ("--user", user)
    secret = {} if user is None else {"REDISCLI_AUTH": where.passwords[user]}
    done = subprocess.run(
        ["redis-cli", "--tls", "--cacert", where.tls["tls-ca-cert-file"], *files, *who, *words],
        env={**secret, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


class Production(NamedTuple):
    """A cluster of six, a queue of two and three Sentinels, by TLS."""

    places: Places
    cache: list[int]
    queue: list[int]
    sentinels: list[int]
    pages: int
    texts: int

    def here(self, url: str) -> str:
        """A URL of the layout, with the ports and certificates of these servers."""
        named = {
            **{f"{host('cache', number)}:6379": port for number, port in enumerate(self.cache)},
            **{f"{host('sentinel', number)}:26379": port for number, port in enumerate(self.sentinels)},
            f"{host('pages', 0)}:6379": self.pages,
            f"{host('texts', 0)}:6379": self.texts,
        }
        for name, port in named.items():
            url = url.replace(name, f"localhost:{port}")
        tls = self.places.tls
        return url.replace(
            TLS, f"ca={tls['tls-ca-cert-file']}&cert={tls['tls-cert-file']}&key={tls['tls-key-file']}"
        )


@contextmanager
def production(folder: Path) -> Iterator[Production]:
    """All Redis servers of the layout, on Debian's Redis 7."""
    where, program = places(folder, tls=True), str(BINARY)
    ports = free_ports(6 + 6 + 2 + 3 + 2)
    cache, buses, queue, sentinels = ports[:6], ports[6:12], ports[12:14], ports[14:17]
    pages, texts = ports[17:]
    sentinel_file = where.settings / "sentinel.conf"
    monitored = sentinel_file.read_text().replace("queue-0.queue 6379", f"localhost {queue[0]}")
    sentinel_file.write_text(monitored)
    with ExitStack() as stack:
        for port, bus in zip(cache, buses, strict=True):
            more = ("--cluster-port", str(bus))
            stack.enter_context(started(where, "cache", port, *more, program=program))
        nodes = [f"127.0.0.1:{port}" for port in cache]
        made = cli(where, "--cluster", "create", *nodes, "--cluster-replicas", "1", "--cluster-yes")
        assert "All 16384 slots covered" in made, made
        first = f"localhost {queue[0]}"
        for port, name in zip(queue, ("localhost", "127.0.0.1"), strict=True):
            stack.enter_context(started(where, "queue", port, program=program, announce=name, first=first))
        for port in sentinels:
            stack.enter_context(started(where, "sentinel", port, program=program))
        stack.enter_context(started(where, "pages", pages, program=program))
        stack.enter_context(started(where, "texts", texts, program=program))
        yield Production(where, cache, queue, sentinels, pages, texts)
