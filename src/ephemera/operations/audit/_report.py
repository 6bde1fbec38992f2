"""The report of an audit: the JSON that `--json` prints, and what `audit` returns.

Sizes are in bytes, TTLs in milliseconds unless their name says otherwise. `keys` of a keyspace were all
counted; types, TTLs, sizes and contents come from a sample of `sampled` keys.
"""

from collections.abc import Sequence

import msgspec

from ephemera.keyspace import Role
from ephemera.operations.audit._kinds import KINDS, Severity
from ephemera.operations.survey import ConsumerGroup, Interval, ServerInfo


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One deviation; `keys` estimates how many keys it affects."""

    kind: str
    severity: Severity
    message: str
    why: str = ""
    advice: str = ""
    commands: list[str] = []  # to type: for the server (CONFIG SET ...), or for a shell (ephemera ...)
    keyspace: str | None = None
    server: str | None = None
    keys: Interval | None = None
    examples: list[str] = []
    accepted: str | None = None  # until when, and why


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
    half_lifetime_saves: float | None = None  # bytes, about; of keys that have a TTL
    compression_saves: float | None = None  # bytes, about; of string values


class SlowCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command of the slow logs on keys of one keyspace, or undeclared shape; None: of no known key."""

    command: str
    keyspace: str | None
    times: int
    total_ms: float
    longest_ms: float


class UnknownShape(msgspec.Struct, frozen=True, kw_only=True):
    """Undeclared keys of one shape: a pattern that would fit them, or the reason why none can."""

    pattern: str | None
    reason: str | None
    keys: int
    examples: list[str]  # empty when they look like secrets
    types: list[str]  # seen in the sample
    size: Interval | None = None  # of all its keys
    library: str | None = None  # that writes them
    purpose: str = ""
    role: Role | None = None
    permanent: bool = False  # some of the inspected have no TTL
    accepted: str | None = None  # until when, and why
    hash_tag: str | None = None  # the field of the pattern that is in braces


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


class KeyspaceGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """The growth of one keyspace, or shape of undeclared keys."""

    pattern: str
    keys_before: int
    keys: int
    size_before: float
    size: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What has changed since an earlier report."""

    at: str
    days: float
    memory_before: int
    memory: int
    changes: list[KeyspaceGrowth]  # what grew most first
    new_findings: list[str]
    gone_findings: list[str]


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
    at: str = ""  # UTC, in ISO 8601
    slow_commands: list[SlowCommand] = []  # slowest in total first
    since: Comparison | None = None  # with an earlier report


def make_finding(
    kind: str,
    message: str,
    advice: str = "",
    commands: Sequence[str] = (),
    *,
    keyspace: str | None = None,
    server: str | None = None,
    keys: Interval | None = None,
    examples: Sequence[str] = (),
) -> Finding:
    """Make a finding with the severity of its kind."""
    return Finding(
        kind=kind,
        severity=KINDS[kind].severity,
        message=message,
        why=KINDS[kind].why,
        advice=advice,
        commands=list(commands),
        keyspace=None if keyspace is None else str(keyspace),  # a typed key's is a subclass, no JSON
        server=server,
        keys=keys,
        examples=list(examples),
    )
