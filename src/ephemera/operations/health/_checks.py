"""The rules of a health check: each with its measured figure and, when it is violated, advice.

Three rules (hit ratio, evictions, p95) say when a larger server is needed; a server that violates none of
them is large enough, however full it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from ephemera.keyspace import Keyspace, Role
from ephemera.operations.audit import Finding, KeyUse, server_findings
from ephemera.operations.formatting import format_count, format_duration, format_size
from ephemera.operations.survey import ServerInfo

Status: TypeAlias = Literal["problem", "warning", "note", "ok"]
"""The result of a check; a note is advice on a server that is well."""
_WORST_FIRST: tuple[Status, ...] = get_args(Status)

_MIN_HIT_RATIO = 0.85
_MAX_P95 = 1.0  # seconds
_MIN_LOOKUPS = 1000  # fewer do not allow a judgement
_MAX_P99 = 0.05  # seconds of a PING's round trip
_MAX_CLOCK_OFFSET = 1.0  # seconds
_NEARLY_FULL = 0.9
_FRAGMENTED = 1.5
_FRAGMENTATION_COST = 64 * 1024 * 1024  # bytes
_MAX_LAG = 10_000_000  # bytes that a replica may be behind
_ROLES_RULE = "policy and persistence suit the roles"
_OF_EVICTION = ("evictable-queue", "unevictable-cache", "no-memory-limit")
_OF_ROLES = (*_OF_EVICTION, "unpersisted-queue", "persisted-cache", "persistence-failing")


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One rule, the measured figure, and advice when the rule is violated."""

    name: str
    status: Status
    figure: str
    rule: str
    advice: str = ""
    commands: list[str] = []  # to type: for the server (CONFIG SET ...), or for a shell (ephemera ...)


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Round-trip times of PING, in seconds."""

    probes: int
    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, taken: list[float]) -> Latency:
        """The percentiles of these measurements."""
        taken = sorted(taken)

        def at(share: float) -> float:
            return taken[min(len(taken) - 1, int(len(taken) * share))]

        return cls(probes=len(taken), p50=at(0.5), p95=at(0.95), p99=at(0.99))


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a server that change while it runs."""

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
    """Bytes that the slowest replica is behind, or this server if it is a replica."""
    latency: Latency
    clock_offset: float
    slow_commands: int | None

    @classmethod
    def of(cls, info: dict[str, str], latency: Latency, offset: float, slow: int | None) -> Vitals:
        """Pick the vitals from an INFO reply."""
        role = info.get("role", "master")
        here = int(info.get("master_repl_offset", 0))
        offsets = [_offset(value) for name, value in info.items() if _is_replica(name)]
        lag = max((here - each for each in offsets), default=0)
        if role != "master":
            lag = max(0, here - int(info.get("slave_repl_offset", here)))
        return cls(
            uptime=int(info.get("uptime_in_seconds", 0)),
            hits=int(info.get("keyspace_hits", 0)),
            misses=int(info.get("keyspace_misses", 0)),
            evicted=int(info.get("evicted_keys", 0)),
            clients=int(info.get("connected_clients", 0)),
            refused_clients=int(info.get("rejected_connections", 0)),
            commands_per_second=int(info.get("instantaneous_ops_per_sec", 0)),
            role=role,
            replicas=len(offsets),
            link_up=info.get("master_link_status", "up") == "up",
            lag=lag,
            latency=latency,
            clock_offset=offset,
            slow_commands=slow,
        )


def checks_of(
    server: ServerInfo,
    vitals: Vitals,
    keyspaces: Sequence[Keyspace[Any]],
    role: Role | None = None,
    undeclared: Sequence[KeyUse] | None = None,
) -> list[Check]:
    """Every check of a server that was reached.

    `role`: the only role that it carries; `undeclared`: its other keys, None when they were not looked for.
    """
    return [
        passed_check("reachable", f"{vitals.latency.probes} PINGs answered", "the server answers"),
        *_roles(server, keyspaces, undeclared),
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


def worst_status(statuses: Iterable[Status]) -> Status:
    """The worst of these statuses; notes are no more than advice."""
    return min((each for each in statuses if each != "note"), key=_WORST_FIRST.index, default="ok")


def sort_worst_first(checks: Iterable[Check]) -> list[Check]:
    """Sort checks by status, worst first."""
    return sorted(checks, key=lambda check: _WORST_FIRST.index(check.status))


def passed_check(name: str, figure: str, rule: str) -> Check:
    """A rule that holds."""
    return Check(name=name, status="ok", figure=figure, rule=rule)


def failed_check(name: str, figure: str, rule: str, advice: str) -> Check:
    """A violated rule that needs action now."""
    return Check(name=name, status="problem", figure=figure, rule=rule, advice=advice)


def warning_check(name: str, figure: str, rule: str, advice: str) -> Check:
    """A violated rule that should be fixed some day."""
    return Check(name=name, status="warning", figure=figure, rule=rule, advice=advice)


def _roles(
    server: ServerInfo, keyspaces: Sequence[Keyspace[Any]], undeclared: Sequence[KeyUse] | None
) -> Iterator[Check]:
    """Eviction and persistence against the roles of the keys; memory has its own checks.

    What suits the declared keys may lose others, so when those were not looked for, the advice is an audit.
    """
    found = [each for each in server_findings(server, keyspaces, undeclared or ()) if each.kind in _OF_ROLES]
    if undeclared is None:
        found = [_unsure(each) for each in found if each.kind != "persisted-cache"]
    for each in found:
        yield Check(
            name="roles",
            status=each.severity,
            figure=each.message,
            rule=_ROLES_RULE,
            advice=each.advice,
            commands=each.commands,
        )
    if not found:
        saved = "append-only file" if server.append_only else "no append-only file"
        nothing = undeclared is None and not keyspaces
        unjudged = "; not judged without a catalogue: see ephemera audit" if nothing else ""
        yield passed_check("roles", f"{server.policy}, {saved}{unjudged}", _ROLES_RULE)


def _unsure(finding: Finding) -> Finding:
    """The same, where the right setting depends on keys that are not known."""
    if finding.kind not in _OF_EVICTION:
        return finding
    advice = "which policy is right depends on all keys, also undeclared ones: audit the server"
    return msgspec.structs.replace(finding, advice=advice, commands=["ephemera audit --url URL"])


def _hit_ratio(vitals: Vitals, *, caches: bool) -> Check:
    lookups = vitals.hits + vitals.misses
    rule = f"hit ratio >= {_MIN_HIT_RATIO:.0%}"
    if lookups < _MIN_LOOKUPS:
        return passed_check("hit ratio", f"{format_count(lookups, 'lookup')}, too few to judge", rule)
    ratio = vitals.hits / lookups
    figure = f"{ratio:.1%} of {lookups:,} lookups in {format_duration(vitals.uptime * 1000)}"
    if not caches:  # without caches most lookups are for keys that seldom exist: is this token revoked?
        return passed_check("hit ratio", f"{figure}, not judged for role queue", rule)
    if ratio >= _MIN_HIT_RATIO:
        return passed_check("hit ratio", figure, rule)
    advice = "if keys are evicted, raise maxmemory; otherwise use longer lifetimes, or prewarm"
    return warning_check("hit ratio", figure, rule, advice)


def _evictions(vitals: Vitals, server: ServerInfo) -> Check:
    rule = "evictions = 0"
    figure = f"{format_count(vitals.evicted, 'key')} in {format_duration(vitals.uptime * 1000)}"
    if not vitals.evicted:
        return passed_check("evictions", figure, rule)
    advice = f"raise maxmemory above {format_size(server.max_memory)}, or shorten lifetimes"
    return warning_check("evictions", figure, rule, advice)


def _latency(latency: Latency) -> Check:
    shown = ", ".join(f"{name} {getattr(latency, name) * 1000:.2f} ms" for name in ("p50", "p95", "p99"))
    rule = f"p99 <= {_MAX_P99 * 1000:g} ms, else a warning; p95 <= {_MAX_P95:g} s, else a problem"
    if latency.p95 > _MAX_P95:
        return failed_check(
            "latency", shown, rule, "use a larger or less busy server; see SLOWLOG GET and its CPU"
        )
    if latency.p99 > _MAX_P99:
        return warning_check(
            "latency", shown, rule, "see SLOWLOG GET, the network, and what else runs on its cores"
        )
    return passed_check("latency", shown, rule)


def _memory(server: ServerInfo) -> Check:
    rule = f"below {_NEARLY_FULL:.0%} of maxmemory, unless it evicts"
    if not server.max_memory:
        return passed_check("memory", f"{format_size(server.used_memory)}, no limit", rule)
    share = server.used_memory / server.max_memory
    figure = f"{format_size(server.used_memory)} of {format_size(server.max_memory)} ({share:.0%})"
    if share > _NEARLY_FULL and not server.evicts:
        return failed_check("memory", figure, rule, "raise maxmemory before writes are refused")
    return passed_check("memory", figure, rule)


def _fragmentation(server: ServerInfo) -> Check:
    wasted = server.resident_memory - server.used_memory
    figure = f"ratio {server.fragmentation:.2f}, {format_size(max(0, wasted))} lost"
    rule = f"ratio <= {_FRAGMENTED:g}, or less than {format_size(_FRAGMENTATION_COST)} lost"
    if server.fragmentation > _FRAGMENTED and wasted > _FRAGMENTATION_COST:
        return warning_check(
            "fragmentation", figure, rule, "set activedefrag yes, or restart the server at a quiet time"
        )
    return passed_check("fragmentation", figure, rule)


def _slow_log(vitals: Vitals) -> Iterator[Check]:
    slow = vitals.slow_commands
    rule = "the slow log is empty"
    if slow:
        advice = "list them with SLOWLOG GET 10, then clear the log with SLOWLOG RESET"
        yield warning_check("slow log", format_count(slow, "command"), rule, advice)
    elif slow == 0:
        yield passed_check("slow log", "no command", rule)


def _replication(vitals: Vitals) -> Check:
    rule = f"links are up, and no replica is more than {format_size(_MAX_LAG)} behind"
    if vitals.role == "master":
        figure = format_count(vitals.replicas, "replica") + (
            f", {format_size(vitals.lag)} behind" if vitals.lag else ""
        )
    else:
        figure = f"a replica, link {'up' if vitals.link_up else 'down'}, {format_size(vitals.lag)} behind"
    if not vitals.link_up:
        return failed_check("replication", figure, rule, "is its master up, and can the replica reach it?")
    if vitals.lag > _MAX_LAG:
        return warning_check(
            "replication", figure, rule, "check the network between them, and the replica's CPU"
        )
    return passed_check("replication", figure, rule)


def _clients(vitals: Vitals) -> Check:
    rule = "no connection was refused"
    figure = f"{format_count(vitals.clients, 'client')}, {vitals.refused_clients:,} refused"
    if vitals.refused_clients:
        return warning_check("clients", figure, rule, "raise maxclients, or share one store per process")
    return passed_check("clients", figure, rule)


def _clock(vitals: Vitals) -> Check:
    rule = f"within {_MAX_CLOCK_OFFSET:g} s of this machine's clock"
    figure = f"{vitals.clock_offset:+.3f} s"
    if abs(vitals.clock_offset) > _MAX_CLOCK_OFFSET:
        return warning_check("clock", figure, rule, "run NTP on both; TTLs follow the server's clock")
    return passed_check("clock", figure, rule)


def _is_replica(name: str) -> bool:
    return name.startswith("slave") and name.removeprefix("slave").isdigit()


def _offset(value: str) -> int:
    parts = dict(part.split("=", 1) for part in value.split(",") if "=" in part)
    return int(parts.get("offset", 0))
