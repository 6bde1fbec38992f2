"""No-op jobs of the peers, with their results in PostgreSQL: procrastinate, and Celery's SQL result backend.

Each runs in one process. procrastinate runs its jobs 100 at a time on one event loop, as we do; Celery has a
pool of one process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import text

from benchmarks.rows import Round
from benchmarks.servers import Servers
from ephemera import embedded
from ephemera.patterns.jobs import sql_engine

CONCURRENCY = 100
_LOOK = 0.01  # seconds


def count_for(seconds: float, rate: float) -> int:
    """How many jobs keep a contender of about this rate busy for this time."""
    return max(50, int(seconds * rate))


@asynccontextmanager
async def procrastinate(_: Servers) -> AsyncIterator[Round]:
    """Procrastinate on PostgreSQL: from deferring a batch of jobs to the end of a worker that runs them."""
    from procrastinate import App, PsycopgConnector

    with embedded.postgres() as postgres:
        app: Any = App(connector=PsycopgConnector(conninfo=postgres.url, max_size=15))

        @app.task(queue="short")  # type: ignore[untyped-decorator]
        async def no_op() -> None:
            """Nothing."""

        async with app.open_async():
            await app.schema_manager.apply_schema_async()

            async def round_of(seconds: float) -> float:
                count = count_for(seconds, 200)
                begun = time.perf_counter()
                await no_op.batch_defer_async(*({} for _ in range(count)))
                await app.run_worker_async(wait=False, concurrency=CONCURRENCY, listen_notify=False)
                return count / (time.perf_counter() - begun)

            yield round_of


def celery_app(url: str, sql: str) -> Any:
    """A Celery application whose results are in PostgreSQL."""
    from celery import Celery

    app = Celery("bench", broker=f"{url}/0", backend=f"db+postgresql+psycopg://{sql.partition('://')[2]}")
    app.conf.update(
        task_default_queue="bench-celery", worker_prefetch_multiplier=100, worker_hijack_root_logger=False
    )
    app.task(name="bench.no_op")(_no_op)
    return app


def _no_op() -> None:
    """Nothing."""


@asynccontextmanager
async def celery(servers: Servers) -> AsyncIterator[Round]:
    """Celery with a result for each task in SQL; from the first message to the last result."""
    with embedded.postgres() as postgres:
        url, engine = servers.valkey.url, sql_engine(postgres.url)
        environment = {**os.environ, "BENCH_URL": url, "BENCH_SQL": postgres.url, "PYTHONWARNINGS": "ignore"}
        program = (sys.executable, "-m", "celery", "-A", "benchmarks.job_peers:worker_app")
        command = (*program, "-q", "worker", "-c", "1")
        worker = subprocess.Popen(command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
        app = celery_app(url, postgres.url)

        async def results() -> int:
            query = text("SELECT count(*) FROM celery_taskmeta WHERE status = 'SUCCESS'")
            try:
                async with engine.connect() as sql:
                    return int((await sql.execute(query)).scalar_one())
            except Exception:  # the worker creates the table with the first result
                return 0

        async def round_of(seconds: float) -> float:
            before, count = await results(), count_for(seconds, 50)
            begun = time.perf_counter()
            await asyncio.to_thread(_send, app, count)
            while await results() < before + count:
                await asyncio.sleep(_LOOK)
            return count / (time.perf_counter() - begun)

        try:
            await round_of(0.0)  # which waits for the worker to start
            yield round_of
        finally:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
            await engine.dispose()


def _send(app: Any, count: int) -> None:
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(count):
            app.send_task("bench.no_op", producer=producer)


def __getattr__(name: str) -> Any:
    """The application of the worker process, which its command names."""
    if name != "worker_app":
        raise AttributeError(name)
    return celery_app(os.environ["BENCH_URL"], os.environ["BENCH_SQL"])
