"""Remove orphaned keys: slowly, bounded and resumable; without `delete` they are only counted.

Names are read by SCAN, a page at a time. A key is orphaned if an earlier pattern renders it and no present
one does. It is unlinked, so that the server frees its memory in the background, and after each batch the
sweep waits as long as the rate demands.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from ephemera.errors import ConnectionFailed, StoreClosed
from ephemera.keyspace import Classifier, Template
from ephemera.operations.change._plan import orphans
from ephemera.operations.documentation import KeyspaceDoc, typed_pattern
from ephemera.operations.survey import (
    PAGE_SIZE,
    SCAN_START,
    ProgressCallback,
    format_resume_cursor,
    open_servers,
    parse_resume_cursor,
)
from ephemera.wire import NodeClient

_BATCH = 100  # keys in one UNLINK


@dataclass(frozen=True)
class SweepOptions:
    """How a sweep goes about it."""

    delete: bool = False
    rate: float = 1000.0  # keys removed per second and server, at most
    at_most: int = 100_000  # keys removed in total
    cursor: str | None = None


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was found and removed, by pattern."""

    found: dict[str, int]
    removed: int
    scanned: int
    cursor: str | None  # to resume from, if something is left
    stopped: str | None  # why it ended early


class _Sweep:
    """One sweep over all servers; the limit is shared by them."""

    def __init__(self, belongs: Callable[[bytes], str | None], options: SweepOptions) -> None:
        self.belongs = belongs
        self.options = options
        self.found: Counter[str] = Counter()
        self.scanned = 0
        self.removed = 0
        self.stopped: str | None = None

    async def run(self, node: NodeClient, cursor: bytes, on_page: Callable[[int], None]) -> bytes | None:
        """Sweep one server; the cursor to resume from, or None when all of it was done."""
        try:
            while True:
                following, page = await node.call("SCAN", cursor, "COUNT", PAGE_SIZE)
                if not await self._remove(node, page):
                    return cursor
                on_page(len(page))
                cursor = following
                if cursor == SCAN_START:
                    return None
        except (ConnectionFailed, StoreClosed) as error:
            self.stopped = str(error)
            return cursor

    async def _remove(self, node: NodeClient, page: Sequence[bytes]) -> bool:
        """Count the orphans of a page and remove them; False when the limit was reached before all were."""
        self.scanned += len(page)
        orphaned = [(key, pattern) for key in page if (pattern := self.belongs(key)) is not None]
        self.found.update(pattern for _, pattern in orphaned)
        if not self.options.delete:
            return True
        for start in range(0, len(orphaned), _BATCH):
            batch = [key for key, _ in orphaned[start : start + _BATCH]]
            allowed = batch[: self.options.at_most - self.removed]
            await self._unlink(node, allowed)
            if len(allowed) < len(batch):
                self.stopped = f"the limit of {self.options.at_most:,} keys was reached"
                return False
        return True

    async def _unlink(self, node: NodeClient, keys: Sequence[bytes]) -> None:
        """Unlink keys, one command each because their slots differ, and wait as the rate demands."""

        async def unlink(key: bytes) -> int:
            return int(await node.call("UNLINK", key))  # which may raise before there is anything to await

        self.removed += len(keys)  # at once: the sweeps of other servers share the limit
        replies = await asyncio.gather(*map(unlink, keys), return_exceptions=True)
        self.removed += sum(reply for reply in replies if isinstance(reply, int)) - len(keys)
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
        await asyncio.sleep(len(keys) / self.options.rate)


async def sweep(
    url: str,
    old: Sequence[KeyspaceDoc],
    new: Sequence[KeyspaceDoc],
    options: SweepOptions | None = None,
    on_progress: ProgressCallback = lambda *_: None,
) -> SweepResult:
    """Find the keys that only the old version declares, and with `delete` remove them."""
    options = options or SweepOptions()
    work = _Sweep(_belongs(old, new), options)
    async with open_servers(url) as servers:
        total = sum(info.keys for _, info in servers)
        run_ids = [info.run_id for _, info in servers]
        start = dict.fromkeys(run_ids, SCAN_START)
        if options.cursor is not None:
            start = parse_resume_cursor(options.cursor, run_ids)

        def on_page(_: int) -> None:
            on_progress("names", work.scanned, total)

        chosen = [(node, info.run_id) for node, info in servers if info.run_id in start]
        left = await asyncio.gather(*(work.run(node, start[run_id], on_page) for node, run_id in chosen))
    cursors = {run_id: cursor for (_, run_id), cursor in zip(chosen, left, strict=True) if cursor is not None}
    return SweepResult(
        found=dict(work.found.most_common()),
        removed=work.removed,
        scanned=work.scanned,
        cursor=format_resume_cursor(cursors),
        stopped=work.stopped,
    )


def _belongs(old: Sequence[KeyspaceDoc], new: Sequence[KeyspaceDoc]) -> Callable[[bytes], str | None]:
    """The orphaned pattern of a key; None for a key that a present pattern renders, or that is unknown."""
    kept = Classifier((_template(doc), True) for doc in new if doc.kind != "channel")
    orphaned = Classifier((_template(doc), doc.pattern) for doc in orphans(old, new))
    return lambda key: None if kept(key) else orphaned(key)


def _template(doc: KeyspaceDoc) -> Template:
    return Template(typed_pattern(doc), hash_tag=doc.hash_tag)
