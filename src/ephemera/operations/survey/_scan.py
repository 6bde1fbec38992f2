"""Read all key names of a server by SCAN; the next page is requested while this one is processed.

A page is `PAGE_SIZE` names, which keeps the server busy for a fraction of a millisecond: no other client
waits longer than that. SCAN's guarantee holds: a key that exists during the whole scan is seen, some may be
seen twice. A scan ends at its deadline, or when the connection is lost, and can then be resumed.

*Resume cursors.* `1874@9f3c21ab,0@77e0aa10` has one entry per unfinished server: a SCAN cursor and the first
characters of the server's run id. A restarted server orders its keys differently, so an old cursor would skip
some keys and repeat others; its run id has changed, and the cursor is refused.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from ephemera._futures import discard
from ephemera.errors import ConnectionFailed, InvalidCursor, StoreClosed
from ephemera.operations.survey._server_info import ServerInfo
from ephemera.wire import NodeClient

PAGE_SIZE = 1000
"""Names that one SCAN asks for."""

SCAN_START = b"0"
"""The cursor that starts a SCAN, and that the last page returns."""

_CURSOR = re.compile(r"(\d{1,20})@([0-9a-f]{8})")
_RUN_ID_LENGTH = 8


class Scan:
    """The scan of one server."""

    def __init__(self, node: NodeClient, info: ServerInfo, cursor: bytes = SCAN_START) -> None:
        self.node = node
        self.info = info
        self.cursor = cursor  # all names before it were processed
        self.done = False
        self.names = 0
        self.error: str | None = None

    async def run(self, process: Callable[[Scan, Sequence[bytes]], None], deadline: float) -> None:
        """Pass every page to `process`, until the end or the deadline (`time.monotonic`)."""
        try:
            await self._read_pages(process, deadline)
        except (ConnectionFailed, StoreClosed) as error:
            self.error = str(error)

    async def _read_pages(self, process: Callable[[Scan, Sequence[bytes]], None], deadline: float) -> None:
        reply = asyncio.ensure_future(self.node.call("SCAN", self.cursor, "COUNT", PAGE_SIZE))
        try:
            while True:
                cursor, page = await reply
                last = cursor == SCAN_START or time.monotonic() >= deadline
                if not last:
                    reply = asyncio.ensure_future(self.node.call("SCAN", cursor, "COUNT", PAGE_SIZE))
                    await _flush_writes()
                self.names += len(page)
                process(self, page)
                self.cursor, self.done = cursor, cursor == SCAN_START
                if last:
                    return
        finally:
            reply.cancel()
            discard(reply)


async def run_scans(
    scans: Sequence[Scan], process: Callable[[Scan, Sequence[bytes]], None], deadline: float
) -> None:
    """Run several scans concurrently."""
    await asyncio.gather(*(scan.run(process, deadline) for scan in scans))


def start_scans(nodes: Sequence[tuple[NodeClient, ServerInfo]], cursor: str | None) -> list[Scan]:
    """Prepare the scans of these servers, from the beginning or from a resume cursor."""
    if cursor is None:
        return [Scan(node, info) for node, info in nodes]
    cursors = parse_resume_cursor(cursor, [info.run_id for _, info in nodes])
    return [Scan(node, info, cursors[info.run_id]) for node, info in nodes if info.run_id in cursors]


def resume_cursor(scans: Sequence[Scan]) -> str | None:
    """The cursor from which these scans can be resumed; None when they are complete."""
    return format_resume_cursor({scan.info.run_id: scan.cursor for scan in scans if not scan.done})


def format_resume_cursor(cursors: Mapping[str, bytes]) -> str | None:
    """Write cursors by run id as text; None when there are none."""
    return (
        ",".join(f"{cursor.decode()}@{run_id[:_RUN_ID_LENGTH]}" for run_id, cursor in cursors.items()) or None
    )


def parse_resume_cursor(text: str, run_ids: Iterable[str]) -> dict[str, bytes]:
    """Read cursors by run id; `InvalidCursor` when a server is gone or was restarted."""
    known = {run_id[:_RUN_ID_LENGTH]: run_id for run_id in run_ids}
    cursors: dict[str, bytes] = {}
    for part in text.split(","):
        match = _CURSOR.fullmatch(part.strip())
        if match is None:
            raise InvalidCursor(text, "it does not have the form 1874@9f3c21ab")
        cursor, run_id = match.groups()
        if run_id not in known:
            raise InvalidCursor(
                text, f"no server here has the run id {run_id}: it was restarted, or it is a different server"
            )
        cursors[known[run_id]] = cursor.encode()
    return cursors


async def _flush_writes() -> None:
    """Let the event loop write what was just sent: one tick packs it, the next (on uvloop) writes it."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
