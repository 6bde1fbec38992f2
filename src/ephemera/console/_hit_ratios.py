"""The hit ratios of spaces, as the services that use them say at `/metrics`.

Only who reads knows whether it found something, so a server cannot tell this by space. The console asks the
services that `--metrics-url` names, every ten seconds, and adds up what they say. Those that are built in
want to see a token, which is that of EPHEMERA_METRICS_TOKEN here as there.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Sequence

import httpx

from ephemera.operations.metrics import KEYSPACE_HITS, KEYSPACE_MISSES

_EVERY = 10.0  # seconds
_PATIENCE = 3.0  # seconds
_LARGEST = 4 * 1024 * 1024  # bytes of an answer
_ESCAPED = re.compile(r"\\(.)")
_LINE = re.compile(
    rf'^({KEYSPACE_HITS.name}|{KEYSPACE_MISSES.name})\{{keyspace="((?:[^"\\]|\\.)*)"\}} ([0-9.eE+-]+)',
    re.MULTILINE,
)


class HitRatios:
    """Hits and misses by the pattern of a space, of all that answered."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = tuple(urls)
        self.silent: list[str] = []
        """Those that did not answer, without what is secret in them."""
        self._hits: Counter[str] = Counter()
        self._misses: Counter[str] = Counter()

    def of(self, pattern: str) -> float | None:
        """The share of reads that found something; None when nobody has read, or nobody tells."""
        lookups = self._hits[pattern] + self._misses[pattern]
        return self._hits[pattern] / lookups if lookups else None

    async def run(self) -> None:
        """Ask until cancelled."""
        token = os.environ.get("EPHEMERA_METRICS_TOKEN")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        async with httpx.AsyncClient(timeout=_PATIENCE, trust_env=False, headers=headers) as client:
            while self.urls:
                answers = await asyncio.gather(*(_answer(client, url) for url in self.urls))
                self.silent = [
                    httpx.URL(url).host for url, text in zip(self.urls, answers, strict=True) if text is None
                ]
                self._take([text for text in answers if text is not None])
                await asyncio.sleep(_EVERY)

    def _take(self, texts: list[str]) -> None:
        hits: Counter[str] = Counter()
        misses: Counter[str] = Counter()
        for text in texts:
            for name, pattern, value in _LINE.findall(text):
                counted = hits if name == KEYSPACE_HITS.name else misses
                counted[_ESCAPED.sub(r"\1", pattern)] += int(float(value))
        self._hits, self._misses = hits, misses


async def _answer(client: httpx.AsyncClient, url: str) -> str | None:
    try:
        answer = await client.get(url)
    except (httpx.HTTPError, httpx.InvalidURL):
        return None
    return answer.text[:_LARGEST] if answer.is_success else None
