"""The form of an audit's report: what `--json` prints, and what a program gets from `audit`.

Sizes are in bytes, times to live in milliseconds unless their name says otherwise. `keys` of a space were
all counted; what is said of types, lives, sizes and contents comes from a sample of `sampled` keys.
"""

import msgspec

from ephemera.operations.audit._findings import Finding
from ephemera.operations.inspect._contents import Group
from ephemera.operations.inspect._sampling import Interval
from ephemera.operations.inspect._server_facts import ServerFacts


class BigKey(msgspec.Struct, frozen=True, kw_only=True):
    """One of the largest keys in a sample."""

    key: str
    size: int
    members: int


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """A stream in a sample."""

    key: str
    length: int
    groups: list[Group]


class SpaceState(msgspec.Struct, frozen=True, kw_only=True):
    """A declared space as it was found."""

    pattern: str
    catalogue: str
    kind: str
    role: str
    lifetime: str
    sensitive: bool
    keys: int
    estimated_keys: Interval | None  # when the scan was cut short: of the whole server
    sampled: int
    size: Interval | None  # of all keys counted
    ttl: dict[str, int]  # sampled keys by what is left of their lives
    longest_ttl: int | None
    types: dict[str, int]
    contents_read: int
    undecodable: int
    too_large_to_read: int
    largest: list[BigKey]
    streams: list[StreamState]


class UnknownShape(msgspec.Struct, frozen=True, kw_only=True):
    """Undeclared keys that look alike: a pattern that would fit them, or why none can."""

    pattern: str | None
    reason: str | None
    keys: int
    examples: list[str]  # none when they look like secrets
    types: list[str]  # those seen in the sample


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """All undeclared keys."""

    keys: int
    sampled: int
    size: Interval | None
    without_ttl: Interval | None
    shapes: list[UnknownShape]


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at, and what was not."""

    names: int  # seen by this audit; SCAN may give one twice while the server resizes its table
    keys: int  # on the servers, when it began
    complete: bool
    resumed: bool
    cursor: str | None  # to continue from, when something is left
    not_seen: list[str]
    lost: list[str]  # servers that went away meanwhile


class Disturbance(msgspec.Struct, frozen=True, kw_only=True):
    """What the audit did to the servers' statistics."""

    lookups: int  # what keyspace_hits and keyspace_misses rose by, together
    looked_into: int  # keys whose contents were read
    access_times_kept: bool  # otherwise those keys count as used at the time of the audit


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an audit found."""

    catalogues: list[str]
    seconds: float
    coverage: Coverage
    servers: list[ServerFacts]
    spaces: list[SpaceState]
    unknown: Unknown
    findings: list[Finding]  # gravest first
    disturbance: Disturbance
