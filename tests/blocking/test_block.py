"""A block that ends early, while its body still runs: what the thread gets when both end at the same time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ephemera import blocking
from ephemera.blocking import Block, BlockingStore
from ephemera.embedded import Valkey


@pytest.fixture
def store(server: Valkey) -> Iterator[BlockingStore]:
    """A synchronous store on the shared server."""
    with blocking.connect(server.url) as opened:
        yield opened


class Lost(Exception):
    """The block was ended from outside."""


class EndingEarly:
    """A context manager that is ended from outside, and is not done with it before the body leaves it."""

    def __init__(self) -> None:
        self.is_ending = threading.Event()

    @asynccontextmanager
    async def block(self) -> Any:
        """End it as soon as it is entered; the end waits until the thread leaves the block, too."""
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)
        leaving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            yield leaving
        except asyncio.CancelledError:
            self.is_ending.set()
            await leaving
            raise Lost("ended from outside") from None


def leave_while_it_ends(store: BlockingStore, patch: pytest.MonkeyPatch, error: BaseException | None) -> None:
    """Enter a block that ends early, and leave it while that end is under way."""
    ending = EndingEarly()
    block = Block(store, ending.block())
    leaving = block.enter()
    assert ending.is_ending.wait(60)
    loop = store.running().loop
    request_end = block._request_end

    def request(problem: BaseException | None) -> None:
        request_end(problem)
        loop.call_soon(lambda: leaving.done() or leaving.set_result(None))

    patch.setattr(block, "_request_end", request)  # the moment that the race needs
    block.leave(error)


def test_the_error_of_the_body_stays_when_the_block_is_ending_already(
    store: BlockingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets a note that says why the block ended; the thread's later calls are unaffected."""
    error = KeyError("of the body")
    leave_while_it_ends(store, monkeypatch, error)
    assert error.__notes__ == ["ended from outside"]
    assert store.call("PING") == b"PONG"


def test_a_body_without_an_error_gets_the_reason_once(
    store: BlockingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is raised at the end of the block, and not again by the next call."""
    with pytest.raises(Lost):
        leave_while_it_ends(store, monkeypatch, None)
    assert store.call("PING") == b"PONG"
