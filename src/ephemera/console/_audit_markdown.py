"""An audit report as a Markdown document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ephemera.operations.audit import AuditReport, Finding, report_tables, servers_table
from ephemera.operations.formatting import format_count, format_size
from ephemera.operations.survey import Interval


def as_markdown(report: AuditReport) -> str:
    """The whole report; keys and messages are escaped so that none becomes markup."""
    seen = report.coverage
    part = "all" if seen.complete else "a part"
    counted = format_count(seen.names, "name")
    parts = [
        f"# Audit of {', '.join(report.catalogues or [server.name for server in report.servers])}",
        f"{counted} ({part} of {format_count(seen.keys, 'key')}) in {report.seconds:.1f} s.",
        "## Findings",
        _table(
            ("severity", "finding", "where", "what", "why", "advice", "commands"),
            map(_finding, report.findings),
        )
        if report.findings
        else "No findings.",
        "## Declared keyspaces",
        _table(
            ("keyspace", "kind", "role", "lifetime", "keys", "bytes", "sampled"),
            (
                (
                    _code(each.pattern),
                    each.kind,
                    each.role,
                    each.lifetime,
                    f"{each.keys:,}",
                    _size(each.size),
                    f"{each.sampled:,}",
                )
                for each in report.keyspaces
            ),
        ),
    ]
    if report.unknown.keys:
        shapes = (
            (
                _code(each.pattern or each.reason or ""),
                each.library or "",
                f"{each.keys:,}",
                _size(each.size),
                ", ".join(each.types),
            )
            for each in report.unknown.shapes
        )
        parts += [
            f"## {format_count(report.unknown.keys, 'undeclared key')}",
            _table(("shape", "library", "keys", "bytes", "types"), shapes),
        ]
    for table in (servers_table(report.servers), *report_tables(report)):
        rows = ((_code(row[0]), *map(_plain, row[1:])) for row in table.rows)
        parts += [f"## {_plain(table.title)}", _table(table.columns, rows)]
    if seen.not_seen:
        parts += ["## Not seen", "\n".join(f"- {_plain(each)}" for each in seen.not_seen)]
    return "\n\n".join(parts) + "\n"


def _finding(finding: Finding) -> tuple[str, ...]:
    where = finding.keyspace or finding.server or ""
    examples = f" ({', '.join(map(_code, finding.examples))})" if finding.examples else ""
    keys = ""
    if finding.keys is not None and finding.keyspace is not None:
        keys = format_count(round(finding.keys.value), "key") + " "
    about = keys + _plain(finding.message) + examples
    return (
        finding.severity,
        finding.kind,
        _code(where) if where else "",
        about,
        _plain(finding.why),
        _plain(finding.advice),
        "<br>".join(map(_code, finding.commands)),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _size(size: Interval | None) -> str:
    if size is None:
        return ""
    return format_size(size.value) if size.exact else f"about {format_size(size.value)}"


def _code(text: str) -> str:
    """Data as code; its backticks and bars must not end the cell."""
    kept = text.replace("`", "'").replace("|", "/")
    return f"`{kept}`" if kept else ""


def _plain(text: str) -> str:
    marks = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]<>|#"})
    return " ".join(text.translate(marks).split())
