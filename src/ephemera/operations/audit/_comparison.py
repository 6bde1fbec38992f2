"""What has changed between two reports: growth of each keyspace, new and gone findings and shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

import msgspec

from ephemera.operations.audit._report import AuditReport, Comparison, Finding, KeyspaceGrowth

_DAY = 86_400.0
_SHOWN = 0.01  # a change by less of what there was is not one


def compare_reports(earlier: AuditReport, now: AuditReport) -> Comparison:
    """Compare a report with an earlier one of the same servers."""
    days = (_time(now) - _time(earlier)).total_seconds() / _DAY
    before, after = _totals(earlier), _totals(now)
    changes = (
        KeyspaceGrowth(
            pattern=pattern,
            keys_before=before.get(pattern, (0, 0.0))[0],
            keys=after.get(pattern, (0, 0.0))[0],
            size_before=before.get(pattern, (0, 0.0))[1],
            size=after.get(pattern, (0, 0.0))[1],
        )
        for pattern in {**before, **after}
    )
    known, found = _subjects(earlier.findings), _subjects(now.findings)
    return Comparison(
        at=earlier.at,
        days=days,
        memory_before=sum(server.used_memory for server in earlier.servers),
        memory=sum(server.used_memory for server in now.servers),
        changes=sorted(filter(_matters, changes), key=lambda each: each.size_before - each.size),
        new_findings=[text for subject, text in found.items() if subject not in known],
        gone_findings=[text for subject, text in known.items() if subject not in found],
    )


def read_report(data: bytes) -> AuditReport:
    """An earlier report, as `--json` printed it."""
    return msgspec.json.decode(data, type=AuditReport)


def _time(report: AuditReport) -> datetime:
    return datetime.fromisoformat(report.at)


def _totals(report: AuditReport) -> Mapping[str, tuple[int, float]]:
    """Keys and bytes by pattern."""
    declared = ((each.pattern, each.keys, each.size) for each in report.keyspaces)
    shapes = ((each.pattern or each.reason or "", each.keys, each.size) for each in report.unknown.shapes)
    return {pattern: (keys, size.value if size else 0.0) for pattern, keys, size in (*declared, *shapes)}


def _matters(change: KeyspaceGrowth) -> bool:
    """Whether a keyspace has changed by more than a sample's noise."""
    keys = abs(change.keys - change.keys_before) > _SHOWN * change.keys_before
    return keys or abs(change.size - change.size_before) > 10 * _SHOWN * change.size_before


def _subjects(findings: Iterable[Finding]) -> dict[tuple[str, str], str]:
    return {
        (each.kind, each.keyspace or each.server or ""): text
        for each, text in ((each, _line(each)) for each in findings)
    }


def _line(finding: Finding) -> str:
    return ": ".join(_parts(finding))


def _parts(finding: Finding) -> Iterator[str]:
    yield finding.kind
    if finding.keyspace or finding.server:
        yield finding.keyspace or finding.server or ""
    yield finding.message
