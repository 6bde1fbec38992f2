"""`ephemera worker --system`: which systems have work, and what a worker needs."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from ephemera.systems.working import until_told
from tests.cli.commands import ephemera

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "give jobs as NAME, or a built-in system as --system"),
        (("--system", "nowhere"), "'nowhere' is no built-in system with work to do"),
        (("--system", "identity"), "'identity' is no built-in system with work to do"),
        (("--system", "scripture"), "EPHEMERA_URL must be set: a worker shares the service's"),
        (("--system", "scripture", "--queue", "mail"), "scripture has no jobs"),
        (("--system", "slides"), "jobs need it"),
        (("slides",), "jobs need it"),
    ],
)
def test_a_worker_that_cannot_work_says_why(words: tuple[str, ...], told: str) -> None:
    """Neither jobs nor a system, a system without work, or no servers to share: code 2, and the reason."""
    outcome = ephemera("worker", *words)
    assert outcome.code == 2
    assert told in outcome.said


@pytest.mark.parametrize("words", [("--system", "slides"), ("slides",)])
def test_a_wrong_setting_is_told_before_the_first_job(words: tuple[str, ...]) -> None:
    """A worker of slides whose environment does not fit ends at once, with code 2 and the variable's name."""
    places = ("--url", "redis://127.0.0.1:1", "--database-url", "postgresql://127.0.0.1:1/slides")
    wrong = {"EPHEMERA_SLIDES_PASSWORD_MEMORY": "a lot", "EPHEMERA_SLIDES_MODELL": "mine"}
    outcome = ephemera("worker", *words, *places, env=wrong)
    assert outcome.code == 2
    assert "EPHEMERA_SLIDES_PASSWORD_MEMORY" in outcome.said
    assert "EPHEMERA_SLIDES_MODELL" in outcome.said


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_that_is_told_to_stop_ends_cleanly(told: signal.Signals) -> None:
    """The block of its work is left, and not broken off."""
    ended = []

    @asynccontextmanager
    async def work() -> AsyncIterator[None]:
        yield
        ended.append(told)

    loop = asyncio.get_running_loop()
    loop.call_later(0.01, os.kill, os.getpid(), told)
    try:
        async with asyncio.timeout(10):
            await until_told(work())
    finally:
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
    assert ended == [told]
