"""Hit ratios of keyspaces and durations of calls, from the `/metrics` of the services that use them.

Only the reading process knows which keyspace a hit belongs to; the server does not. The console scrapes each
`--metrics-url` every ten seconds and sums the counters, with the token in EPHEMERA_METRICS_TOKEN, if set.
What each process has counted since its last scrape is added up for the history (`_history`), so a restart,
or a process that does not respond for a while, makes no jump. Behind one URL there may be several processes,
such as the pods of a Kubernetes service: they are distinguished by `process_start_time_seconds`.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from time import time
from typing import TypeAlias

import httpx

from ephemera.console._history import Counted
from ephemera.operations.metrics import CALL_DURATION, KEYSPACE_DURATION, KEYSPACE_HITS, KEYSPACE_MISSES
from ephemera.wire import LATENCY_BOUNDS

_INTERVAL = 10.0  # seconds
_TIMEOUT = 3.0  # seconds
_MAX_RESPONSE = 4 * 1024 * 1024  # bytes
_DURATIONS, _BY_KEYSPACE = f"{CALL_DURATION.name}_bucket", f"{KEYSPACE_DURATION.name}_bucket"
_MAX_COUNT = 2**53  # a larger one is not a count, and its sum might not fit into the history
_ESCAPED = re.compile(r"\\(.)")
_NUMBER = r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)(?!\S)"
_LINE = re.compile(
    rf'^({KEYSPACE_HITS.name}|{KEYSPACE_MISSES.name})\{{keyspace="((?:[^"\\]|\\.)*)"\}} {_NUMBER}',
    re.MULTILINE,
)
_BUCKET = re.compile(
    rf'^({_DURATIONS}|{_BY_KEYSPACE})\{{\w+="((?:[^"\\]|\\.)*)",le="([0-9.eE+-]+|\+Inf)"\}} {_NUMBER}',
    re.MULTILINE,
)
_STARTED = re.compile(r"^process_start_time_seconds (\S+)", re.MULTILINE)
_MAX_PROCESSES = 64  # whose counters are kept: those seen last
_Counter: TypeAlias = tuple[str, str, str]
"""The name of a metric, the pattern if it has one, and the bound of a bucket."""


class HitRatios:
    """Hits and misses by pattern, summed over all services that responded."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = tuple(urls)
        self.unreachable: list[str] = []
        """Hosts that did not respond."""
        self._hits: Counter[str] = Counter()
        self._misses: Counter[str] = Counter()
        self._before: dict[tuple[str, str], Counter[_Counter]] = {}  # the last counters of each process
        self._watched: dict[str, float] = {}  # since when, by URL
        self._counted: Counter[_Counter] = Counter()  # since the history took them

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
                for url, text in zip(self.urls, responses, strict=True):
                    if text is not None:
                        self.count(url, text)
                await asyncio.sleep(_INTERVAL)

    def take_counted(self) -> Counted:
        """What was counted since this was last called."""
        counted, self._counted = self._counted, Counter()
        lookups: dict[str, tuple[int, int]] = {}
        up_to: dict[tuple[str, str], dict[str, int]] = {}
        for (name, label, bound), value in counted.items():
            hits, misses = lookups.get(label, (0, 0))
            if name == KEYSPACE_HITS.name:
                lookups[label] = hits + value, misses
            elif name == KEYSPACE_MISSES.name:
                lookups[label] = hits, misses + value
            else:
                up_to.setdefault((name, label), {})[bound] = value
        by_keyspace = {
            label: _durations(each) for (name, label), each in up_to.items() if name == _BY_KEYSPACE
        }
        return Counted(
            {name: both for name, both in lookups.items() if sum(both)},
            _durations(up_to.get((_DURATIONS, ""), {})),
            {pattern: each for pattern, each in by_keyspace.items() if sum(each)},
        )

    def count(self, url: str, text: str) -> None:
        """Add what a process has counted since its last response."""
        now: Counter[_Counter] = Counter()
        for name, label, value in _LINE.findall(text):
            now[name, _ESCAPED.sub(r"\1", label), ""] += _count(value)
        for name, label, bound, value in _BUCKET.findall(text):
            # Those of all servers together, but those of each keyspace for itself.
            now[name, _ESCAPED.sub(r"\1", label) if name == _BY_KEYSPACE else "", bound] += _count(value)
        before = self._counted_before(url, text)
        self._keep(url, text, now)
        if before is None:
            return
        restarted = any(now[each] < value for each, value in before.items())
        for each, value in now.items():
            self._counted[each] += value - (0 if restarted else before[each])

    def _counted_before(self, url: str, text: str) -> Counter[_Counter] | None:
        """The last counters of the process that responded; none of one that started since; None: unknown."""
        known = self._before.get((url, _started(text)))
        watched = self._watched.setdefault(url, time())
        if known is None and _count(_started(text) or "0") > watched:
            return Counter()
        return known

    def _keep(self, url: str, text: str, now: Counter[_Counter]) -> None:
        self._before.pop((url, _started(text)), None)  # so that the newest is last
        self._before[url, _started(text)] = now
        if len(self._before) > _MAX_PROCESSES * len(self.urls):
            del self._before[next(iter(self._before))]

    def _update(self, texts: list[str]) -> None:
        hits: Counter[str] = Counter()
        misses: Counter[str] = Counter()
        for text in texts:
            for name, pattern, value in _LINE.findall(text):
                counted = hits if name == KEYSPACE_HITS.name else misses
                counted[_ESCAPED.sub(r"\1", pattern)] += _count(value)
        self._hits, self._misses = hits, misses


def _durations(up_to: Mapping[str, int]) -> list[int]:
    """Calls by duration; of a histogram, each bucket counts those below it, too."""
    counts = [up_to.get(bound, 0) for bound in (*map(repr, LATENCY_BOUNDS), "+Inf")]
    return [max(0, value - below) for below, value in pairwise((0, *counts))]


def _count(value: str) -> int:
    return int(min(float(value), _MAX_COUNT))


def _started(text: str) -> str:
    """When the process that responded was started; empty if it does not say."""
    found = _STARTED.search(text)
    return found[1] if found and re.fullmatch(_NUMBER, found[1]) else ""


async def _scrape(client: httpx.AsyncClient, url: str) -> str | None:
    try:
        response = await client.get(url)
    except (httpx.HTTPError, httpx.InvalidURL):
        return None
    return response.text[:_MAX_RESPONSE] if response.is_success else None
