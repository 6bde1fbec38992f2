"""A worker of the tests' jobs that may be killed: `python -m tests.patterns.job_worker PROCESSES`.

It is its own process group, so that all its processes can be killed at once.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ephemera.patterns.jobs import WorkerSettings, run_worker
from tests.patterns.job_fixtures import JOBS


class Worker:
    """A running worker, killed at the end of its block."""

    def __init__(self, url: str, sql: str, *, processes: int = 1) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.patterns.job_worker", str(processes)],
            # Celery warns of running as root, which a test may.
            env={**os.environ, "WORKER_URL": url, "WORKER_SQL": sql, "PYTHONWARNINGS": "ignore"},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The parent process."""
        return self._process.pid

    def children(self) -> list[int]:
        """The pool's processes."""
        found = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in found.split()]

    def kill(self) -> None:
        """SIGKILL to the whole process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(10)

    def stop(self, timeout: float = 30.0) -> int:
        """SIGTERM, and wait for its exit code."""
        self._process.terminate()
        return self._process.wait(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def main() -> int:
    """Run until a signal stops it."""
    logging.basicConfig(
        level=os.environ.get("WORKER_LOG", "ERROR"), format="%(process)d %(asctime)s %(message)s"
    )
    settings = WorkerSettings(os.environ["WORKER_URL"], os.environ["WORKER_SQL"])
    return run_worker(JOBS, settings, processes=int(sys.argv[1]))


if __name__ == "__main__":
    sys.exit(main())
