"""Keys that match a pattern, on a server or on all masters of a cluster: to list or to delete them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

from ephemera.wire import Client

PAGE = 1000
"""About how many keys the server looks at in one step of a scan."""
_SPECIAL = re.compile(r"([\\*?\[])")


async def find_keys(client: Client, pattern: str, page: int = PAGE) -> list[bytes]:
    """The keys that match a pattern."""
    return list(dict.fromkeys([key async for keys in _pages(client, pattern, page) for key in keys]))


async def delete_keys(client: Client, pattern: str, page: int = PAGE) -> int:
    """Delete the keys that match a pattern, and return how many."""
    deleted = 0
    async for keys in _pages(client, pattern, page):
        deleted += sum(await asyncio.gather(*[client.call("UNLINK", key) for key in keys]))
    return deleted


def escaped(text: str) -> str:
    """A text as a pattern that matches it alone."""
    return _SPECIAL.sub(r"\\\1", text)


async def _pages(client: Client, pattern: str, page: int) -> AsyncIterator[list[bytes]]:
    for node in client.nodes():
        cursor: Any = b"0"
        while True:
            cursor, keys = await node.call("SCAN", cursor, "MATCH", pattern, "COUNT", page)
            yield keys
            if cursor == b"0":
                break
