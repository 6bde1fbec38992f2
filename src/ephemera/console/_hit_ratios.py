"""Hit ratios of keyspaces, from the `/metrics` of the services that use them.

Only the reading process knows which keyspace a hit belongs to; the server does not. The console scrapes each
`--metrics-url` every ten seconds and sums the counters, with the token in EPHEMERA_METRICS_TOKEN, if set.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Sequence

import httpx

from ephemera.operations.metrics import KEYSPACE_HITS, KEYSPACE_MISSES

_INTERVAL = 10.0  # seconds
_TIMEOUT = 3.0  # seconds
_MAX_RESPONSE = 4 * 1024 * 1024  # bytes
_ESCAPED = re.compile(r"\\(.)")
_LINE = re.compile(
    rf'^({KEYSPACE_HITS.name}|{KEYSPACE_MISSES.name})\{{keyspace="((?:[^"\\]|\\.)*)"\}} ([0-9.eE+-]+)',
    re.MULTILINE,
)


class HitRatios:
    """Hits and misses by pattern, summed over all services that responded."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = tuple(urls)
        self.unreachable: list[str] = []
        """Hosts that did not respond."""
        self._hits: Counter[str] = Counter()
        self._misses: Counter[str] = Counter()

    def of(self, pattern: str) -> float | None:
        """The share of reads that found a value; None without reads or metrics."""
        lookups = self._hits[pattern] + self._misses[pattern]
        return self._hits[pattern] / lookups if lookups else None

    async def run(self) -> None:
        """Scrape until cancelled."""
        token = os.environ.get("EPHEMERA_METRICS_TOKEN")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        async with httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False, headers=headers) as client:
            while self.urls:
                responses = await asyncio.gather(*(_scrape(client, url) for url in self.urls))
                self.unreachable = [
                    httpx.URL(url).host
                    for url, text in zip(self.urls, responses, strict=True)
                    if text is None
                ]
                self._update([text for text in responses if text is not None])
                await asyncio.sleep(_INTERVAL)

    def _update(self, texts: list[str]) -> None:
        hits: Counter[str] = Counter()
        misses: Counter[str] = Counter()
        for text in texts:
            for name, pattern, value in _LINE.findall(text):
                counted = hits if name == KEYSPACE_HITS.name else misses
                counted[_ESCAPED.sub(r"\1", pattern)] += int(float(value))
        self._hits, self._misses = hits, misses


async def _scrape(client: httpx.AsyncClient, url: str) -> str | None:
    try:
        response = await client.get(url)
    except (httpx.HTTPError, httpx.InvalidURL):
        return None
    return response.text[:_MAX_RESPONSE] if response.is_success else None
