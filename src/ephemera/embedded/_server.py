"""What all embedded servers share: stop, kill, pause, resume and restart.

A subclass knows how to prepare its folder, what to run, when the server is ready and how to explain a
failure. The temporary folder exists from start to stop: data in it survives kill() and restart(), but not
stop(), after which restart() starts with no data on the same port or socket. Data that is about to be removed
is not saved first, so stopping a temporary server takes no time.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from ephemera.embedded._processes import SupervisedProcess, temporary_name
from ephemera.errors import EmbeddedError

READY_TIMEOUT = 30.0  # seconds; loading a large append-only file or recovering takes time
GRACE = 5.0  # seconds to stop when there is nothing to save
GRACE_TO_SAVE = 60.0  # seconds to write a snapshot or a checkpoint to a folder that stays


class Stoppable(ABC):
    """Something that runs until stop(), or until its `with` block ends."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it and remove its temporary folders; calling it again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.stop()


class Server(Stoppable):
    """One server process, ready when `_start` returns."""

    _user: tuple[int, int, int] | None = None
    _stop_signal = signal.SIGTERM  # to save what there is and end
    _death_signal = signal.SIGKILL  # to end at once

    def __init__(self, data: Path | None) -> None:
        self._folder = temporary_name()
        self.data = data or self._folder / "data"
        self._temporary = data is None

    @property
    def pid(self) -> int:
        """The id of the server process itself."""
        return self._process.pid

    @property
    def supervisor_pid(self) -> int:
        """The id of the process that stops the server when its owner has ended."""
        return self._process.supervisor_pid

    @property
    def log(self) -> Path:
        """The server's log, in the temporary folder."""
        return self._process.log

    def kill(self) -> None:
        """End the server with SIGKILL, as in a crash; restart() brings it back."""
        self._process.halt(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): it accepts connections and answers nothing."""
        self._process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused server (SIGCONT)."""
        self._process.signal(signal.SIGCONT)

    def restart(self) -> None:
        """Start again on the same port or socket and data, after an orderly stop if it is running."""
        if self._process.is_open():
            self._process.halt(self._stop_signal)
            self._run()
        else:
            self._process.close()
            self._start()

    def stop(self) -> None:
        """Stop the server and remove its temporary folder; calling it again does nothing."""
        self._process.close()

    def _start(self) -> None:
        self._process = SupervisedProcess(
            self._folder,
            user=self._user,
            stop=self._death_signal if self._temporary else self._stop_signal,
            grace=GRACE if self._temporary else GRACE_TO_SAVE,
            death=self._death_signal,
        )
        try:
            self._prepare()
            self._run()
        except BaseException:
            self.stop()
            raise

    def _run(self) -> None:
        self._process.start(self._command())
        try:
            self._process.wait_until(self._is_ready, repr(self), READY_TIMEOUT)
        except EmbeddedError as problem:
            raise self._explained(str(problem)) from None

    @abstractmethod
    def _prepare(self) -> None:
        """Prepare the folders for the start."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the command line; other users can read it, so it must not contain a secret."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether the server accepts clients."""

    @abstractmethod
    def _explained(self, problem: str) -> EmbeddedError:
        """Return the error of a failed start, with advice."""
