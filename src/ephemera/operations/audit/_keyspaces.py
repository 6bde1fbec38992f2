"""A declared keyspace compared with the keys found: its report, and the deviations.

Only the sample is judged; a finding estimates how many keys of the whole keyspace it affects, with bounds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ephemera.keyspace import Keyspace, Permanent, Until
from ephemera.operations.audit._report import Finding, KeyspaceReport, LargeKey, StreamReport, make_finding
from ephemera.operations.formatting import format_duration, format_key, format_keys, format_size
from ephemera.operations.survey import Interval, KeyspaceSample, SampledKey, estimate_matches, estimate_sum

LARGE_KEY = 1024 * 1024
"""Bytes above which a key counts as large."""

NO_TTL = "no TTL"
"""The bucket of keys without a TTL."""
_TTL_LIMITS = (
    ("1 min", 60),
    ("10 min", 600),
    ("1 h", 3600),
    ("1 d", 86_400),
    ("7 d", 604_800),
    ("30 d", 2_592_000),
)
TTL_BUCKETS = (*(f"≤ {name}" for name, _ in _TTL_LIMITS), "longer", NO_TTL)
"""The buckets of the TTL histogram, shortest first."""

_CLOCK_SKEW = 60_000  # milliseconds that `until` instants may be off: they come from other clocks
_LARGEST_KEYS = 3
_READ = {
    "string": "GET {key}",
    "hash": "HGETALL {key}",
    "list": "LRANGE {key} 0 9",
    "set": "SRANDMEMBER {key} 10",
    "zset": "ZRANDMEMBER {key} 10 WITHSCORES",
    "stream": "XREVRANGE {key} + - COUNT 10",
}
"""The command that shows some of a key, by its type."""
_TYPED = re.compile(r"[!#-&(-\[\]-~]+")
"""A key that can be typed as it is, without quotes."""


def keyspace_report(
    sample: KeyspaceSample, keyspace: Keyspace[Any], estimated: Interval | None
) -> KeyspaceReport:
    """Summarize the keys that were found of a keyspace."""
    keys = sample.keys
    sizes = [key.size for key in keys if key.size is not None]
    return KeyspaceReport(
        pattern=str(keyspace.pattern),
        catalogue=keyspace.catalogue,
        kind=keyspace.kind,
        role=keyspace.role,
        lifetime=str(keyspace.lifetime),
        sensitive=keyspace.sensitive,
        keys=sample.count,
        estimated_keys=estimated,
        sampled=len(keys),
        size=estimate_sum(sizes, sample.count) if sizes else None,
        ttl=dict(Counter(_ttl_bucket(key.ttl) for key in keys)),
        longest_ttl=max((key.ttl for key in keys if key.ttl >= 0), default=None),
        types=dict(Counter(key.type for key in keys)),
        contents_read=sum(key.content is not None for key in keys),
        undecodable=sum(key.content is False for key in keys),
        too_large_to_read=sum(key.too_large for key in keys),
        largest=_largest(keys, keyspace),
        streams=[
            StreamReport(key=format_key(key.key, keyspace), length=key.members, groups=key.groups)
            for key in keys
            if key.type == "stream"
        ],
        half_lifetime_saves=_half_lifetime_saves(sample, keyspace),
        compression_saves=_compression_saves(sample),
    )


def _half_lifetime_saves(sample: KeyspaceSample, keyspace: Keyspace[Any]) -> float | None:
    """What half the lifetime would save: keys in the second half of theirs would be gone."""
    whole = keyspace.lifetime.milliseconds
    if whole is None or not sample.keys:
        return None
    gone = [key.size or 0 for key in sample.keys if 0 <= key.ttl <= whole / 2]
    return sum(gone) / len(sample.keys) * sample.count


def _compression_saves(sample: KeyspaceSample) -> float | None:
    """What compressing the values would save, as far as they were read."""
    tried = [key.compression_saves for key in sample.keys if key.compression_saves is not None]
    return sum(tried) / len(tried) * sample.count if tried else None


def keyspace_findings(sample: KeyspaceSample, keyspace: Keyspace[Any]) -> Iterator[Finding]:
    """The deviations among the sampled keys of a keyspace."""
    right = [key for key in sample.keys if key.type == keyspace.redis_type]
    wrong = [key for key in sample.keys if key.type != keyspace.redis_type]
    types = ", ".join(sorted({key.type for key in wrong}))
    yield from _finding(
        sample,
        keyspace,
        wrong,
        "wrong-type",
        f"of type {types}, declared {keyspace.redis_type}",
        "find the program that writes them, and give its keys another name",
        "TYPE {key}",
    )
    yield from _ttl_findings(sample, keyspace)
    yield from _finding(
        sample,
        keyspace,
        [key for key in right if key.content is False],
        "undecodable",
        "undecodable as declared",
        "they read as misses: another program or version writes them, or the type has changed",
        _READ[keyspace.redis_type],
    )
    big = [key for key in sample.keys if (key.size or 0) > LARGE_KEY]
    largest = max((key.size or 0 for key in big), default=0)
    advice = "large keys delay all other commands while they are read, moved or deleted: split them"
    yield from _finding(
        sample,
        keyspace,
        big,
        "big-key",
        f"above 1 MiB, up to {format_size(largest)}",
        advice,
        "MEMORY USAGE {key} SAMPLES 0",
    )
    yield from _stream_findings(sample, keyspace, [key for key in right if key.type == "stream"])


def _ttl_findings(sample: KeyspaceSample, keyspace: Keyspace[Any]) -> Iterator[Finding]:
    lifetime = keyspace.lifetime
    with_ttl = [key for key in sample.keys if key.ttl >= 0]
    if isinstance(lifetime, Permanent):
        advice = f"something sets a TTL on keys that are declared permanent ({lifetime.reason})"
        yield from _finding(
            sample, keyspace, with_ttl, "unexpected-ttl", "with a TTL", advice, "PERSIST {key}"
        )
        return
    expire = f"PEXPIRE {{key}} {lifetime.milliseconds} LT" if lifetime.milliseconds else ""
    without_ttl = [key for key in sample.keys if key.ttl == -1]
    advice = "they were written without the catalogue; the next write through it sets a TTL"
    message = f"without a TTL, declared {lifetime}"
    yield from _finding(sample, keyspace, without_ttl, "no-ttl", message, advice, expire)
    if lifetime.milliseconds is not None:
        limit = lifetime.milliseconds + (_CLOCK_SKEW if isinstance(lifetime, Until) else 0)
        long = [key for key in with_ttl if key.ttl > limit]
        longest = max((key.ttl for key in long), default=0)
        message = f"with a TTL of up to {format_duration(longest)}, declared {lifetime}"
        advice = "another program or version sets it; the next write through the catalogue shortens it"
        yield from _finding(sample, keyspace, long, "ttl-above-policy", message, advice, expire)


def _stream_findings(
    sample: KeyspaceSample, keyspace: Keyspace[Any], streams: list[SampledKey]
) -> Iterator[Finding]:
    longest = keyspace.max_length
    if longest is not None:
        over = [key for key in streams if key.members > longest]
        most = max((key.members for key in over), default=0)
        message = f"with up to {most:,} entries, declared at most {longest:,}"
        advice = "another program adds to them: let it trim, or publish through the catalogue"
        trim = f"XTRIM {{key}} MAXLEN {longest}"
        yield from _finding(sample, keyspace, over, "long-stream", message, advice, trim)
    behind = [key for key in streams if any(group.pending or group.lag for group in key.groups)]
    pending = sum(group.pending for key in behind for group in key.groups)
    lag = sum(group.lag or 0 for key in behind for group in key.groups)
    message = f"whose groups have {pending:,} entries pending and {lag:,} not delivered"
    advice = "start more consumers, or see why they fail; entries of a group that no one reads stay pending"
    yield from _finding(sample, keyspace, behind, "stream-lag", message, advice, "XINFO GROUPS {key}")


def _finding(
    sample: KeyspaceSample,
    keyspace: Keyspace[Any],
    affected: list[SampledKey],
    kind: str,
    message: str,
    advice: str = "",
    command: str = "",
) -> Iterator[Finding]:
    """A finding about some keys of the sample, unless there are none; `command` is for one key."""
    if affected:
        examples = format_keys((key.key for key in affected), keyspace)
        names = {key.key for key in affected}
        whole = [each for each in examples if _TYPED.fullmatch(each) and each.encode() in names]
        yield make_finding(
            kind,
            message,
            advice,
            [command.format(key=each) for each in whole if command],
            keyspace=keyspace.pattern,
            keys=estimate_matches(len(affected), len(sample.keys), sample.count),
            examples=examples,
        )


def _largest(keys: list[SampledKey], keyspace: Keyspace[Any]) -> list[LargeKey]:
    by_size = sorted(keys, key=lambda key: key.size or 0, reverse=True)
    return [
        LargeKey(key=format_key(key.key, keyspace), size=key.size, members=key.members)
        for key in by_size[:_LARGEST_KEYS]
        if key.size is not None
    ]


def _ttl_bucket(ttl: int) -> str:
    """The bucket of a TTL in the histogram."""
    if ttl < 0:
        return NO_TTL
    return next((f"≤ {name}" for name, seconds in _TTL_LIMITS if ttl <= seconds * 1000), "longer")
