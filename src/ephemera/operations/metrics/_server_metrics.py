"""What a server or a database must be asked for: how streams, backlogs, jobs and servers stand.

Each source is one or two trips of bounded work, none of them a scan. They are asked by one background task
every so often, never by a scrape. A stream whose pattern has fields may have any number of keys: those that
this process consumes from are looked at, and summed.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from ephemera.keyspace import Store
from ephemera.operations.inspect._server_facts import facts_of, info
from ephemera.operations.metrics import _families as f
from ephemera.operations.metrics._client_counts import clients, is_jobs, is_planner, planner_name
from ephemera.operations.metrics._families import Buckets, Sample
from ephemera.patterns.events._groups import read_stream
from ephemera.patterns.events._runtime import BoundEvents
from ephemera.patterns.jobs import BoundJobs
from ephemera.patterns.planner import BoundPlanner
from ephemera.patterns.write_behind._counters import BoundCounters
from ephemera.patterns.write_behind._records import BoundRecords
from ephemera.wire import NodeClient

Deferred: TypeAlias = BoundCounters | BoundRecords[Any]

_MOST_STREAMS = 100  # of one pattern that are looked at
_MOST_NAMES = 50  # that a label takes of what callers name; the rest is one
_REST = "(other)"
_OPEN = ("waiting", "running")
_ENDED = ("done", "failed", "cancelled", "dead")
_DIGITS = re.compile(r"\d+")
_OF_INFO = (
    (f.SERVER_MEMORY, "used_memory"),
    (f.SERVER_MEMORY_LIMIT, "maxmemory"),
    (f.SERVER_CLIENTS, "connected_clients"),
    (f.SERVER_EVICTED, "evicted_keys"),
    (f.SERVER_EXPIRED, "expired_keys"),
    (f.SERVER_HITS, "keyspace_hits"),
    (f.SERVER_MISSES, "keyspace_misses"),
    (f.SERVER_COMMANDS, "total_commands_processed"),
    (f.SERVER_REFUSED, "rejected_connections"),
    (f.SERVER_UPTIME, "uptime_in_seconds"),
)


class Source(NamedTuple):
    """Something to be asked: what sort it is, which one it is, and how."""

    sort: str
    which: object
    ask: Callable[[], Awaitable[list[Sample]]]


class Asking:
    """The sources of a store as they are now; keeps what counters of ended jobs have come to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._jobs: WeakKeyDictionary[BoundJobs, EndedSoFar] = WeakKeyDictionary()

    def sources(self) -> Iterator[Source]:
        """Everything there is to ask."""
        nodes: list[Any] = [node for client in clients(self._store) for node in client.nodes()]
        for node in nodes:
            yield Source("servers", node, partial(_server, node))
        for live in self._store.runtimes:
            if isinstance(live, BoundEvents):
                yield Source("streams", live, partial(_streams, live, self._store))
            elif isinstance(live, BoundCounters | BoundRecords):
                yield Source("backlogs", live, partial(_backlog, live))
            elif is_jobs(live):
                yield Source("jobs", live, self._ended(live).ask)
            elif is_planner(live):
                yield Source("planners", live, partial(_planner, live))

    def _ended(self, jobs: BoundJobs) -> EndedSoFar:
        if jobs not in self._jobs:
            self._jobs[jobs] = EndedSoFar(jobs)
        return self._jobs[jobs]


async def _server(node: NodeClient) -> list[Sample]:
    said = await info(node)
    labels = (str(node.endpoint),)
    samples = [Sample(metric, labels, float(said[name])) for metric, name in _OF_INFO if name in said]
    return [*samples, Sample(f.SERVER_KEYS, labels, facts_of(node, said).keys)]


async def _streams(events: BoundEvents[Any], store: Store) -> list[Sample]:
    keys = set(list(events.consumed)[:_MOST_STREAMS])
    if not events.declared.space.template.fields:
        keys.add(events.declared.keys({}))
    client = store.client("queue")
    readings = await asyncio.gather(*(read_stream(client, *each) for each in sorted(keys)))
    pattern = events.declared.space.pattern
    groups = bounded({group.name for reading in readings for group in reading.groups})
    sums: Counter[tuple[f.Metric, tuple[str, ...]]] = Counter()
    for reading in readings:
        sums[f.STREAM_LENGTH, (pattern,)] += reading.length
        sums[f.STREAM_DEAD, (pattern,)] += reading.dead
        for group in reading.groups:
            labels = (pattern, groups[group.name])
            sums[f.STREAM_PENDING, labels] += group.pending
            sums[f.STREAM_CONSUMERS, labels] += group.consumers
            if group.lag is not None:  # otherwise the server cannot tell, and nor do we
                sums[f.STREAM_LAG, labels] += group.lag
    return [Sample(metric, labels, value) for (metric, labels), value in sums.items()]


async def _backlog(deferred: Deferred) -> list[Sample]:
    declared, labels = deferred.declared, (deferred.declared.name,)
    waiting, age = await asyncio.gather(deferred.waiting(), deferred.queue.age())
    return [
        Sample(f.BACKLOG, labels, waiting),
        Sample(f.BACKLOG_LIMIT, labels, declared.shards.most * declared.shards.count),
        Sample(f.BACKLOG_AGE, labels, age),
    ]


async def _planner(planner: BoundPlanner) -> list[Sample]:
    return [Sample(f.PLANNER_QUEUE, (planner_name(planner),), await planner.queue_length())]


class EndedSoFar:
    """The jobs of one database, and those that ended since this process looks."""

    def __init__(self, jobs: BoundJobs) -> None:
        from ephemera.patterns.jobs import DURATION_BUCKETS, JobCounts

        self._declared = jobs.declared
        self._tally = JobCounts(jobs.declared.tables, jobs.engine)
        self._ends = DURATION_BUCKETS
        self._ended: Counter[tuple[str, str]] = Counter()
        self._durations: defaultdict[str, list[float]] = defaultdict(
            lambda: [0.0] * (len(DURATION_BUCKETS) + 1)
        )
        self._seconds: defaultdict[str, float] = defaultdict(float)

    async def ask(self) -> list[Sample]:
        """How they stand."""
        standing = await self._tally.open()
        for kind in self._declared.kinds:  # a series that begins at 0 shows its first job
            self._durations[kind]
            self._ended.update({(kind, state): 0 for state in _ENDED})
        for kind, state, duration, count, seconds in await self._tally.ended():
            self._ended[self._kind(kind), state] += count
            if duration is not None:
                self._durations[self._kind(kind)][duration] += count
                self._seconds[self._kind(kind)] += seconds
        samples = [*self._open(standing)]
        samples += (Sample(f.JOBS_ENDED, labels, count) for labels, count in self._ended.items())
        for kind, counts in self._durations.items():
            buckets = Buckets(self._ends, tuple(counts), self._seconds[kind])
            samples.append(Sample(f.JOB_DURATION, (kind,), buckets))
        return samples

    def _open(self, standing: list[Any]) -> Iterator[Sample]:
        waits = dict.fromkeys(self._declared.queues, 0.0)
        kinds = self._declared.kinds.values()
        jobs = Counter({(job.queue, job.kind, state): 0 for job in kinds for state in _OPEN})
        steps: Counter[tuple[str, str]] = Counter()
        names = bounded({_DIGITS.sub("#", each.step) for each in standing if each.step is not None})
        for each in standing:
            kind = self._kind(each.kind)
            queue = each.queue if each.queue in self._declared.queues else _REST
            jobs[queue, kind, each.state] += each.jobs
            if each.state == "waiting":
                waits[queue] = max(waits.get(queue, 0.0), each.waited)
            else:
                step = "(none)" if each.step is None else names[_DIGITS.sub("#", each.step)]
                steps[kind, step] += each.jobs
        for queue, waited in waits.items():
            yield Sample(f.JOBS_WAIT, (queue,), waited)
        for labels, count in jobs.items():
            yield Sample(f.JOBS_OPEN, labels, count)
        for at_step, count in steps.items():
            yield Sample(f.JOBS_AT_STEP, at_step, count)

    def _kind(self, kind: str) -> str:
        """A job's kind; those of other versions of the program share one name."""
        return kind if kind in self._declared.kinds else _REST


def bounded(names: set[str]) -> dict[str, str]:
    """Names as a label shows them: the first so many by themselves, the rest together."""
    return {name: name if place < _MOST_NAMES else _REST for place, name in enumerate(sorted(names))}
