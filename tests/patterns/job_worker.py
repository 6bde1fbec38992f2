"""A worker of the tests' jobs that may be killed: `... job_worker DELIVERY PROCESSES CONCURRENCY`.

It is its own process group, so that all its processes can be killed at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ephemera.patterns.jobs import Jobs, WorkerSettings, _job_definition, run_worker, sql_engine
from ephemera.sql import migrate
from tests.patterns.job_fixtures import JOBS


class Worker:
    """A running worker, killed at the end of its block."""

    def __init__(
        self,
        url: str,
        sql: str,
        *,
        delivery: str = "sql",
        processes: int = 1,
        concurrency: int = 1,
        log: Path | None = None,
        module: str = "tests.patterns.job_worker",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        command = (sys.executable, "-m", module)
        # Celery warns of running as root, which a test may.
        servers = {"WORKER_URL": url, "WORKER_SQL": sql, "PYTHONWARNINGS": "ignore"}
        with nullcontext() if log is None else log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [*command, delivery, str(processes), str(concurrency)],
                env={**os.environ, **servers, **(environment or {})},
                start_new_session=True,
                stderr=stderr,
            )

    @property
    def pid(self) -> int:
        """The parent process."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of the parent process; None while it runs."""
        return self._process.poll()

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


async def _create_tables(jobs: Jobs, database_url: str) -> None:
    engine = sql_engine(database_url)
    await migrate(engine, jobs)
    await engine.dispose()


def main(jobs: Jobs = JOBS) -> int:
    """Run until a signal stops it."""
    logging.basicConfig(
        level=os.environ.get("WORKER_LOG", "ERROR"), format="%(process)d %(asctime)s %(message)s"
    )
    settings = WorkerSettings(os.environ["WORKER_URL"], os.environ["WORKER_SQL"])
    _job_definition.HARD_LIMIT_AFTER = timedelta(seconds=1)  # rather than five
    asyncio.run(_create_tables(jobs, settings.database_url))  # or the test does, at the same time
    delivery: Any = sys.argv[1]
    processes, concurrency = map(int, sys.argv[2:])
    return run_worker(jobs, settings, delivery=delivery, processes=processes, concurrency=concurrency)


if __name__ == "__main__":
    sys.exit(main())
