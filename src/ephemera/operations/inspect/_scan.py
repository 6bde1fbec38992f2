"""All names of a server by SCAN, a page at a time, the next page on its way while this one is looked at.

A page is `PAGE` names: the server is busy with it for a fraction of a millisecond, which is what a bystander
waits at most. What SCAN promises holds: every key that is there from beginning to end is seen, some may be
seen twice. A scan ends at its deadline, or when its server is lost, and then knows from where to continue.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from ephemera.errors import ConnectionFailed, StoreClosed
from ephemera.operations.inspect import _cursors as cursors
from ephemera.operations.inspect._cursors import BEGINNING
from ephemera.operations.inspect._server_facts import ServerFacts
from ephemera.wire import NodeClient

PAGE = 1000
"""Names that one SCAN asks for."""


class Scan:
    """The scan of one server."""

    def __init__(self, node: NodeClient, facts: ServerFacts, cursor: bytes = BEGINNING) -> None:
        self.node = node
        self.facts = facts
        self.cursor = cursor  # what was taken lies before it
        self.done = False
        self.names = 0
        self.problem: str | None = None

    async def run(self, take: Callable[[Scan, Sequence[bytes]], None], deadline: float) -> None:
        """Hand every page to `take`, until the end or the deadline (`time.monotonic`)."""
        try:
            await self._pages(take, deadline)
        except (ConnectionFailed, StoreClosed) as problem:
            self.problem = str(problem)

    async def _pages(self, take: Callable[[Scan, Sequence[bytes]], None], deadline: float) -> None:
        coming = asyncio.ensure_future(self.node.call("SCAN", self.cursor, "COUNT", PAGE))
        try:
            while True:
                cursor, page = await coming
                last = cursor == BEGINNING or time.monotonic() >= deadline
                if not last:
                    coming = asyncio.ensure_future(self.node.call("SCAN", cursor, "COUNT", PAGE))
                    await _let_it_leave()
                self.names += len(page)
                take(self, page)
                self.cursor, self.done = cursor, cursor == BEGINNING
                if last:
                    return
        finally:
            _let_go(coming)


async def scan_all(
    scans: Sequence[Scan], take: Callable[[Scan, Sequence[bytes]], None], deadline: float
) -> None:
    """Run several scans side by side."""
    await asyncio.gather(*(scan.run(take, deadline) for scan in scans))


def rest_of(scans: Sequence[Scan]) -> str | None:
    """From where to continue what these scans left; None when they left nothing."""
    return cursors.written({scan.facts.run_id: scan.cursor for scan in scans if not scan.done})


def continued(nodes: Sequence[tuple[NodeClient, ServerFacts]], cursor: str | None) -> list[Scan]:
    """The scans of these servers, from the beginning or from a cursor."""
    if cursor is None:
        return [Scan(node, facts) for node, facts in nodes]
    places = cursors.read(cursor, [facts.run_id for _, facts in nodes])
    return [Scan(node, facts, places[facts.run_id]) for node, facts in nodes if facts.run_id in places]


async def _let_it_leave() -> None:
    """Let the loop write what was just sent: one turn packs it, the next (on uvloop) writes it."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def _let_go(reply: asyncio.Future[object]) -> None:
    """Nobody waits for this reply any more, nor for its error."""
    if not reply.cancel() and not reply.cancelled():
        reply.exception()
