"""The process that stands between an owner and its embedded server, so that no server is ever orphaned.

It is run as `python -I -S supervisor.py SPEC`, with the standard library alone, and guarantees:

- The owner ends, even by SIGKILL, even while children it forked live on: the server is stopped and the
  temporary folder removed. The owner is watched through a pidfd, or by polling the parent's id where the
  system has none. The end of a *thread* of the owner means nothing, unlike with PR_SET_PDEATHSIG.
- This process ends, even by SIGKILL: the kernel signals the server (PR_SET_PDEATHSIG, set here, where
  there is one thread only).
- The server ends: its own children (PostgreSQL's backends, a Valkey saving in the background) are
  inherited by this process, as their subreaper, and killed.
- Ctrl-C in the owner's terminal reaches neither this process nor the server: this is another session.

The owner talks JSON lines: `start`, `signal`, `stop`, `poll`, each answered with the server's pid and exit
code (null while it runs), and `end`, answered by exiting. Only signals sent from here cannot hit a stranger
that got the pid of a server long dead, because here that pid is not free until it was waited for.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TypedDict

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL = 0.2  # seconds between two looks at the owner where there are no pidfds


class Spec(TypedDict):
    """What a supervisor is told once."""

    owner: int  # process id
    folder: str  # temporary, made and removed by the supervisor
    user: tuple[int, int] | None  # uid and gid to run the server with, if not one's own
    stop: int  # signal that ends the server
    grace: float  # seconds that it may take for that, before SIGKILL
    death: int  # signal that the kernel sends when the supervisor dies


class Order(TypedDict, total=False):
    """One line of the owner."""

    number: int
    do: str
    command: list[str]
    signal: int


def prctl(option: int, value: int) -> None:
    """Call Linux's prctl; elsewhere there is no such thing, and the watch on the owner must do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def children(pid: int) -> list[int]:
    """Return the ids of the processes whose parent is `pid`."""
    listing = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        found = listing.read_text()
    except OSError:
        found = "" if Path("/proc/self").exists() else os.popen(f"pgrep -P {pid}").read()  # noqa: S605
    return [int(child) for child in found.split()]


def send(pid: int, number: int) -> None:
    """Signal a process that may have just ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def is_stopped(pid: int) -> bool:
    """Tell whether SIGSTOP has taken effect, or never will; true where the system does not say."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TZX"
    except OSError:
        return True


class Supervisor:
    """One server at a time, and the folder that goes with it."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.pid: int | None = None
        self.exit: int | None = None
        self.orders = b""
        self.wake, wake = os.pipe()
        for end in (self.wake, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        os.chdir("/")
        self.owner = self.watch()

    def watch(self) -> int | None:
        """Return a descriptor that becomes readable when the owner ends, where there are such."""
        try:
            return os.pidfd_open(self.spec["owner"])
        except (AttributeError, OSError):
            return None

    def owner_is_gone(self, ready: list[int]) -> bool:
        """Tell whether the owner ended; while it is our parent, its id cannot have been reused."""
        return self.owner in ready or os.getppid() != self.spec["owner"]

    def run(self) -> None:
        """Serve the owner until it says so, or ends."""
        self.make_folder()
        try:
            self.answer(0)
            self.serve()
        except BrokenPipeError:
            pass  # the owner ended before it read the answer
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.stop(self.spec["stop"])
            self.remove_folder()

    def serve(self) -> None:
        """Follow orders until `end`, until the pipe is closed, or until the owner is gone."""
        watched = [0, self.wake, *([self.owner] if self.owner is not None else [])]
        while True:
            ready = select.select(watched, [], [], None if self.owner is not None else POLL)[0]
            self.reap()
            if self.owner_is_gone(ready) or (0 in ready and not self.listen()):
                return

    def listen(self) -> bool:
        """Read from the owner and follow what it says; false when there is no more to come."""
        data = os.read(0, 65536)
        *lines, self.orders = (self.orders + data).split(b"\n")
        return data != b"" and all(self.follow(json.loads(line)) for line in lines)

    def follow(self, order: Order) -> bool:
        """Do one order and answer it; false for `end`."""
        match order["do"]:
            case "start":
                self.start(order["command"])
            case "signal":
                self.signal_all(order["signal"])
            case "stop":
                self.stop(order["signal"])
            case "end":
                return False
        self.answer(order["number"])
        return True

    def answer(self, number: int) -> None:
        """Tell the owner how the server is; the number says which order this answers."""
        state = {"number": number, "pid": self.pid, "exit": self.exit}
        os.write(1, json.dumps(state).encode() + b"\n")

    def start(self, command: list[str]) -> None:
        """Start the server, in its own process group."""
        supervisor = os.getpid()
        self.exit = None
        self.pid = os.fork()
        if self.pid == 0:
            self.become(command, supervisor)

    def become(self, command: list[str], supervisor: int) -> NoReturn:
        """Turn the forked child into the server; a change of user would clear the death signal."""
        try:
            os.setpgid(0, 0)
            self.redirect()
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            if self.spec["user"]:
                os.setgroups([])
                os.setgid(self.spec["user"][1])
                os.setuid(self.spec["user"][0])
            prctl(PR_SET_PDEATHSIG, self.spec["death"])
            if os.getppid() == supervisor:
                os.execv(command[0], command)  # noqa: S606
        except OSError as problem:
            os.write(2, f"cannot run {command[0]}: {problem}\n".encode())
        finally:
            os._exit(127)

    def redirect(self) -> None:
        """Give the server no input, and the log for its output."""
        os.chdir(self.spec["folder"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)

    def running(self) -> bool:
        """Tell whether the server was started and not yet waited for."""
        return self.pid is not None and self.exit is None

    def reap(self) -> None:
        """Wait for every process that ended; when it was the server, end what it left behind."""
        if select.select([self.wake], [], [], 0)[0]:
            os.read(self.wake, 4096)
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self.pid:
                    self.exit = os.waitstatus_to_exitcode(ended[1])
        except ChildProcessError:
            return
        if not self.running():
            for orphan in children(os.getpid()):
                send(orphan, signal.SIGKILL)

    def signal_all(self, number: int) -> None:
        """Signal the server, then its children: a stopped parent makes no new ones."""
        if self.pid is not None and self.running():
            self.signal_one(self.pid, number)
            for child in children(self.pid):
                self.signal_one(child, number)

    def signal_one(self, pid: int, number: int) -> None:
        """Signal a process; once it was told to stop, it does nothing more."""
        send(pid, number)
        deadline = time.monotonic() + 1
        while number == signal.SIGSTOP and not is_stopped(pid) and time.monotonic() < deadline:
            time.sleep(0.0005)

    def stop(self, number: int) -> None:
        """End the server with this signal, also when it is paused, and by force after a while."""
        for sent in (number, signal.SIGKILL):
            if self.pid is not None and self.running():
                send(self.pid, sent)
                self.signal_all(signal.SIGCONT)
            deadline = time.monotonic() + self.spec["grace"]
            while self.has_family() and (left := deadline - time.monotonic()) > 0:
                select.select([self.wake], [], [], min(left, POLL))
                self.reap()

    def has_family(self) -> bool:
        """Tell whether the server, or a process it left behind, is still there."""
        return self.running() or bool(children(os.getpid()))

    def make_folder(self) -> None:
        """Make the temporary folder; it must be new, so that nobody can have prepared it."""
        Path(self.spec["folder"]).mkdir(mode=0o700)
        if self.spec["user"]:
            os.chown(self.spec["folder"], *self.spec["user"])

    def remove_folder(self) -> None:
        """Remove the temporary folder and all that is in it."""
        import shutil  # a third of the start-up time, and needed only here

        shutil.rmtree(self.spec["folder"], ignore_errors=True)


if __name__ == "__main__":
    Supervisor(json.loads(sys.argv[1])).run()
