"""A model of the quickstart's service at any rate of requests, from measured costs and stated assumptions.

A command costs something itself, and something for the write that carries it. Both parts follow from two
measurements, with full writes and with writes of one command; what a deployment has lies in between: the
commands that a process sends at once are spread over all masters, so more masters mean more writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from math import ceil

from benchmarks.scale_costs import Cost, Costs

RATES = (10_000, 100_000, 1_000_000)


@dataclass(frozen=True)
class Assumptions:
    """What a deployment is like. Change them, and run `python -m benchmarks.scale --page`."""

    process_use: float = field(default=0.6, metadata={"means": "utilization of a web process"})
    master_use: float = field(default=0.5, metadata={"means": "utilization of a master's core"})
    request_interval: float = field(
        default=10.0, metadata={"means": "seconds between two requests of a user"}
    )
    sessions_each: float = field(
        default=3.0, metadata={"means": "sessions kept for each user who is active now (they last 24 h)"}
    )
    master_memory: float = field(default=8e9, metadata={"means": "bytes of data on a master"})
    network: float = field(default=10e9 * 0.5 / 8, metadata={"means": "bytes/s of a node: half of 10 Gbit/s"})
    change_share: float = field(
        default=0.01, metadata={"means": "share of requests that change a cached value"}
    )
    hot_share: float = field(default=0.05, metadata={"means": "share of requests that read the same entry"})
    hot_changes: float = field(
        default=10.0, metadata={"means": "changes/s of shared entries that are kept locally"}
    )
    max_age: float = field(default=30.0, metadata={"means": "seconds for which a local copy is used unasked"})
    events: float = field(default=100.0, metadata={"means": "messages/s published to every process"})
    clients: int = field(default=10_000, metadata={"means": "connections of a master (maxclients)"})


@dataclass(frozen=True)
class Plan:
    """What a rate needs."""

    rate: float
    process_cost: float
    server_cost: float
    """CPU of a request, in microseconds."""
    batch: float
    processes: int
    by_cpu: int
    by_memory: int
    by_network: int
    """Masters, by each resource."""
    memory: float
    network: float
    """Bytes, and bytes per second, of all masters."""
    connections: int
    """Of each master."""
    hot_use: float
    """How much of its master's budget the hot entry takes, without local copies."""
    local_use: float
    """The same with local copies."""
    announce_use: float
    """Cores of servers that announce each change to each process, if everything is kept locally."""
    announce_network: float
    """Bytes per second of that."""
    listen_use: float
    """The part of each process that these announcements take."""
    shared_use: float
    """Cores of servers that announce changes of shared entries only."""
    fan_out_use: float
    """The part of a core that publishing to every process takes."""

    @property
    def masters(self) -> int:
        """As many as the scarcest resource needs."""
        return max(self.by_cpu, self.by_memory, self.by_network)


def at_batch(busy: float, quiet: float, busy_batch: float, quiet_batch: float, batch: float) -> float:
    """The cost at this many commands a write, of the straight line in 1/batch through both measurements."""
    span = 1 / quiet_batch - 1 / busy_batch
    if span <= 0:
        return quiet
    return max(0.0, busy + (quiet - busy) * (1 / batch - 1 / busy_batch) / span)


def spread(commands: float, masters: int) -> float:
    """How many commands share a write when that many, sent at once, are spread over masters at random."""
    if commands <= 1:
        return 1.0
    reached: float = masters * (1 - (1 - 1 / masters) ** commands)
    return commands / reached


def client_at(busy: Cost, quiet: Cost, batch: float) -> float:
    """The client's part at this many commands a write."""
    return at_batch(busy.client, quiet.client, busy.batch, quiet.batch, batch)


def server_at(busy: Cost, quiet: Cost, batch: float) -> float:
    """The server's part at this many commands a write."""
    return at_batch(busy.server, quiet.server, busy.batch, quiet.batch, batch)


def plan(rate: float, costs: Costs, given: Assumptions | None = None) -> Plan:
    """What a rate of requests per second needs."""
    given = Assumptions() if given is None else given
    users = rate * given.request_interval
    memory = users * given.sessions_each * costs.user_bytes
    network = rate * (costs.bytes_in + costs.bytes_out)
    by_memory, by_network = _units(memory, given.master_memory), _units(network, given.network)
    masters = max(by_memory, by_network)
    while True:  # more masters mean fewer commands per write, which may mean more masters
        batch = spread(costs.usual.batch, masters)
        server_cost = server_at(costs.data_busy, costs.data_quiet, batch)
        by_cpu = _units(rate * server_cost / 1e6, given.master_use)
        if by_cpu <= masters:
            break
        masters = by_cpu
    more_writes = [client_at(costs.data_busy, costs.data_quiet, each) for each in (batch, costs.usual.batch)]
    process_cost = costs.usual.client + more_writes[0] - more_writes[1]
    processes = _units(rate * process_cost / 1e6, given.process_use)
    read = server_at(costs.read_busy, costs.read_quiet, 1.0) / 1e6
    changes = rate * given.change_share
    push = costs.push.server / 1e6
    return Plan(
        rate=rate,
        process_cost=process_cost,
        server_cost=server_cost,
        batch=batch,
        processes=processes,
        by_cpu=by_cpu,
        by_memory=by_memory,
        by_network=by_network,
        memory=memory,
        network=network,
        connections=processes * 2,
        hot_use=rate * given.hot_share * read / given.master_use,
        local_use=(given.hot_changes + 1 / given.max_age) * processes * (read + push) / given.master_use,
        announce_use=changes * processes * push,
        announce_network=changes * processes * costs.push_bytes,
        listen_use=changes * costs.push.client / 1e6,
        shared_use=given.hot_changes * processes * push,
        fan_out_use=given.events * processes * costs.message.server / 1e6,
    )


def _units(needed: float, each: float) -> int:
    return max(1, ceil(needed / each))


@dataclass(frozen=True)
class Limit:
    """A resource, the rate at which one of it reaches its budget, and what moves that."""

    name: str
    rate: float
    more_machines: bool
    moved_by: str


def limits(costs: Costs, given: Assumptions | None = None) -> list[Limit]:
    """All resources, the first to be exhausted first."""
    given = Assumptions() if given is None else given
    reached: list[tuple[str, Callable[[Plan], float], bool, str]] = [
        (
            "one web process",
            lambda at: at.rate * at.process_cost / 1e6 / given.process_use,
            True,
            "more processes; each is independent",
        ),
        (
            "the core of one master",
            lambda at: at.rate * at.server_cost / 1e6 / given.master_use,
            True,
            "more masters; a local cache for what is read by all",
        ),
        (
            "the memory of one master",
            lambda at: at.memory / given.master_memory,
            True,
            "more masters; shorter sessions",
        ),
        (
            "the network of one master",
            lambda at: at.network / given.network,
            True,
            "more masters; smaller values, compression",
        ),
        (
            "the master of one hot entry",
            lambda at: at.hot_use,
            False,
            "a local cache for its keyspace; split keys for writes",
        ),
        (
            "one hot entry with local copies",
            lambda at: at.local_use,
            False,
            "fewer changes; fewer and larger processes",
        ),
        (
            "all masters, if every change is announced to every process",
            lambda at: at.announce_use / given.master_use / at.masters,
            False,
            "keep only shared entries locally: announcements grow with the square of the rate",
        ),
        (
            "a tenth of each process, if it hears every change",
            lambda at: at.listen_use / 0.1,
            False,
            "keep only shared entries locally",
        ),
        (
            "all masters, for messages to every process",
            lambda at: at.fan_out_use / given.master_use / at.masters,
            False,
            "one subscription per host, not per process; fewer messages",
        ),
        (
            "connections of one master",
            lambda at: at.connections / given.clients,
            False,
            "fewer and larger processes; a higher `maxclients`",
        ),
    ]
    found = [
        Limit(name, _rate_where(lambda rate, use=use: use(plan(rate, costs, given))), more, moved_by)  # type: ignore[misc]
        for name, use, more, moved_by in reached
    ]
    return sorted(found, key=lambda limit: limit.rate)


def _rate_where(use: Callable[[float], float]) -> float:
    """The rate at which a growing use reaches 1, found by halving."""
    low, high = 1.0, 1e12
    for _ in range(200):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if use(middle) < 1 else (low, middle)
    return low


def assumptions(given: Assumptions | None = None) -> list[tuple[str, float]]:
    """Each assumption in words, and its value."""
    given = Assumptions() if given is None else given
    return [(each.metadata["means"], getattr(given, each.name)) for each in fields(given)]
