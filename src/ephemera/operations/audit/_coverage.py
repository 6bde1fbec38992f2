"""How much of a server a report speaks of, what it left out, and what looking did to the server."""

from __future__ import annotations

from collections.abc import Iterator

from ephemera.operations.audit._report import Coverage, Disturbance
from ephemera.operations.inspect._sampling import Interval, share_of
from ephemera.operations.inspect._survey import Survey


def coverage_of(seen: Survey) -> Coverage:
    """What was looked at, and in words what was not."""
    return Coverage(
        names=seen.names,
        keys=seen.keys,
        complete=seen.complete,
        resumed=seen.resumed,
        cursor=seen.rest,
        not_seen=list(_not_seen(seen)),
        lost=[scan.facts.name for scan in seen.scans if scan.problem is not None],
    )


def disturbance_of(seen: Survey) -> Disturbance:
    """What the server's own statistics have of the audit."""
    return Disturbance(
        lookups=sum(prober.lookups for prober in seen.probers),
        looked_into=sum(prober.looked_into for prober in seen.probers),
        access_times_kept=all(prober.no_touch for prober in seen.probers),
    )


def whole(seen: Survey, count: int) -> Interval | None:
    """How many keys of a space a server has, by how many were among those names that were seen.

    None when all were seen. Names come in the order of a hash, so those seen are a fair sample.
    """
    total = max(seen.keys, seen.names)
    if seen.complete or seen.resumed or not seen.names:
        return None
    return share_of(count, seen.names, total)


def _not_seen(seen: Survey) -> Iterator[str]:
    if seen.resumed:
        yield "the names before the cursor that this audit continued from"
    left = [scan for scan in seen.scans if not scan.done]
    for scan in left:
        if scan.problem is not None:
            yield f"the rest of the names of {scan.facts.name}: {scan.problem}"
    if any(scan.problem is None for scan in left):
        share = min(1.0, seen.names / seen.keys) if seen.keys and not seen.resumed else None
        part = f" (about {1 - share:.0%} of them)" if share is not None else ""
        yield f"the names after the cursor{part}: the budget was used up"
    if seen.unprobed:
        yield f"{seen.unprobed:,} of the sampled keys: the budget was used up"
    for prober in seen.probers:
        for command, problem in prober.refused.items():
            yield f"what {command} would have said on {prober.node.endpoint}: {problem}"
    for scan in seen.scans:
        if scan.facts.other_databases:
            others = ", ".join(f"{name} ({keys:,} keys)" for name, keys in scan.facts.other_databases.items())
            yield f"the other databases of {scan.facts.name}: {others}"
