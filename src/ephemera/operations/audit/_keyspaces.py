"""A declared space against what was found of it: its state, and what is not as declared.

Only the sample is judged; a finding says how many keys of the whole space that stands for, and between which
bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ephemera.keyspace import Keyspace, Permanent, Until
from ephemera.operations.audit._findings import Finding, found
from ephemera.operations.audit._report import BigKey, SpaceState, StreamState
from ephemera.operations.inspect._formatting import shown_key, shown_keys, shown_life, shown_size
from ephemera.operations.inspect._probe import Probe
from ephemera.operations.inspect._sampling import Interval, share_of, total_of
from ephemera.operations.inspect._survey import Tally

BIG = 1024 * 1024
"""Bytes above which a key is called big."""

NO_END = "no end"
_LIVES = (
    ("1 min", 60),
    ("10 min", 600),
    ("1 h", 3600),
    ("1 d", 86_400),
    ("7 d", 604_800),
    ("30 d", 2_592_000),
)
LIVES = (*(f"≤ {name}" for name, _ in _LIVES), "longer", NO_END)
"""The classes of the histogram of lives, shortest first."""

_CLOCKS_DIFFER = 60_000  # milliseconds that `until` instants may be off: they come from other clocks
_LARGEST = 3


def state_of(tally: Tally, space: Keyspace[Any], estimated: Interval | None) -> SpaceState:
    """What was found of a space."""
    probes = tally.probes
    sizes = [probe.size for probe in probes if probe.size is not None]
    return SpaceState(
        pattern=space.pattern,
        catalogue=space.catalogue,
        kind=space.kind,
        role=space.role,
        lifetime=str(space.lifetime),
        sensitive=space.sensitive,
        keys=tally.count,
        estimated_keys=estimated,
        sampled=len(probes),
        size=total_of(sizes, tally.count) if sizes else None,
        ttl=dict(Counter(_life(probe.ttl) for probe in probes)),
        longest_ttl=max((probe.ttl for probe in probes if probe.ttl >= 0), default=None),
        types=dict(Counter(probe.type for probe in probes)),
        contents_read=sum(probe.content is not None for probe in probes),
        undecodable=sum(probe.content is False for probe in probes),
        too_large_to_read=sum(probe.unread for probe in probes),
        largest=_largest(probes, space),
        streams=[
            StreamState(key=shown_key(probe.key, space), length=probe.members, groups=probe.groups)
            for probe in probes
            if probe.type == "stream"
        ],
    )


def findings_of(tally: Tally, space: Keyspace[Any]) -> Iterator[Finding]:
    """What is wrong with the sampled keys of a space."""
    right = [probe for probe in tally.probes if probe.type == space.redis_type]
    wrong = [probe for probe in tally.probes if probe.type != space.redis_type]
    types = ", ".join(sorted({probe.type for probe in wrong}))
    yield from _some(tally, space, wrong, "wrong-type", f"of type {types}, declared {space.redis_type}")
    yield from _lives(tally, space)
    yield from _some(
        tally,
        space,
        [probe for probe in right if probe.content is False],
        "undecodable",
        "not readable as declared",
        "they read as misses: another program or version writes them, or the type has changed",
    )
    big = [probe for probe in tally.probes if (probe.size or 0) > BIG]
    largest = max((probe.size or 0 for probe in big), default=0)
    advice = "large keys hold up all others while they are read, moved or deleted: split them"
    yield from _some(tally, space, big, "big-key", f"above 1 MiB, up to {shown_size(largest)}", advice)
    yield from _streams(tally, space, [probe for probe in right if probe.type == "stream"])


def _lives(tally: Tally, space: Keyspace[Any]) -> Iterator[Finding]:
    lifetime = space.lifetime
    ending = [probe for probe in tally.probes if probe.ttl >= 0]
    if isinstance(lifetime, Permanent):
        advice = f"something puts an end to what is declared permanent ({lifetime.reason})"
        yield from _some(tally, space, ending, "unexpected-ttl", "with an end", advice)
        return
    endless = [probe for probe in tally.probes if probe.ttl == -1]
    advice = "a write that does not go through the catalogue; the next one that does gives them an end"
    yield from _some(tally, space, endless, "no-ttl", f"without an end, declared {lifetime}", advice)
    if lifetime.milliseconds is not None:
        limit = lifetime.milliseconds + (_CLOCKS_DIFFER if isinstance(lifetime, Until) else 0)
        long = [probe for probe in ending if probe.ttl > limit]
        longest = max((probe.ttl for probe in long), default=0)
        message = f"with up to {shown_life(longest)} to live, declared {lifetime}"
        yield from _some(tally, space, long, "ttl-above-policy", message)


def _streams(tally: Tally, space: Keyspace[Any], streams: list[Probe]) -> Iterator[Finding]:
    longest = space.max_length
    if longest is not None:
        over = [probe for probe in streams if probe.members > longest]
        most = max((probe.members for probe in over), default=0)
        message = f"with up to {most:,} entries, declared at most {longest:,}"
        yield from _some(tally, space, over, "long-stream", message)
    behind = [probe for probe in streams if any(group.pending or group.lag for group in probe.groups)]
    pending = sum(group.pending for probe in behind for group in probe.groups)
    lag = sum(group.lag or 0 for probe in behind for group in probe.groups)
    message = f"whose groups have {pending:,} entries pending and {lag:,} not delivered"
    yield from _some(tally, space, behind, "stream-lag", message)


def _some(
    tally: Tally, space: Keyspace[Any], guilty: list[Probe], kind: str, message: str, advice: str = ""
) -> Iterator[Finding]:
    """A finding about some keys of the sample, unless there are none."""
    if guilty:
        yield found(
            kind,
            message,
            advice,
            space=space.pattern,
            keys=share_of(len(guilty), len(tally.probes), tally.count),
            examples=shown_keys((probe.key for probe in guilty), space),
        )


def _largest(probes: list[Probe], space: Keyspace[Any]) -> list[BigKey]:
    by_size = sorted(probes, key=lambda probe: probe.size or 0, reverse=True)
    return [
        BigKey(key=shown_key(probe.key, space), size=probe.size, members=probe.members)
        for probe in by_size[:_LARGEST]
        if probe.size is not None
    ]


def _life(ttl: int) -> str:
    """The class of a life in the histogram."""
    if ttl < 0:
        return NO_END
    return next((f"≤ {name}" for name, seconds in _LIVES if ttl <= seconds * 1000), "longer")
