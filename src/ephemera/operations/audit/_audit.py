"""Run a survey, and turn its result into a report: coverage, impact and findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

import msgspec

from ephemera.keyspace import RESERVED, Catalogue, Keyspace, Role, check_overlap
from ephemera.operations.audit._acceptance import Acceptance, accept, accept_unknown
from ephemera.operations.audit._decoder import decodability_reader
from ephemera.operations.audit._keyspaces import keyspace_findings, keyspace_report
from ephemera.operations.audit._kinds import KINDS, SEVERITIES
from ephemera.operations.audit._report import (
    AuditReport,
    Coverage,
    Finding,
    Impact,
    make_finding,
)
from ephemera.operations.audit._servers import KeyUse, server_findings
from ephemera.operations.audit._slow_commands import slow_commands
from ephemera.operations.audit._unknown_keys import (
    read_signs,
    undeclared_uses,
    unknown_findings,
    unknown_keys,
)
from ephemera.operations.formatting import format_count
from ephemera.operations.libraries import needs_content
from ephemera.operations.survey import (
    Interval,
    ProgressCallback,
    Survey,
    SurveyOptions,
    estimate_matches,
    open_servers,
    survey,
)


async def audit(
    url: str,
    catalogues: Sequence[Catalogue],
    options: SurveyOptions | None = None,
    *,
    role: Role | None = None,
    neighbours: Sequence[Catalogue] = (),
    acceptances: Sequence[Acceptance] = (),
    slow_log: bool = False,
    on_progress: ProgressCallback = lambda *_: None,
) -> AuditReport:
    """Audit the server at a URL against these catalogues; `role`: the only role that it carries.

    `neighbours` are catalogues of other services on it: their keys are known, and count for its settings, but
    are not judged. Findings that `acceptances` cover are marked as accepted; see `read_acceptances`. With
    `slow_log` the servers' slow logs are read, too, which the generated monitoring user may not: they have
    the arguments of every client.
    """
    keyspaces = _keyspaces((RESERVED, *catalogues, *neighbours))
    async with open_servers(url) as servers:
        options = options or SurveyOptions()
        signs = read_signs if options.sample else None
        result = await survey(
            servers, keyspaces, options, decodability_reader, on_progress, signs, needs_content
        )
        nodes = [scan.node for scan in result.scans if slow_log and not scan.error]
        slow = await slow_commands(nodes, keyspaces, result.shapes.shapes())
    return msgspec.structs.replace(_report(result, catalogues, role, acceptances), slow_commands=slow)


def coverage_of(result: Survey) -> Coverage:
    """What a survey saw, and in words what it did not."""
    return Coverage(
        names=result.names,
        keys=result.keys,
        complete=result.complete,
        resumed=result.resumed,
        cursor=result.cursor,
        not_seen=list(_not_seen(result)),
        lost=[
            scan.info.name
            for scan, inspector in zip_longest(result.scans, result.inspectors)
            if scan.error is not None or (inspector is not None and inspector.lost)
        ],
    )


def estimate_all_keys(result: Survey, count: int) -> Interval | None:
    """Estimate a keyspace's keys on the whole server from those counted in an incomplete scan.

    None when all were seen. SCAN returns names in hash order, so those seen are a random sample.
    """
    total = max(result.keys, result.names)
    if result.complete or result.resumed or not result.names:
        return None
    return estimate_matches(count, result.names, total)


def _keyspaces(catalogues: Iterable[Catalogue]) -> list[Keyspace[Any]]:
    """All keyspaces that have keys; those of different catalogues must not overlap."""
    found: list[Keyspace[Any]] = []
    for catalogue in dict.fromkeys(catalogues):
        own = [keyspace for keyspace in catalogue if keyspace.kind != "channel"]
        for keyspace in own:
            for other in found:
                check_overlap(keyspace.template, keyspace.kind, other)
        found += own
    return found


def _report(
    result: Survey, catalogues: Sequence[Catalogue], role: Role | None, acceptances: Sequence[Acceptance]
) -> AuditReport:
    now = datetime.now(UTC)
    order = {
        keyspace: position
        for position, keyspace in enumerate(keyspace for each in catalogues for keyspace in each)
    }
    declared = [
        (sample, sample.keyspace)
        for sample in result.samples
        if sample.keyspace is not None and sample.keyspace in order
    ]
    declared.sort(key=lambda pair: order[pair[1]])
    coverage = coverage_of(result)
    unknown = unknown_keys(result, [keyspace for _, keyspace in declared])
    unknown = accept_unknown(unknown, acceptances, now.date())
    findings = [
        *unknown_findings(unknown),
        *(each for sample, keyspace in declared for each in keyspace_findings(sample, keyspace)),
        *(
            each
            for sample, keyspace in declared
            for each in _presence_findings(sample.count, keyspace, role, coverage)
        ),
        *_server_findings(result, undeclared_uses(unknown)),
        *_coverage_findings(coverage),
    ]
    return AuditReport(
        catalogues=[catalogue.name for catalogue in catalogues],
        seconds=result.seconds,
        coverage=coverage,
        servers=[scan.info for scan in result.scans],
        keyspaces=[
            keyspace_report(sample, keyspace, estimate_all_keys(result, sample.count))
            for sample, keyspace in declared
        ],
        unknown=unknown,
        findings=sorted(accept(findings, acceptances, now.date()), key=_sort_key),
        impact=_impact(result),
        at=now.isoformat(timespec="seconds"),
    )


def _impact(result: Survey) -> Impact:
    return Impact(
        lookups=sum(inspector.lookups for inspector in result.inspectors),
        contents_read=sum(inspector.contents_read for inspector in result.inspectors),
        access_times_kept=all(inspector.no_touch for inspector in result.inspectors),
    )


def _presence_findings(
    count: int, keyspace: Keyspace[Any], role: Role | None, coverage: Coverage
) -> Iterator[Finding]:
    """Keys where none should be, or none where some should."""
    belongs = role is None or keyspace.role == role
    if count and not belongs:
        advice = f"this server should carry only role {role}: is queue_url missing somewhere?"
        message = f"{format_count(count, 'key')} of role {keyspace.role}"
        commands = [f"ephemera server-config --role {keyspace.role} > {keyspace.role}.conf"]
        yield make_finding("misplaced", message, advice, commands, keyspace=keyspace.pattern)
    if not count and belongs and coverage.complete:
        message = f"declared, but has none of the {format_count(coverage.names, 'key')} seen"
        advice = "remove the declaration, or find the server that holds its keys"
        commands = [f"ephemera audit --url OTHER_URL --catalogue {keyspace.catalogue}"]
        yield make_finding("empty-keyspace", message, advice, commands, keyspace=keyspace.pattern)


def _server_findings(result: Survey, undeclared: Sequence[KeyUse]) -> Iterator[Finding]:
    present = [sample.keyspace for sample in result.samples if sample.keyspace is not None and sample.count]
    keyspaces = [keyspace for keyspace in present if keyspace.catalogue != RESERVED.name]
    for scan in result.scans:
        yield from server_findings(scan.info, keyspaces, undeclared)


def _coverage_findings(coverage: Coverage) -> Iterator[Finding]:
    if coverage.not_seen:
        resume = f" --cursor {coverage.cursor}" if coverage.cursor else ""
        advice = "read the rest: with more time, as a user who may, or with another database in the URL"
        commands = [f"ephemera audit --url URL --budget 10m{resume}"]
        yield make_finding("incomplete", "; ".join(coverage.not_seen), advice, commands)


def _sort_key(finding: Finding) -> tuple[bool, int, int]:
    return finding.accepted is not None, SEVERITIES.index(finding.severity), list(KINDS).index(finding.kind)


def _not_seen(result: Survey) -> Iterator[str]:
    if result.resumed:
        yield "the names before the cursor that this audit resumed from"
    unfinished = [scan for scan in result.scans if not scan.done]
    for scan in unfinished:
        if scan.error is not None:
            yield f"the rest of the names of {scan.info.name}: {scan.error}"
    if any(scan.error is None for scan in unfinished):
        share = min(1.0, result.names / result.keys) if result.keys and not result.resumed else None
        part = f" (about {1 - share:.0%} of them)" if share is not None else ""
        yield f"the names after the cursor{part}: the time budget was used up"
    if result.uninspected:
        lost = next((inspector.lost for inspector in result.inspectors if inspector.lost), None)
        yield f"{result.uninspected:,} of the sampled keys: {lost or 'the time budget was used up'}"
    for inspector in result.inspectors:
        for command, error in inspector.failures.items():
            yield f"the results of {command} on {inspector.node.endpoint}: {error}"
    for scan in result.scans:
        if scan.info.other_databases:
            others = ", ".join(f"{name} ({keys:,} keys)" for name, keys in scan.info.other_databases.items())
            yield f"the other databases of {scan.info.name}: {others}"
