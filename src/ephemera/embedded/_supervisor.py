"""The supervisor: a process between an owner and its embedded server, so that no server is ever orphaned.

It is run as `python -I -S _supervisor.py SPEC`, with the standard library alone, and guarantees:

- The owner ends, even by SIGKILL, even while children it forked keep running: the server is stopped and the
  temporary folder removed. The owner is watched through a pidfd, or by polling the parent's id where the
  system has none. The end of a *thread* of the owner means nothing, unlike with PR_SET_PDEATHSIG.
- This process ends, even by SIGKILL: the kernel signals the server (PR_SET_PDEATHSIG, set here, where
  there is one thread only).
- The server ends: its own children (PostgreSQL's backends, a Valkey saving in the background) are
  inherited by this process, as their subreaper, and killed.
- Ctrl-C in the owner's terminal reaches neither this process nor the server: this is another session.

The owner sends requests as JSON lines: `start`, `signal`, `stop` and `poll`, each answered with the server's
pid and exit code (null while it runs), and `end`, answered by exiting. Signals are sent only from here: a pid
cannot be reused by another process before its parent, this process, has waited for it.
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
POLL = 0.2  # seconds between two checks of the owner where there are no pidfds


class Spec(TypedDict):
    """The parameters of a supervisor."""

    owner: int  # process id
    folder: str  # temporary, made and removed by the supervisor
    user: tuple[int, int, int] | None  # uid, gid and the folder's group, to run the server with; None: ours
    stop: int  # signal that ends the server
    grace: float  # seconds that this may take before SIGKILL
    death: int  # signal that the kernel sends when the supervisor dies


class Request(TypedDict, total=False):
    """One line from the owner."""

    number: int
    do: str
    command: list[str]
    signal: int


def prctl(option: int, value: int) -> None:
    """Call Linux's prctl; on other systems the watch on the owner must do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def children(pid: int) -> list[int]:
    """Return the ids of the processes whose parent is `pid`."""
    listing = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        found = listing.read_text()
    except OSError:
        found = "" if Path("/proc/self").exists() else os.popen(f"pgrep -P {pid}").read()
    return [int(child) for child in found.split()]


def send(pid: int, number: int) -> None:
    """Signal a process that may have just ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def is_stopped(pid: int) -> bool:
    """Whether SIGSTOP has taken effect, or never will; True where the system does not say."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TZX"
    except OSError:
        return True


class Supervisor:
    """One server at a time, and its folder."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.pid: int | None = None
        self.exit: int | None = None
        self.received = b""
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
        """Return a descriptor that becomes readable when the owner ends; None where there are no pidfds."""
        try:
            return os.pidfd_open(self.spec["owner"])
        except (AttributeError, OSError):
            return None

    def owner_is_gone(self, ready: list[int]) -> bool:
        """Whether the owner ended; while it is our parent, its pid cannot have been reused."""
        return self.owner in ready or os.getppid() != self.spec["owner"]

    def run(self) -> None:
        """Serve the owner until it sends `end`, or ends itself."""
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
        """Handle requests until `end`, until the pipe is closed, or until the owner has ended."""
        watched = [0, self.wake, *([self.owner] if self.owner is not None else [])]
        while True:
            ready = select.select(watched, [], [], None if self.owner is not None else POLL)[0]
            self.reap()
            if self.owner_is_gone(ready) or (0 in ready and not self.read_requests()):
                return

    def read_requests(self) -> bool:
        """Read requests and handle them; False when there will be no more."""
        data = os.read(0, 65536)
        *lines, self.received = (self.received + data).split(b"\n")
        return data != b"" and all(self.handle(json.loads(line)) for line in lines)

    def handle(self, request: Request) -> bool:
        """Handle one request and answer it; False for `end`."""
        match request["do"]:
            case "start":
                self.start(request["command"])
            case "signal":
                self.signal_all(request["signal"])
            case "stop":
                self.stop(request["signal"])
            case "end":
                return False
        self.answer(request["number"])
        return True

    def answer(self, number: int) -> None:
        """Send the owner the server's state; the number says which request this answers."""
        state = {"number": number, "pid": self.pid, "exit": self.exit}
        os.write(1, json.dumps(state).encode() + b"\n")

    def start(self, command: list[str]) -> None:
        """Start the server, in its own process group."""
        supervisor = os.getpid()
        self.exit = None
        self.pid = os.fork()
        if self.pid == 0:
            self.exec_server(command, supervisor)

    def exec_server(self, command: list[str], supervisor: int) -> NoReturn:
        """Turn the forked child into the server; a change of user clears the death signal, so set it last."""
        try:
            os.setpgid(0, 0)
            os.umask(0o077)
            self.redirect()
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            if self.spec["user"]:
                os.setgroups([self.spec["user"][2]])
                os.setgid(self.spec["user"][1])
                os.setuid(self.spec["user"][0])
            prctl(PR_SET_PDEATHSIG, self.spec["death"])
            if os.getppid() == supervisor:
                os.execv(command[0], command)
        except OSError as problem:
            os.write(2, f"cannot run {command[0]}: {problem}\n".encode())
        finally:
            os._exit(127)

    def redirect(self) -> None:
        """Redirect input from /dev/null and output to the log."""
        os.chdir(self.spec["folder"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)

    def running(self) -> bool:
        """Whether the server was started and has not been waited for."""
        return self.pid is not None and self.exit is None

    def reap(self) -> None:
        """Wait for every process that ended; if the server did, kill the processes it left behind."""
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
        """Signal the server, then its children: a stopped parent forks no new ones."""
        if self.pid is not None and self.running():
            self.signal_one(self.pid, number)
            for child in children(self.pid):
                self.signal_one(child, number)

    def signal_one(self, pid: int, number: int) -> None:
        """Signal a process; after SIGSTOP, return when it has stopped."""
        send(pid, number)
        deadline = time.monotonic() + 1
        while number == signal.SIGSTOP and not is_stopped(pid) and time.monotonic() < deadline:
            time.sleep(0.0005)

    def stop(self, number: int) -> None:
        """Stop the server with this signal, even when it is paused; with SIGKILL after the grace period."""
        for sent in (number, signal.SIGKILL):
            if self.pid is not None and self.running():
                send(self.pid, sent)
                self.signal_all(signal.SIGCONT)
            deadline = time.monotonic() + self.spec["grace"]
            while self.has_processes() and (left := deadline - time.monotonic()) > 0:
                select.select([self.wake], [], [], min(left, POLL))
                self.reap()

    def has_processes(self) -> bool:
        """Whether the server, or a process it left behind, is still running."""
        return self.running() or bool(children(os.getpid()))

    def make_folder(self) -> None:
        """Create the temporary folder; it must be new, so that no other user can have prepared it."""
        folder = Path(self.spec["folder"])
        folder.mkdir(mode=0o700)
        if self.spec["user"]:
            os.chown(folder, 0, self.spec["user"][2])
            folder.chmod(0o770)

    def remove_folder(self) -> None:
        """Remove the temporary folder and its contents."""
        import shutil  # a third of the start-up time, and needed only here

        shutil.rmtree(self.spec["folder"], ignore_errors=True)


if __name__ == "__main__":
    Supervisor(json.loads(sys.argv[1])).run()
