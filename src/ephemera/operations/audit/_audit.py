"""An audit: a live server against the catalogues of those who use it.

    report = await audit("redis://cache.internal", [catalogue])

It reads and never writes. All names are counted (`survey`), a sample of each space is looked at, and what is
not as declared becomes a finding. It takes at most its budget of time, says what it did not see and from
where to continue, and states what it did to the server's own statistics. Keys of sensitive spaces are never
shown, nor values of any.

A server that cannot be reached is an error; one that is lost on the way leaves a report of what was seen
until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ephemera.keyspace import RESERVED, Catalogue, Keyspace, Role, check_overlap
from ephemera.operations.audit import _keyspaces as audit_spaces
from ephemera.operations.audit import _servers as audit_servers
from ephemera.operations.audit import _unknown_keys as audit_unknown
from ephemera.operations.audit._coverage import coverage_of, disturbance_of, whole
from ephemera.operations.audit._findings import KINDS, WEIGHTS, Finding, found
from ephemera.operations.audit._report import AuditReport, Coverage
from ephemera.operations.inspect._decoder import decodable_as
from ephemera.operations.inspect._formatting import counted
from ephemera.operations.inspect._survey import Plan, Progress, Survey, opened, survey


async def audit(
    url: str,
    catalogues: Sequence[Catalogue],
    plan: Plan | None = None,
    *,
    role: Role | None = None,
    progress: Progress = lambda *_: None,
) -> AuditReport:
    """What is on a server, and what of it is not as declared; `role`: the only one that it carries."""
    spaces = list(_spaces((RESERVED, *catalogues)))
    async with opened(url) as nodes:
        seen = await survey(nodes, spaces, plan or Plan(), decodable_as, progress)
    return _report(seen, catalogues, role)


def _spaces(catalogues: Iterable[Catalogue]) -> Iterator[Keyspace[Any]]:
    """All spaces that have keys; those of different catalogues must not overlap."""
    earlier: list[Keyspace[Any]] = []
    for catalogue in dict.fromkeys(catalogues):
        kept = [space for space in catalogue if space.kind != "channel"]
        for space in kept:
            for other in earlier:
                check_overlap(space.template, space.kind, other)
        earlier += kept
    return iter(earlier)


def _report(seen: Survey, catalogues: Sequence[Catalogue], role: Role | None) -> AuditReport:
    order = {space: place for place, space in enumerate(space for each in catalogues for space in each)}
    declared = [
        (tally, tally.space) for tally in seen.tallies if tally.space is not None and tally.space in order
    ]
    declared.sort(key=lambda pair: order[pair[1]])
    coverage = coverage_of(seen)
    unknown = audit_unknown.state_of(seen, [space for _, space in declared])
    findings = [
        *audit_unknown.findings_of(unknown),
        *(each for tally, space in declared for each in audit_spaces.findings_of(tally, space)),
        *(each for tally, space in declared for each in _presence(tally.count, space, role, coverage)),
        *_about_servers(seen),
        *_about_coverage(coverage),
    ]
    return AuditReport(
        catalogues=[catalogue.name for catalogue in catalogues],
        seconds=seen.seconds,
        coverage=coverage,
        servers=[scan.facts for scan in seen.scans],
        spaces=[audit_spaces.state_of(tally, space, whole(seen, tally.count)) for tally, space in declared],
        unknown=unknown,
        findings=sorted(findings, key=_gravity),
        disturbance=disturbance_of(seen),
    )


def _presence(count: int, space: Keyspace[Any], role: Role | None, coverage: Coverage) -> Iterator[Finding]:
    """Keys where none should be, or none where some should."""
    belongs = role is None or space.role == role
    if count and not belongs:
        advice = f"this server was said to carry role {role} alone: is queue_url missing somewhere?"
        message = f"{counted(count, 'key')} of role {space.role}"
        yield found("misplaced", message, advice, space=space.pattern)
    if not count and belongs and coverage.complete:
        yield found("empty-space", "declared, and no key is there", space=space.pattern)


def _about_servers(seen: Survey) -> Iterator[Finding]:
    carried = [tally.space for tally in seen.tallies if tally.space is not None and tally.count]
    spaces = [space for space in carried if space.catalogue != RESERVED.name]
    for scan in seen.scans:
        yield from audit_servers.findings_of(scan.facts, spaces)


def _about_coverage(coverage: Coverage) -> Iterator[Finding]:
    if coverage.not_seen:
        yield found("incomplete", "; ".join(coverage.not_seen))


def _gravity(finding: Finding) -> tuple[int, int]:
    return WEIGHTS.index(finding.weight), list(KINDS).index(finding.kind)
