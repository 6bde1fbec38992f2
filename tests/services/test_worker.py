"""`ephemera worker NAME`: which services have a worker, and what a worker needs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import MetaData, text

from ephemera.embedded import Postgres
from ephemera_services.runtime import cancel_and_wait, open_engine, run_until_signalled
from tests.cli.commands import ephemera


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing argument 'NAME'"),
        (("nowhere",), "no installed package registers 'nowhere'"),
        (("identity",), "no installed package registers 'identity'"),
        (("scripture",), "EPHEMERA_URL must be set: a worker shares the service's"),
        (("scripture", "--queue", "mail"), "scripture has no jobs"),
        (("slides",), "jobs need it"),
    ],
)
def test_a_worker_that_cannot_work_says_why(arguments: tuple[str, ...], message: str) -> None:
    """No name, a service without a worker, or no servers to share: code 2, and the reason."""
    outcome = ephemera("worker", *arguments)
    assert outcome.code == 2
    assert message in outcome.said


def test_a_wrong_setting_is_reported_before_the_first_job() -> None:
    """A worker with invalid settings exits at once, with code 2 and the variable's name."""
    places = ("--url", "redis://127.0.0.1:1", "--database-url", "postgresql://127.0.0.1:1/slides")
    wrong = {"EPHEMERA_SLIDES_PASSWORD_MEMORY": "a lot", "EPHEMERA_SLIDES_MODELL": "mine"}
    outcome = ephemera("worker", "slides", *places, env=wrong)
    assert outcome.code == 2
    assert "EPHEMERA_SLIDES_PASSWORD_MEMORY" in outcome.said
    assert "EPHEMERA_SLIDES_MODELL" in outcome.said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stopped_worker_ends_cleanly(number: signal.Signals) -> None:
    """The block of its work is left normally, not aborted."""
    ended = []

    @asynccontextmanager
    async def work() -> AsyncIterator[None]:
        yield
        ended.append(number)

    loop = asyncio.get_running_loop()
    loop.call_later(0.01, os.kill, os.getpid(), number)
    try:
        async with asyncio.timeout(60):
            await run_until_signalled(work())
    finally:
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
    assert ended == [number]


async def test_a_task_that_loses_its_cancellation_ends_all_the_same() -> None:
    """A loop that survives errors, in a library that turns cancellations into errors, is cancelled again."""
    lost: list[str] = []

    async def query() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if len(lost) < 2:
                lost.append("by a library")
                raise RuntimeError("the connection is in no state to be used") from None
            raise

    async def survive() -> None:
        while True:
            try:
                await query()
            except Exception:
                await asyncio.sleep(0)

    task = asyncio.create_task(survive())
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await cancel_and_wait([task])
    assert task.cancelled()
    assert len(lost) == 2


async def test_a_task_that_gives_back_a_connection_to_a_server_that_hangs_ends(postgres: Postgres) -> None:
    """SQLAlchemy rolls back in a task of its own, even if the waiting task is cancelled repeatedly."""
    tables = MetaData(schema="hung")
    async with open_engine(postgres.database("hung_rollback"), tables) as engine:

        async def fail() -> None:
            async with engine.connect() as sql:
                await sql.execute(text("SELECT 1"))
                postgres.pause()
                raise RuntimeError("a reason to roll back")

        task = asyncio.create_task(fail())
        try:
            async with asyncio.timeout(60):
                await asyncio.wait((task,), timeout=2)
                assert not task.done(), "it hangs"
                await cancel_and_wait([task])
        finally:
            postgres.resume()
    assert task.done()


STUBBORN = """
import asyncio
from contextlib import asynccontextmanager
from ephemera_services.runtime import configure_logging
from ephemera_services.runtime import run_until_signalled

async def never_ends():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

@asynccontextmanager
async def work():
    stubborn.append(asyncio.create_task(never_ends(), name="stubborn"))
    await asyncio.sleep(0)
    yield

stubborn = []
configure_logging("info")
asyncio.run(run_until_signalled(work(), timeout=0.2))
"""


def test_a_worker_that_cannot_end_is_aborted() -> None:
    """The process exits within its timeout whatever its tasks do, and its log lists what did not end."""
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        assert "working" in worker.stderr.readline()
        worker.terminate()
        _, said = worker.communicate(timeout=30)
    assert worker.returncode == 1
    assert any("never_ends" in task for task in json.loads(said.splitlines()[-1])["running"])
