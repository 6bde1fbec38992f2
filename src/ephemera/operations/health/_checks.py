"""The rules of a check-up, each with its figure: what is well, what is not, and what to do then.

The three rules of growth (hit ratio, evictions, p95) say when a larger server would serve better; they look
at nothing else, so a server that breaks none of them is large enough, however full it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from ephemera.keyspace import Keyspace, Role
from ephemera.operations.audit._servers import findings_of
from ephemera.operations.inspect._formatting import counted, shown_life, shown_size
from ephemera.operations.inspect._server_facts import ServerFacts

Status: TypeAlias = Literal["problem", "warning", "ok"]
_WORST_FIRST: tuple[Status, ...] = get_args(Status)

LEAST_HIT_RATIO = 0.85
SLOWEST_P95 = 1.0  # seconds
_ENOUGH_LOOKUPS = 1000  # fewer say nothing of a cache
_SLOW_P99 = 0.05  # seconds of a PING's trip
_CLOCK = 1.0  # seconds that clocks may differ
_NEARLY_FULL = 0.9
_FRAGMENTED = 1.5
_WORTH_A_WORD = 64 * 1024 * 1024  # bytes
_LAG = 10_000_000  # bytes that a replica may be behind


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One rule, the figure it was held against, and advice when it is broken."""

    name: str
    status: Status
    figure: str
    rule: str
    advice: str = ""


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long a PING takes there and back, in seconds."""

    probes: int
    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, taken: list[float]) -> Latency:
        """The percentiles of some measurements."""
        taken = sorted(taken)

        def at(share: float) -> float:
            return taken[min(len(taken) - 1, int(len(taken) * share))]

        return cls(probes=len(taken), p50=at(0.5), p95=at(0.95), p99=at(0.99))


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    """What moves on a server, beside the facts."""

    uptime: int
    hits: int
    misses: int
    evicted: int
    clients: int
    refused_clients: int
    commands_per_second: int
    role: str
    replicas: int
    link_up: bool
    lag: int
    """Bytes that the slowest replica is behind, or this one if it is a replica."""
    latency: Latency
    clock_offset: float
    slow_commands: int | None

    @classmethod
    def of(cls, said: dict[str, str], latency: Latency, offset: float, slow: int | None) -> Vitals:
        """The vitals among what INFO said."""
        role = said.get("role", "master")
        here = int(said.get("master_repl_offset", 0))
        offsets = [_offset(value) for name, value in said.items() if _is_replica(name)]
        lag = max((here - each for each in offsets), default=0)
        if role != "master":
            lag = max(0, here - int(said.get("slave_repl_offset", here)))
        return cls(
            uptime=int(said.get("uptime_in_seconds", 0)),
            hits=int(said.get("keyspace_hits", 0)),
            misses=int(said.get("keyspace_misses", 0)),
            evicted=int(said.get("evicted_keys", 0)),
            clients=int(said.get("connected_clients", 0)),
            refused_clients=int(said.get("rejected_connections", 0)),
            commands_per_second=int(said.get("instantaneous_ops_per_sec", 0)),
            role=role,
            replicas=len(offsets),
            link_up=said.get("master_link_status", "up") == "up",
            lag=lag,
            latency=latency,
            clock_offset=offset,
            slow_commands=slow,
        )


def checks_of(
    server: ServerFacts, vitals: Vitals, spaces: Sequence[Keyspace[Any]], role: Role | None = None
) -> list[Check]:
    """Every check of a server that was reached; `role` is the only one that it carries."""
    return [
        well("reachable", f"{vitals.latency.probes} PINGs answered", "it answers"),
        *_roles(server, spaces),
        _hit_ratio(vitals, caches=role != "queue"),
        _evictions(vitals, server),
        _latency(vitals.latency),
        _memory(server),
        _fragmentation(server),
        *_slow_log(vitals),
        _replication(vitals),
        _clients(vitals),
        _clock(vitals),
    ]


def worst(statuses: Iterable[Status]) -> Status:
    """The gravest of some statuses."""
    return min(statuses, key=_WORST_FIRST.index, default="ok")


def worst_first(checks: Iterable[Check]) -> list[Check]:
    """Checks in the order in which somebody should look at them."""
    return sorted(checks, key=lambda check: _WORST_FIRST.index(check.status))


def well(name: str, figure: str, rule: str) -> Check:
    """A rule that is kept."""
    return Check(name=name, status="ok", figure=figure, rule=rule)


def problem(name: str, figure: str, rule: str, advice: str) -> Check:
    """A rule that is broken, to somebody's harm."""
    return Check(name=name, status="problem", figure=figure, rule=rule, advice=advice)


def warning(name: str, figure: str, rule: str, advice: str) -> Check:
    """A rule that is broken, to be mended some day."""
    return Check(name=name, status="warning", figure=figure, rule=rule, advice=advice)


def _roles(server: ServerFacts, spaces: Sequence[Keyspace[Any]]) -> Iterator[Check]:
    """Eviction and persistence against the roles of the spaces; memory has checks of its own."""
    found = [each for each in findings_of(server, spaces) if each.kind not in ("memory-full", "fragmented")]
    for each in found:
        make = problem if each.weight == "problem" else warning
        yield make("roles", each.message, "policy and persistence suit the roles", each.advice)
    if not found:
        saved = "append-only file" if server.append_only else "no append-only file"
        yield well("roles", f"{server.policy}, {saved}", "policy and persistence suit the roles")


def _hit_ratio(vitals: Vitals, *, caches: bool) -> Check:
    lookups = vitals.hits + vitals.misses
    rule = f"hit ratio >= {LEAST_HIT_RATIO:.0%}"
    if lookups < _ENOUGH_LOOKUPS:
        return well("hit ratio", f"{counted(lookups, 'lookup')}, too few to tell", rule)
    ratio = vitals.hits / lookups
    figure = f"{ratio:.1%} of {lookups:,} lookups in {shown_life(vitals.uptime * 1000)}"
    if not caches:  # where nothing is cached, most lookups ask for what is seldom there: is this revoked?
        return well("hit ratio", f"{figure}, not judged for role queue", rule)
    if ratio >= LEAST_HIT_RATIO:
        return well("hit ratio", figure, rule)
    advice = "if keys are evicted, give it more memory; otherwise lengthen lifetimes, or prewarm"
    return warning("hit ratio", figure, rule, advice)


def _evictions(vitals: Vitals, server: ServerFacts) -> Check:
    rule = "evictions = 0"
    figure = f"{counted(vitals.evicted, 'key')} in {shown_life(vitals.uptime * 1000)}"
    if not vitals.evicted:
        return well("evictions", figure, rule)
    advice = f"raise maxmemory above {shown_size(server.max_memory)}, or shorten lifetimes"
    return warning("evictions", figure, rule, advice)


def _latency(latency: Latency) -> Check:
    shown = ", ".join(f"{name} {getattr(latency, name) * 1000:.2f} ms" for name in ("p50", "p95", "p99"))
    rule = f"p99 <= {_SLOW_P99 * 1000:g} ms, else a warning; p95 <= {SLOWEST_P95:g} s, else a problem"
    if latency.p95 > SLOWEST_P95:
        return problem("latency", shown, rule, "a larger or less busy server; see SLOWLOG GET and its CPU")
    if latency.p99 > _SLOW_P99:
        return warning("latency", shown, rule, "see SLOWLOG GET, the network, and what shares its cores")
    return well("latency", shown, rule)


def _memory(server: ServerFacts) -> Check:
    rule = f"below {_NEARLY_FULL:.0%} of maxmemory, unless it may evict"
    if not server.max_memory:
        return well("memory", f"{shown_size(server.used_memory)}, no limit", rule)
    share = server.used_memory / server.max_memory
    figure = f"{shown_size(server.used_memory)} of {shown_size(server.max_memory)} ({share:.0%})"
    if share > _NEARLY_FULL and not server.evicts:
        return problem("memory", figure, rule, "raise maxmemory before writes are refused")
    return well("memory", figure, rule)


def _fragmentation(server: ServerFacts) -> Check:
    wasted = server.resident_memory - server.used_memory
    figure = f"ratio {server.fragmentation:.2f}, {shown_size(max(0, wasted))} lost"
    rule = f"ratio <= {_FRAGMENTED:g}, or less than {shown_size(_WORTH_A_WORD)} lost"
    if server.fragmentation > _FRAGMENTED and wasted > _WORTH_A_WORD:
        return warning("fragmentation", figure, rule, "set activedefrag yes, or restart it at a quiet time")
    return well("fragmentation", figure, rule)


def _slow_log(vitals: Vitals) -> Iterator[Check]:
    slow = vitals.slow_commands
    rule = "the slow log is empty"
    if slow:
        advice = "see which with SLOWLOG GET 10; empty it with SLOWLOG RESET once read"
        yield warning("slow log", counted(slow, "command"), rule, advice)
    elif slow == 0:
        yield well("slow log", "no command", rule)


def _replication(vitals: Vitals) -> Check:
    rule = f"links are up, and no replica is more than {shown_size(_LAG)} behind"
    if vitals.role == "master":
        figure = counted(vitals.replicas, "replica") + (
            f", {shown_size(vitals.lag)} behind" if vitals.lag else ""
        )
    else:
        figure = (
            f"a replica, its link is {'up' if vitals.link_up else 'down'}, {shown_size(vitals.lag)} behind"
        )
    if not vitals.link_up:
        return problem("replication", figure, rule, "is its master up, and can it be reached from here?")
    if vitals.lag > _LAG:
        return warning("replication", figure, rule, "see the network between them, and the replica's CPU")
    return well("replication", figure, rule)


def _clients(vitals: Vitals) -> Check:
    rule = "no connection was refused"
    figure = f"{counted(vitals.clients, 'client')}, {vitals.refused_clients:,} refused"
    if vitals.refused_clients:
        return warning("clients", figure, rule, "raise maxclients, or share one store in each process")
    return well("clients", figure, rule)


def _clock(vitals: Vitals) -> Check:
    rule = f"within {_CLOCK:g} s of this machine's"
    figure = f"{vitals.clock_offset:+.3f} s"
    if abs(vitals.clock_offset) > _CLOCK:
        return warning("clock", figure, rule, "run NTP on both; lifetimes count by the server's clock")
    return well("clock", figure, rule)


def _is_replica(name: str) -> bool:
    return name.startswith("slave") and name.removeprefix("slave").isdigit()


def _offset(value: str) -> int:
    parts = dict(part.split("=", 1) for part in value.split(",") if "=" in part)
    return int(parts.get("offset", 0))
