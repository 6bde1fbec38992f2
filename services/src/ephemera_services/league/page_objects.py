"""Large pages in an object store, a folder or a bucket with the API of S3; Redis has a pointer to each.

An object is named by the digest of its content, so it never changes, and may be stored again at any time,
which makes it young again. Redis names it only once it is stored. What no page names any more is removed when
it is older than any page in Redis can be; when that is wrong, the page is loaded, as after any other loss.

The store is used from threads of its own: one that hangs holds up no other work. After an error it is left
alone for half a minute, in which new pages stay in Redis and pages that it has are loaded from SQL.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TypeVar

import obstore
from obstore.exceptions import BaseError
from obstore.store import from_url

from ephemera_services.league.keys import SITE

T = TypeVar("T")

_SHARDS = 256  # by the first byte of the digest: one is listed at a time
_EVERY = 300.0  # seconds between two such lists of a process
_LISTED_AT_ONCE = 1000
_MAX_LISTED = 10_000
_MAX_OBJECT = 64 * 1024 * 1024  # bytes
TIMEOUT = timedelta(seconds=1)
"""For one call: a request waits for 2 s at most, and may have to load the page after it."""
_LIST_TIMEOUT = timedelta(minutes=1)
_PAUSE = 30.0  # seconds after an error
_RECENT_BYTES = 8 * 1024 * 1024
LONGEST_LIFETIME = timedelta(days=1) + max(
    lifetime.fresh + lifetime.stale
    for resource in SITE.resources
    for lifetime in (resource.freshness, resource.in_window, resource.settled)
    if lifetime is not None
)
"""Of a page in Redis, and a day, since the clocks of processes, stores and Redis differ."""

logger = logging.getLogger(__name__)


class PageObjects:
    """The content of large pages, in an object store: a `BodyStore`.

    Args:
        url: `file:///folder`, which is created, or `s3://bucket/prefix`. The endpoint, region and credentials
            of S3 come from its own variables, such as `AWS_ENDPOINT_URL`.

    """

    def __init__(self, url: str) -> None:
        if url.startswith("file:"):
            self._store = from_url(url, mkdir=True)
        else:
            self._store = from_url(
                url,
                # AWS_ENDPOINT_URL is https by default, and may be a store of the same host or cluster.
                client_options={"timeout": TIMEOUT, "connect_timeout": TIMEOUT, "allow_http": True},
                retry_config={"max_retries": 1, "retry_timeout": TIMEOUT},
            )
        self._threads = ThreadPoolExecutor(4, "league-objects")
        self._recent: OrderedDict[str, bytes] = OrderedDict()
        self._recent_bytes = 0
        self._reads: dict[str, asyncio.Task[bytes | None]] = {}
        self._retry_at = 0.0

    async def put(self, digest: str, content: bytes) -> bool:
        """Store content; False if the store is down."""
        if await self._run(lambda: obstore.put(self._store, _path(digest), content)) is None:
            return False
        self._remember(digest, content)
        return True

    async def get(self, digest: str) -> bytes | None:
        """Return content, of this process or of one read for all callers; None if there is none."""
        if digest in self._recent:
            self._recent.move_to_end(digest)
            return self._recent[digest]
        task = self._reads.get(digest)
        if task is None:
            task = self._reads[digest] = asyncio.create_task(self._read(digest))
            task.add_done_callback(lambda _: self._reads.pop(digest))
        return await asyncio.shield(task)

    async def remove_unused(self, shard: int) -> int:
        """Remove objects of one of the 256 shards that no page can name any more; how many."""
        before = datetime.now(UTC) - LONGEST_LIFETIME
        return (
            await self._run(lambda: self._remove(f"{shard % _SHARDS:02x}", before), limit=_LIST_TIMEOUT) or 0
        )

    async def run(self) -> None:
        """Remove what no page names any more, one shard every five minutes, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY)
            if removed := await self.remove_unused(secrets.randbelow(_SHARDS)):
                logger.info("removed unused objects", extra={"count": removed})

    def close(self) -> None:
        """End its reads and threads."""
        for task in self._reads.values():
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _read(self, digest: str) -> bytes | None:
        def read() -> bytes | None:
            found = obstore.get(self._store, _path(digest))
            return bytes(found.bytes()) if found.meta["size"] <= _MAX_OBJECT else None

        content = await self._run(read)
        if content is not None:
            self._remember(digest, content)
        return content

    def _remove(self, shard: str, before: datetime) -> int:
        removed = listed = 0
        for objects in obstore.list(self._store, shard, chunk_size=_LISTED_AT_ONCE):
            old = [each["path"] for each in objects if each["last_modified"] < before]
            if old:
                obstore.delete(self._store, old)
            removed, listed = removed + len(old), listed + len(objects)
            if listed >= _MAX_LISTED:
                break
        return removed

    def _remember(self, digest: str, content: bytes) -> None:
        self._recent_bytes += len(content) - len(self._recent.pop(digest, b""))
        self._recent[digest] = content
        while self._recent_bytes > _RECENT_BYTES:
            self._recent_bytes -= len(self._recent.popitem(last=False)[1])

    async def _run(self, work: Callable[[], T], limit: timedelta | None = None) -> T | None:
        """Do something in a thread; None if there is no such object, or the store is down."""
        if monotonic() < self._retry_at:
            return None
        try:
            async with asyncio.timeout((limit or TIMEOUT).total_seconds()):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as problem:  # a timeout too
            self._retry_at = monotonic() + _PAUSE
            # Its text may have what a signed URL has.
            logger.warning("the object store is unavailable", extra={"problem": type(problem).__name__})
            return None


def _path(digest: str) -> str:
    return f"{digest[:2]}/{digest}"
