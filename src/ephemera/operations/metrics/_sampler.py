"""The figures that only a server or a database knows, sampled by one background task.

Each source (a server, the streams of a pattern, a backlog, the jobs of a database, a planner) costs one or
two round trips of bounded work, none of them a scan. A scrape never asks a source; it returns the last sample
and its age. A source that does not answer keeps its last sample and does not delay the others; a source that
is gone, such as a node that left its cluster, takes its sample with it.

A stream whose pattern has fields may have any number of keys: those that this process consumes from are
sampled, and summed.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from ephemera._futures import cancel_all
from ephemera.keyspace import Store
from ephemera.operations.metrics import _families as f
from ephemera.operations.metrics._client_counts import clients, is_jobs, is_planner, planner_name
from ephemera.operations.metrics._families import Buckets, Sample
from ephemera.operations.metrics._keyspace_durations import KeyspaceDurations
from ephemera.operations.survey import parse_server_info, read_info
from ephemera.patterns.events import BoundEvents
from ephemera.patterns.write_behind import BoundCounters, BoundRecords
from ephemera.wire import NodeClient

if TYPE_CHECKING:  # they need the extra `sql`
    from ephemera.patterns.jobs import BoundJobs
    from ephemera.patterns.planner import BoundPlanner

log = logging.getLogger("ephemera.metrics")

Deferred: TypeAlias = BoundCounters | BoundRecords[Any]

_TIMEOUT = 5.0  # seconds for one source
_MAX_STREAMS = 100  # sampled per pattern
_MAX_NAMES = 50  # label values chosen by callers; the rest share one
_OTHER = "(other)"
_OPEN = ("waiting", "running")
_FINISHED = ("done", "failed", "cancelled", "dead")
_DIGITS = re.compile(r"\d+")
_INFO_FIELDS = (
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


class SampleSource(NamedTuple):
    """Something to sample: its kind, the object it samples, and how."""

    kind: str
    subject: object
    sample: Callable[[], Awaitable[list[Sample]]]


class _LastSample(NamedTuple):
    kind: str
    at: float  # by `monotonic`
    samples: list[Sample]


class Sampler:
    """The last sample of every source of a store."""

    def __init__(self, store: Store, every: float) -> None:
        self._store = store
        self._every = every
        self._durations = KeyspaceDurations(store)
        self._last: dict[object, _LastSample] = {}
        self._failures: Counter[str] = Counter()
        self._failing: set[object] = set()
        self._jobs: WeakKeyDictionary[BoundJobs, JobSource] = WeakKeyDictionary()
        self._lock = asyncio.Lock()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="ephemera-metrics")

    def samples(self) -> Iterator[Sample]:
        """The last samples, and their age."""
        yield from self._durations.samples()
        oldest: dict[str, float] = {}
        for kind, at, samples in list(self._last.values()):
            oldest[kind] = min(at, oldest.get(kind, at))
            yield from samples
        now = monotonic()
        for kind, at in oldest.items():
            yield Sample(f.SAMPLE_AGE, (kind,), now - at)
            yield Sample(f.SAMPLE_FAILURES, (kind,), self._failures[kind])
        for kind in self._failures.keys() - oldest.keys():
            yield Sample(f.SAMPLE_FAILURES, (kind,), self._failures[kind])

    async def sample(self) -> None:
        """Sample every source now."""
        async with self._lock:
            self._durations.take()
            sources = {id(source.subject): source for source in self._sources()}
            for gone in self._last.keys() - sources.keys():
                del self._last[gone]
            self._failing &= sources.keys()
            await asyncio.gather(*(self._sample(key, source) for key, source in sources.items()))

    async def aclose(self) -> None:
        """Stop sampling."""
        await cancel_all([self._task])

    async def _run(self) -> None:
        while True:
            try:
                await self.sample()
            except Exception:  # an error of ours must not end the task, which no caller awaits
                log.exception("metrics could not be sampled")
            await asyncio.sleep(self._every)

    async def _sample(self, key: object, source: SampleSource) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT):
                samples = await source.sample()
        except Exception as error:  # a database raises its driver's errors
            self._failures[source.kind] += 1
            # Warn once per outage, so that the log is not flooded.
            level = logging.DEBUG if key in self._failing else logging.WARNING
            log.log(level, "metrics of %s could not be sampled: %s", source.kind, error)
            self._failing.add(key)
        else:
            self._failing.discard(key)
            self._last[key] = _LastSample(source.kind, monotonic(), samples)

    def _sources(self) -> Iterator[SampleSource]:
        """Every source of the store as it is now."""
        nodes: list[Any] = [node for client in clients(self._store) for node in client.nodes()]
        for node in nodes:
            yield SampleSource("servers", node, partial(_server, node))
        for bound in self._store.runtimes:
            if isinstance(bound, BoundEvents):
                yield SampleSource("streams", bound, partial(_streams, bound))
            elif isinstance(bound, BoundCounters | BoundRecords):
                yield SampleSource("backlogs", bound, partial(_backlog, bound))
            elif is_jobs(bound):
                yield SampleSource("jobs", bound, self._job_source(bound).sample)
            elif is_planner(bound):
                yield SampleSource("planners", bound, partial(_planner, bound))

    def _job_source(self, jobs: BoundJobs) -> JobSource:
        if jobs not in self._jobs:
            self._jobs[jobs] = JobSource(jobs)
        return self._jobs[jobs]


async def _server(node: NodeClient) -> list[Sample]:
    info = await read_info(node)
    labels = (str(node.endpoint),)
    samples = [Sample(metric, labels, float(info[name])) for metric, name in _INFO_FIELDS if name in info]
    return [*samples, Sample(f.SERVER_KEYS, labels, parse_server_info(node, info).keys)]


async def _streams(events: BoundEvents[Any]) -> list[Sample]:
    streams = await events.consumed_streams(_MAX_STREAMS)
    pattern = events.declaration.keyspace.pattern
    groups = _bounded({group.name for stream in streams for group in stream.groups})
    sums: Counter[tuple[f.Metric, tuple[str, ...]]] = Counter()
    for stream in streams:
        sums[f.STREAM_LENGTH, (pattern,)] += stream.length
        sums[f.STREAM_DEAD, (pattern,)] += stream.dead
        for group in stream.groups:
            labels = (pattern, groups[group.name])
            sums[f.STREAM_PENDING, labels] += group.pending
            sums[f.STREAM_CONSUMERS, labels] += group.consumers
            sums[f.STREAM_PAUSED, labels] += group.paused is not None
            if group.lag is not None:  # None: the server does not know it
                sums[f.STREAM_LAG, labels] += group.lag
    return [Sample(metric, labels, value) for (metric, labels), value in sums.items()]


async def _backlog(deferred: Deferred) -> list[Sample]:
    declared, labels = deferred.declared, (deferred.declared.name,)
    size, age = await asyncio.gather(deferred.backlog(), deferred.backlog_age())
    return [
        Sample(f.BACKLOG, labels, size),
        Sample(f.BACKLOG_LIMIT, labels, declared.shards.capacity * declared.shards.count),
        Sample(f.BACKLOG_AGE, labels, age),
    ]


async def _planner(planner: BoundPlanner) -> list[Sample]:
    return [Sample(f.PLANNER_ENQUEUED, (planner_name(planner),), await planner.queue_length())]


class JobSource:
    """The open jobs of one database, and those that finished since this process started to observe."""

    def __init__(self, jobs: BoundJobs) -> None:
        from ephemera.patterns.jobs import DURATION_BUCKETS, JobCounter

        self._declared = jobs.declaration
        self._counts = JobCounter(jobs.declaration.tables, jobs.engine)
        self._bounds = DURATION_BUCKETS
        self._finished: Counter[tuple[str, str]] = Counter()
        self._durations: defaultdict[str, list[float]] = defaultdict(
            lambda: [0.0] * (len(DURATION_BUCKETS) + 1)
        )
        self._seconds: defaultdict[str, float] = defaultdict(float)

    async def sample(self) -> list[Sample]:
        """Sample them."""
        open_jobs = await self._counts.open()
        for kind in self._declared.kinds:  # a series that starts at 0 shows its first job
            self._durations[kind]
            self._finished.update({(kind, state): 0 for state in _FINISHED})
        for kind, state, duration, count, seconds in await self._counts.ended():
            self._finished[self._kind(kind), state] += count
            if duration is not None:
                self._durations[self._kind(kind)][duration] += count
                self._seconds[self._kind(kind)] += seconds
        samples = [*self._open(open_jobs)]
        samples += (Sample(f.JOBS_FINISHED, labels, count) for labels, count in self._finished.items())
        for kind, counts in self._durations.items():
            buckets = Buckets(self._bounds, tuple(counts), self._seconds[kind])
            samples.append(Sample(f.JOB_DURATION, (kind,), buckets))
        return samples

    def _open(self, open_jobs: list[Any]) -> Iterator[Sample]:
        waits = dict.fromkeys(self._declared.queues, 0.0)
        kinds = self._declared.kinds.values()
        jobs = Counter({(job.queue, job.kind, state): 0 for job in kinds for state in _OPEN})
        steps: Counter[tuple[str, str]] = Counter()
        names = _bounded({_DIGITS.sub("#", each.step) for each in open_jobs if each.step is not None})
        for each in open_jobs:
            kind = self._kind(each.kind)
            queue = each.queue if each.queue in self._declared.queues else _OTHER
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
        """A job's kind; kinds of other versions of the program share one name."""
        return kind if kind in self._declared.kinds else _OTHER


def _bounded(names: set[str]) -> dict[str, str]:
    """Label values: the first names as they are, the rest as one."""
    return {name: name if position < _MAX_NAMES else _OTHER for position, name in enumerate(sorted(names))}
