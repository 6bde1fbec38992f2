"""The report of an audit: the JSON that `--json` prints, and what `audit` returns.

Sizes are in bytes, TTLs in milliseconds unless their name says otherwise. `keys` of a keyspace were all
counted; types, TTLs, sizes and contents come from a sample of `sampled` keys.

`KINDS` lists every kind of finding; `--fail-on` takes their names.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from ephemera.operations.survey import ConsumerGroup, Interval, ServerInfo

Severity: TypeAlias = Literal["problem", "warning", "note"]
"""How serious a finding is."""
SEVERITIES: tuple[Severity, ...] = ("problem", "warning", "note")

KINDS: dict[str, tuple[Severity, str]] = {
    "unknown": ("problem", "keys that no catalogue declares"),
    "misplaced": ("problem", "keys of a role that this server does not carry"),
    "wrong-type": ("problem", "keys of another type than declared"),
    "no-ttl": ("problem", "keys without a TTL that should have one"),
    "ttl-above-policy": ("problem", "keys with a longer TTL than declared"),
    "unexpected-ttl": ("warning", "keys with a TTL that are declared permanent"),
    "undecodable": ("problem", "values that do not decode as the declared type"),
    "big-key": ("warning", "keys above 1 MiB"),
    "long-stream": ("problem", "streams longer than declared"),
    "stream-lag": ("note", "consumer groups with undelivered or pending entries"),
    "empty-keyspace": ("note", "declared keyspaces without keys"),
    "evictable-queue": ("problem", "keyspaces of role queue that the server may evict"),
    "unevictable-cache": ("warning", "keyspaces of role cache that the server never evicts"),
    "no-memory-limit": ("warning", "a server with cache keyspaces and no maxmemory"),
    "memory-full": ("warning", "a server above 90 % of its maxmemory that does not evict"),
    "fragmented": ("warning", "a server with badly fragmented memory"),
    "unpersisted-queue": ("problem", "keyspaces of role queue without an append-only file"),
    "persisted-cache": ("note", "an append-only file on a server that holds only caches"),
    "persistence-failing": ("problem", "a server whose snapshots or append-only file fail"),
    "incomplete": ("note", "something was not inspected"),
}
"""Every kind of finding, most important subjects first: its severity and its meaning."""

_KIND_GROUPS: dict[str, tuple[Severity, ...]] = {
    "problems": ("problem",),
    "warnings": ("problem", "warning"),
    "any": SEVERITIES,
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One deviation; `keys` estimates how many keys it affects."""

    kind: str
    severity: Severity
    message: str
    advice: str = ""
    keyspace: str | None = None
    server: str | None = None
    keys: Interval | None = None
    examples: list[str] = []


class LargeKey(msgspec.Struct, frozen=True, kw_only=True):
    """One of the largest keys in a sample."""

    key: str
    size: int
    members: int


class StreamReport(msgspec.Struct, frozen=True, kw_only=True):
    """A stream in a sample."""

    key: str
    length: int
    groups: list[ConsumerGroup]


class KeyspaceReport(msgspec.Struct, frozen=True, kw_only=True):
    """The keys found of a declared keyspace."""

    pattern: str
    catalogue: str
    kind: str
    role: str
    lifetime: str
    sensitive: bool
    keys: int
    estimated_keys: Interval | None  # of the whole server, when the scan was cut short
    sampled: int
    size: Interval | None  # of all keys counted
    ttl: dict[str, int]  # sampled keys by remaining TTL
    longest_ttl: int | None
    types: dict[str, int]
    contents_read: int
    undecodable: int
    too_large_to_read: int
    largest: list[LargeKey]
    streams: list[StreamReport]


class UnknownShape(msgspec.Struct, frozen=True, kw_only=True):
    """Undeclared keys of one shape: a pattern that would fit them, or the reason why none can."""

    pattern: str | None
    reason: str | None
    keys: int
    examples: list[str]  # empty when they look like secrets
    types: list[str]  # seen in the sample


class UnknownKeys(msgspec.Struct, frozen=True, kw_only=True):
    """All undeclared keys."""

    keys: int
    sampled: int
    size: Interval | None
    without_ttl: Interval | None
    shapes: list[UnknownShape]


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """What was inspected, and what was not."""

    names: int  # seen by this audit; SCAN may return one twice while the server resizes its table
    keys: int  # on the servers, when the audit started
    complete: bool
    resumed: bool
    cursor: str | None  # to resume from, when something is left
    not_seen: list[str]
    lost: list[str]  # servers whose connection was lost


class Impact(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of the audit on the servers' statistics."""

    lookups: int  # increase of keyspace_hits and keyspace_misses together
    contents_read: int  # keys whose contents were read
    access_times_kept: bool  # otherwise those keys count as accessed at the time of the audit


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an audit found."""

    catalogues: list[str]
    seconds: float
    coverage: Coverage
    servers: list[ServerInfo]
    keyspaces: list[KeyspaceReport]
    unknown: UnknownKeys
    findings: list[Finding]  # most severe first
    impact: Impact


def make_finding(
    kind: str,
    message: str,
    advice: str = "",
    *,
    keyspace: str | None = None,
    server: str | None = None,
    keys: Interval | None = None,
    examples: Sequence[str] = (),
) -> Finding:
    """Make a finding with the severity of its kind."""
    return Finding(
        kind=kind,
        severity=KINDS[kind][0],
        message=message,
        advice=advice,
        keyspace=keyspace,
        server=server,
        keys=keys,
        examples=list(examples),
    )


def parse_kinds(names: list[str]) -> set[str]:
    """Expand kinds and groups (`problems`, `warnings`, `any`); ValueError for another name."""
    kinds: set[str] = set()
    for name in names:
        if name in KINDS:
            kinds.add(name)
        elif name in _KIND_GROUPS:
            kinds |= {kind for kind, (severity, _) in KINDS.items() if severity in _KIND_GROUPS[name]}
        else:
            raise ValueError(name)
    return kinds
