"""A report as one HTML file: findings, memory and TTLs as charts, undeclared keys.

It loads nothing: styles and charts (SVG) are in the file, so it can be attached to a ticket or kept with a
release. It follows the reader's light or dark theme, and every text of the server is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ephemera.operations.audit._keyspaces import TTL_BUCKETS
from ephemera.operations.audit._report import AuditReport, Finding, KeyspaceReport, UnknownShape
from ephemera.operations.audit._report_tables import ReportTable, report_tables, servers_table
from ephemera.operations.formatting import format_count, format_size

_BAR = 18  # pixels of a bar's height
_WIDTH = 240  # pixels of the longest bar: with its figure it fits a phone
_MAX_BARS = 30
_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .35rem .7rem; border-bottom: 1px solid #8884 }
code, pre { font: 13px/1.5 ui-monospace, monospace; overflow-wrap: anywhere }
pre { white-space: pre-wrap; margin: 0 }
rect { fill: #3b82f6 } text { fill: currentColor; font-size: 12px }
@media (max-width: 40rem) { th, td { display: block } th, td:has(+ td) { border: 0; padding-bottom: 0 } }
@media (max-width: 40rem) { thead { display: none } td[data-name]::before { content: attr(data-name) ": " } }
.problem { color: #dc2626 } .warning { color: #b45309 } .note, .accepted { opacity: .7 }
"""


def as_html(report: AuditReport) -> str:
    """The report as a self-contained HTML page."""
    name = ", ".join(report.catalogues or [server.name for server in report.servers])
    seen = report.coverage
    part = "all" if seen.complete else "a part"
    summary = f"{format_count(seen.names, 'name')} ({part} of {format_count(seen.keys, 'key')}), {report.at}"
    declared = [
        f"<h2>TTLs of sampled keys</h2>{_bars(_ttls(report.keyspaces), sizes=False)}",
    ]
    sections = [
        f"<h1>Audit of {escape(name)}</h1><p>{escape(summary)}</p>",
        f"<h2>Findings</h2>{_findings(report.findings)}",
        f"<h2>Memory</h2>{_bars(_memory(report))}",
        *(declared if report.catalogues else []),
        f"<h2>Undeclared keys</h2>{_bars(_undeclared(report), sizes=False)}",
        *map(_table, (servers_table(report.servers), *report_tables(report))),
        *(f"<p>Not seen: {escape(each)}.</p>" for each in seen.not_seen),
    ]
    title = f"<title>Audit of {escape(name)}</title><style>{_STYLE}</style>"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width">{title}'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{"".join(sections)}</body></html>\n'


def _table(table: ReportTable) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    rows = "".join(f"<tr>{''.join(map(_cell, table.columns, row))}</tr>" for row in table.rows)
    return f"<h2>{escape(table.title)}</h2><table><thead><tr>{head}</tr></thead>{rows}</table>"


def _cell(name: str, text: str) -> str:
    """A cell that says what it is, for narrow screens where the head is hidden."""
    return f'<td data-name="{escape(name)}">{escape(text)}</td>'


def _findings(findings: Iterable[Finding]) -> str:
    rows = "".join(map(_finding, findings))
    return f"<table>{rows}</table>" if rows else "<p>None.</p>"


def _finding(finding: Finding) -> str:
    about = finding.keyspace or finding.server or ""
    lines = [f"<code>{escape(about)}</code>"] if about else []
    lines += [escape(text) for text in (finding.message, finding.why, finding.advice) if text]
    if finding.accepted:
        lines.append(f"accepted {escape(finding.accepted)}")
    commands = "".join(f"<pre>{escape(command)}</pre>" for command in finding.commands)
    style = "accepted" if finding.accepted else finding.severity
    return f'<tr><th class="{style}">{escape(finding.kind)}</th><td>{"<br>".join(lines)}{commands}</td></tr>'


def _bars(values: Sequence[tuple[str, float]], *, sizes: bool = True) -> str:
    """A bar chart with a label and a figure on each bar."""
    if not values:
        return "<p>None.</p>"
    most = max(value for _, value in values) or 1
    rows = []
    for label, value in values:
        figure = format_size(value) if sizes else f"{value:,.0f}"
        width = max(1, round(_WIDTH * value / most))
        chart = (
            f'<svg width="{_WIDTH + 80}" height="{_BAR}" role="img" aria-label="{escape(figure)}">'
            f'<rect width="{width}" height="{_BAR - 4}" rx="2"/>'
            f'<text x="{width + 6}" y="{_BAR - 6}">{escape(figure)}</text></svg>'
        )
        rows.append(f"<tr><td><code>{escape(label)}</code></td><td>{chart}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _memory(report: AuditReport) -> list[tuple[str, float]]:
    """The bytes of declared and undeclared keys, largest first."""
    sizes = [(each.pattern, each.size) for each in report.keyspaces if each.keys]
    sizes += [(f"{_name(each)}, undeclared", each.size) for each in report.unknown.shapes]
    known = [(name, size.value) for name, size in sizes if size is not None]
    return sorted(known, key=lambda each: -each[1])[:_MAX_BARS]


def _name(shape: UnknownShape) -> str:
    return f"{shape.pattern or shape.reason}{f' ({shape.library})' if shape.library else ''}"


def _ttls(keyspaces: Iterable[KeyspaceReport]) -> list[tuple[str, float]]:
    totals = dict.fromkeys(TTL_BUCKETS, 0.0)
    for keyspace in keyspaces:
        for bucket, keys in keyspace.ttl.items():
            totals[bucket] += keys
    return [*totals.items()] if any(totals.values()) else []


def _undeclared(report: AuditReport) -> list[tuple[str, float]]:
    return [(_name(shape), shape.keys) for shape in report.unknown.shapes[:_MAX_BARS]]
