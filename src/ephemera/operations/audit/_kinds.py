"""Every kind of finding, most important subjects first; `--fail-on` takes their names."""

from typing import Literal, NamedTuple, TypeAlias

Severity: TypeAlias = Literal["problem", "warning", "note"]
"""How serious a finding is."""
SEVERITIES: tuple[Severity, ...] = ("problem", "warning", "note")


class FindingKind(NamedTuple):
    """A kind of finding: how serious it is, what it means, and why it matters."""

    severity: Severity
    meaning: str
    why: str


KINDS: dict[str, FindingKind] = {
    "unknown": FindingKind(
        "problem",
        "keys that no catalogue declares",
        "it is not known who needs them, when they end, or what they may hold",
    ),
    "misplaced": FindingKind(
        "problem",
        "keys of a role that this server does not carry",
        "the server's eviction and persistence are wrong for them",
    ),
    "wrong-type": FindingKind(
        "problem", "keys of another type than declared", "every command on them fails with WRONGTYPE"
    ),
    "no-ttl": FindingKind(
        "problem", "keys without a TTL that should have one", "they stay forever, and memory grows with them"
    ),
    "ttl-above-policy": FindingKind(
        "problem",
        "keys with a longer TTL than declared",
        "data is served, and kept, for longer than was promised",
    ),
    "unexpected-ttl": FindingKind(
        "warning",
        "keys with a TTL that are declared permanent",
        "they will vanish, although something relies on them",
    ),
    "undecodable": FindingKind(
        "problem",
        "values that do not decode as the declared type",
        "they read as misses, so a cache never hits and a session is signed out",
    ),
    "big-key": FindingKind(
        "warning", "keys above 1 MiB", "reading, moving or deleting one delays every other client"
    ),
    "long-stream": FindingKind(
        "problem", "streams longer than declared", "nothing trims them, and memory grows"
    ),
    "stream-lag": FindingKind(
        "note",
        "consumer groups with undelivered or pending entries",
        "events are handled late, or not at all",
    ),
    "empty-keyspace": FindingKind(
        "note",
        "declared keyspaces without keys",
        "the declaration may be unused, or another server holds its keys",
    ),
    "evictable-queue": FindingKind(
        "problem",
        "keyspaces of role queue that the server may evict",
        "jobs, events and unflushed counters are lost without an error",
    ),
    "unevictable-cache": FindingKind(
        "warning",
        "keyspaces of role cache that the server never evicts",
        "when memory is full, every write fails instead of an old key going",
    ),
    "no-memory-limit": FindingKind(
        "warning", "a server with cache keyspaces and no maxmemory", "it grows until the machine kills it"
    ),
    "memory-full": FindingKind(
        "warning", "a server above 90 % of its maxmemory that does not evict", "writes are about to fail"
    ),
    "fragmented": FindingKind(
        "warning", "a server with badly fragmented memory", "the machine pays for memory that holds no data"
    ),
    "unpersisted-queue": FindingKind(
        "problem",
        "keyspaces of role queue without an append-only file",
        "a restart loses every job and event that is not done",
    ),
    "persisted-cache": FindingKind(
        "note",
        "an append-only file on a server that holds only caches",
        "disk and latency are spent on data that may be lost",
    ),
    "persistence-failing": FindingKind(
        "problem",
        "a server whose snapshots or append-only file fail",
        "a restart would go back to an older state, and writes may be refused",
    ),
    "expired-acceptance": FindingKind(
        "warning", "an accepted finding whose date has passed", "what was meant to be temporary has stayed"
    ),
    "incomplete": FindingKind("note", "something was not inspected", "what was not seen may deviate as well"),
}
"""Every kind of finding."""

_KIND_GROUPS: dict[str, tuple[Severity, ...]] = {
    "problems": ("problem",),
    "warnings": ("problem", "warning"),
    "any": SEVERITIES,
}


def parse_kinds(names: list[str]) -> set[str]:
    """Expand kinds and groups (`problems`, `warnings`, `any`); ValueError for another name."""
    kinds: set[str] = set()
    for name in names:
        if name in KINDS:
            kinds.add(name)
        elif name in _KIND_GROUPS:
            kinds |= {kind for kind, each in KINDS.items() if each.severity in _KIND_GROUPS[name]}
        else:
            raise ValueError(name)
    return kinds
