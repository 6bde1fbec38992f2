"""Ways to load a client: many tasks of one loop, or many threads.

Each finds its number of operations by a short pilot and corrects it from round to round, so that a slow peer
takes as long as a fast one. The clock runs from the first operation to the last reply.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

_PILOT = 0.05
"""Seconds a pilot must take before its pace is trusted."""


class Load:
    """A repeatable load; what it does is the subclass's `perform`."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pace = 0.0

    async def __call__(self, seconds: float) -> float:
        """Operations per second over a round of about this length."""
        if not self._pace:
            self._pace = await self._pilot()
        _, self._pace = await self._timed(int(self._pace * seconds))
        return self._pace

    async def perform(self, each: int) -> float:
        """Let every worker do this many operations, and return the seconds it took."""
        raise NotImplementedError

    async def _pilot(self) -> float:
        operations = 4 * self._workers
        while True:
            took, pace = await self._timed(operations)
            if took >= _PILOT:
                return pace
            operations *= 4

    async def _timed(self, operations: int) -> tuple[float, float]:
        each = max(1, operations // self._workers)
        took = await self.perform(each)
        return took, each * self._workers / took


class Tasks(Load):
    """This many tasks, each with one operation under way at a time.

    The work is a coroutine function that does them in a loop of its own, so that each client is
    called as its users would call it.
    """

    def __init__(self, tasks: int, work: Callable[[int], Coroutine[Any, Any, None]]) -> None:
        super().__init__(tasks)
        self._work = work

    async def perform(self, each: int) -> float:
        """Run the tasks on this loop."""
        began = time.perf_counter()
        await asyncio.gather(*(self._work(each) for _ in range(self._workers)))
        return time.perf_counter() - began


class Threads(Load):
    """This many threads, each waiting for one reply at a time; the loop of this process rests."""

    def __init__(self, threads: int, work: Callable[[int], None]) -> None:
        super().__init__(threads)
        self._work = work

    async def perform(self, each: int) -> float:
        """Run the threads and wait for the last; they do not outlive the process if they hang."""
        loop = asyncio.get_running_loop()
        took: asyncio.Future[float] = loop.create_future()

        def race() -> None:
            try:
                seconds = self._race(each)
            except Exception as error:
                loop.call_soon_threadsafe(took.set_exception, error)
            else:
                loop.call_soon_threadsafe(took.set_result, seconds)

        threading.Thread(target=race, daemon=True).start()
        return await took

    def _race(self, each: int) -> float:
        start = threading.Barrier(self._workers + 1)
        failures: list[Exception] = []
        threads = [
            threading.Thread(target=self._run, args=(each, start, failures), daemon=True)
            for _ in range(self._workers)
        ]
        for thread in threads:
            thread.start()
        start.wait()
        began = time.perf_counter()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - began
        if failures:
            raise failures[0]
        return took

    def _run(self, each: int, start: threading.Barrier, failures: list[Exception]) -> None:
        start.wait()
        try:
            self._work(each)
        except Exception as error:
            failures.append(error)
