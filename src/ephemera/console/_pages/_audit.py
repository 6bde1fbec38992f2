"""Audit: run it, follow its progress, read and export its report."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import msgspec
from nicegui import ui

from ephemera.console._audit_markdown import as_markdown
from ephemera.console._audit_runner import ServerAudit
from ephemera.console._components import Column, Empty, drawer, facts, section, table, text_block, tile, tiles
from ephemera.console._components._cards import Tile, Tone
from ephemera.console._view import ConsolePage, View
from ephemera.operations.audit import AuditReport, Finding, Severity
from ephemera.operations.formatting import format_count, format_size

_TONES: dict[str, Tone] = {"problem": "bad", "warning": "warn", "note": "info"}
_PHASES = {"": "Starting", "names": "Counting names", "samples": "Inspecting samples"}


def build(view: View) -> None:
    """Draw a section for each server."""
    for audit in view.console.audits.servers:
        _Part(view, audit)


class _Part:
    """One server's audit."""

    def __init__(self, view: View, audit: ServerAudit) -> None:
        self._view = view
        self._audit = audit
        self._shown: AuditReport | None = None
        self._panel = drawer()
        what = "Compares the server with its catalogues. It only reads: all names, and a sample of values."
        name = audit.service.name if audit.role is None else f"{audit.service.name}, {audit.role}"
        several = len(view.console.audits.servers) > 1
        of = f" of {name}" if several else ""
        with section(f"Audit of {audit.address} ({name})", what) as head:
            with head:
                self._run = ui.button("Run audit", icon="play_arrow", on_click=self._start)
                self._run.props("unelevated no-caps").classes("e-button")
                self._json = self._export("JSON", "json", _as_json)
                self._markdown = self._export("Markdown", "md", as_markdown)
            self._bar = ui.linear_progress(0, show_value=False).props(
                'rounded instant-feedback size="10px" aria-label="Audit"'
            )
            self._bar.classes("e-progress")
            self._status = ui.label("Not run yet.").classes("e-note e-stand")
        self._read = ui.element("div").classes("e-stack")
        self._read.set_visibility(not several)  # several empty reports would only take up room
        with self._read:
            self._draw_report(of)
        for each in (self._findings, self._keyspaces):
            each.show([])  # until there is a report
        self._timer = view.every(0.5, self._refresh)

    def _draw_report(self, of: str) -> None:
        with tiles():
            self._problems, self._warnings = tile("Problems"), tile("Warnings")
            self._notes, self._seen = tile("Notes"), tile("Names seen")
        with section(f"Findings{of}", "Most severe first."):
            self._findings = table(
                [
                    Column("severity", "", "badge"),
                    Column("kind", "Finding"),
                    Column("where", "Where", "mono"),
                    Column("what", "What"),
                    Column("advice", "What to do"),
                ],
                empty=Empty(
                    "No findings",
                    "Run the audit; deviations from the declarations appear here.",
                    "fact_check",
                ),
                on_open=self._open,
            )
        with section(f"Keyspaces{of}"):
            self._keyspaces = table(
                [
                    Column("keyspace", "Keyspace", "mono"),
                    Column("kind", "Kind"),
                    Column("keys", "Keys", "number"),
                    Column("size", "Bytes", "number"),
                    Column("sampled", "Sampled", "number"),
                ],
                empty=Empty("No report yet", "Run the audit.", "fact_check"),
                search=True,
            )

    def _export(self, label: str, suffix: str, render: Any) -> ui.button:
        async def save() -> None:
            report = self._audit.report
            if report is not None:
                at = datetime.fromtimestamp(self._audit.ended, UTC)
                ui.download.content(render(report), f"audit-{at:%Y%m%d-%H%M%S}.{suffix}")

        button = ui.button(label, icon="download", on_click=save).props("outline no-caps")
        button.classes("e-button").disable()
        return button

    async def _start(self) -> None:
        await self._view.act(
            "audit.run", self._audit.address, self._audit.run(), changes=False,
            done=lambda report: f"Audit finished: {format_count(len(report.findings), 'finding')}.",
        )  # fmt: skip
        await self._timer.now()

    def _refresh(self) -> None:
        audit = self._audit
        self._run.set_enabled(not audit.running)
        if audit.running:
            self._bar.value = round(audit.share, 3)
            of = f": {audit.done:,} of {audit.total:,}" if audit.total else ""
            self._status.text = f"{_PHASES.get(audit.phase, audit.phase)}{of}"
        elif audit.report is not None:
            self._bar.value = 1
            at = datetime.fromtimestamp(audit.ended, UTC)
            part = (
                "complete"
                if audit.report.coverage.complete
                else "incomplete: " + "; ".join(audit.report.coverage.not_seen)
            )
            self._status.text = f"Finished {at:%H:%M:%S} UTC after {audit.report.seconds:.1f} s, {part}."
        if audit.report is not None and audit.report is not self._shown:
            self._show(audit.report)

    def _show(self, report: AuditReport) -> None:
        self._shown = report
        self._read.set_visibility(True)
        self._json.enable()
        self._markdown.enable()
        counts = Counter(finding.severity for finding in report.findings)
        figures: dict[Severity, Tile] = {
            "problem": self._problems, "warning": self._warnings, "note": self._notes,
        }  # fmt: skip
        for severity, figure in figures.items():
            found = counts[severity]
            figure.show(f"{found:,}", tone=_TONES[severity] if found else "good")
        self._seen.show(f"{report.coverage.names:,}", f"of {format_count(report.coverage.keys, 'key')}")
        self._findings.show([_finding_row(*each) for each in enumerate(report.findings)])
        self._keyspaces.show(
            [
                {
                    "id": f"{keyspace.catalogue}/{keyspace.pattern}",
                    "keyspace": keyspace.pattern,
                    "kind": keyspace.kind,
                    "keys": f"{keyspace.keys:,}",
                    "keys_sort": keyspace.keys,
                    "size": format_size(keyspace.size.value) if keyspace.size else "—",
                    "size_sort": keyspace.size.value if keyspace.size else -1,
                    "sampled": f"{keyspace.sampled:,}",
                    "sampled_sort": keyspace.sampled,
                }
                for keyspace in report.keyspaces
                if self._audit.role in (None, keyspace.role)
            ]
        )

    def _open(self, row: dict[str, Any]) -> None:
        with self._panel.open(row["kind"]):
            facts([("Severity", row["severity"]), ("Where", row["where"]), ("What", row["what"])])
            facts([("Why it matters", row["why"])])
            if row["advice"]:
                facts([("What to do", row["advice"])])
            if row["commands"]:
                text_block(row["commands"])
            if row["examples"]:
                text_block(row["examples"])


def _finding_row(number: int, finding: Finding) -> dict[str, Any]:
    about = ""
    if finding.keys is not None and finding.keyspace is not None:
        about = format_count(round(finding.keys.value), "key") + " "
    return {
        "id": number,
        "severity": finding.severity,
        "severity_tone": _TONES[finding.severity],
        "severity_sort": number,
        "kind": finding.kind,
        "where": finding.keyspace or finding.server or "",
        "what": about + finding.message,
        "why": finding.why,
        "advice": finding.advice,
        "commands": "\n".join(finding.commands),
        "examples": "\n".join(finding.examples),
    }


def _as_json(report: AuditReport) -> str:
    return msgspec.json.format(msgspec.json.encode(report)).decode()


PAGE = ConsolePage("/audit", "Audit", "fact_check", build)
