"""Audit: run one, watch it, read its report, take it along."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from nicegui import ui

from ephemera.console._audit_markdown import as_markdown
from ephemera.console._audit_runner import ServerAudit
from ephemera.console._components import Column, Empty, drawer, facts, section, table, text_block, tile, tiles
from ephemera.console._components._cards import Tone
from ephemera.console._page import Page
from ephemera.console._view import View
from ephemera.operations.audit import AuditReport, Finding
from ephemera.operations.formatting import format_count, format_size

_TONES: dict[str, Tone] = {"problem": "bad", "warning": "warn", "note": "info"}
_PHASES = {"": "beginning", "names": "counting names", "samples": "looking at samples"}


def build(view: View) -> None:
    """Draw a part for each server."""
    for audit in view.console.audits.servers:
        _Part(view, audit)


class _Part:
    """One server's audit."""

    def __init__(self, view: View, audit: ServerAudit) -> None:
        self._view = view
        self._audit = audit
        self._shown: AuditReport | None = None
        self._panel = drawer()
        what = (
            "A live server against its catalogues. It only reads: names by SCAN, and a sample of each space."
        )
        name = audit.place.name if audit.role is None else f"{audit.place.name}, {audit.role}"
        several = len(view.console.audits.servers) > 1
        of = f" of {name}" if several else ""
        with section(f"Audit of {audit.address} ({name})", what) as head:
            with head:
                self._run = ui.button("Run the audit", icon="play_arrow", on_click=self._start)
                self._run.props("unelevated no-caps").classes("e-button")
                self._json = self._export("JSON", "json", _as_json)
                self._markdown = self._export("Markdown", "md", as_markdown)
            self._bar = ui.linear_progress(0, show_value=False).props(
                'rounded instant-feedback size="10px" aria-label="Audit"'
            )
            self._bar.classes("e-progress")
            self._stand = ui.label("It has not been run.").classes("e-note e-stand")
        self._read = ui.element("div").classes("e-stack")
        self._read.set_visibility(not several)  # many empty ones would hide each other
        with self._read:
            self._draw_report(of)
        for each in (self._findings, self._spaces):
            each.show([])  # until there is a report
        self._following = view.every(0.5, self._refresh)

    def _draw_report(self, of: str) -> None:
        with tiles():
            self._problems, self._warnings = tile("Problems"), tile("Warnings")
            self._notes, self._seen = tile("Notes"), tile("Names seen")
        with section(f"Findings{of}", "Gravest first."):
            self._findings = table(
                [
                    Column("weight", "", "badge"),
                    Column("kind", "Finding"),
                    Column("where", "Where", "mono"),
                    Column("what", "What"),
                    Column("advice", "What to do"),
                ],
                empty=Empty(
                    "No findings", "Run the audit; what is not as declared shows up here.", "fact_check"
                ),
                on_open=self._open,
            )
        with section(f"Spaces{of} as they were found"):
            self._spaces = table(
                [
                    Column("space", "Keyspace", "mono"),
                    Column("kind", "Kind"),
                    Column("keys", "Keys", "number"),
                    Column("size", "Bytes", "number"),
                    Column("sampled", "Looked at", "number"),
                ],
                empty=Empty("No report yet", "Run the audit.", "fact_check"),
                search=True,
            )

    def _export(self, label: str, ending: str, made: Any) -> ui.button:
        async def save() -> None:
            report = self._audit.report
            if report is not None:
                at = datetime.fromtimestamp(self._audit.ended, UTC)
                ui.download.content(made(report), f"audit-{at:%Y%m%d-%H%M%S}.{ending}")

        button = ui.button(label, icon="download", on_click=save).props("outline no-caps")
        button.classes("e-button").disable()
        return button

    async def _start(self) -> None:
        await self._view.act(
            "audit.run", self._audit.address, self._audit.run(), changes=False,
            done=lambda report: f"Audited: {format_count(len(report.findings), 'finding')}.",
        )  # fmt: skip
        await self._following.now()

    def _refresh(self) -> None:
        audit = self._audit
        self._run.set_enabled(not audit.running)
        if audit.running:
            self._bar.value = round(audit.share, 3)
            of = f": {audit.done:,} of {audit.total:,}" if audit.total else ""
            self._stand.text = f"{_PHASES.get(audit.phase, audit.phase)}{of}"
        elif audit.report is not None:
            self._bar.value = 1
            at = datetime.fromtimestamp(audit.ended, UTC)
            part = (
                "complete"
                if audit.report.coverage.complete
                else "not complete: " + "; ".join(audit.report.coverage.not_seen)
            )
            self._stand.text = f"Ended {at:%H:%M:%S} UTC after {audit.report.seconds:.1f} s, {part}."
        if audit.report is not None and audit.report is not self._shown:
            self._show(audit.report)

    def _show(self, report: AuditReport) -> None:
        self._shown = report
        self._read.set_visibility(True)
        self._json.enable()
        self._markdown.enable()
        weights = [finding.severity for finding in report.findings]
        for shown, weight in (
            (self._problems, "problem"), (self._warnings, "warning"), (self._notes, "note"),
        ):  # fmt: skip
            found = weights.count(weight)  # type: ignore[arg-type]
            shown.show(f"{found:,}", tone=_TONES[weight] if found else "good")
        self._seen.show(f"{report.coverage.names:,}", f"of {format_count(report.coverage.keys, 'key')}")
        self._findings.show([_finding_row(*each) for each in enumerate(report.findings)])
        self._spaces.show(
            [
                {
                    "id": f"{space.catalogue}/{space.pattern}",
                    "space": space.pattern,
                    "kind": space.kind,
                    "keys": f"{space.keys:,}",
                    "keys_sort": space.keys,
                    "size": format_size(space.size.value) if space.size else "—",
                    "size_sort": space.size.value if space.size else -1,
                    "sampled": f"{space.sampled:,}",
                    "sampled_sort": space.sampled,
                }
                for space in report.keyspaces
                if self._audit.role in (None, space.role)
            ]
        )

    def _open(self, row: dict[str, Any]) -> None:
        with self._panel.open(row["kind"]):
            facts([("Weight", row["weight"]), ("Where", row["where"]), ("What", row["what"])])
            if row["advice"]:
                facts([("What to do", row["advice"])])
            if row["examples"]:
                text_block(row["examples"])


def _finding_row(number: int, finding: Finding) -> dict[str, Any]:
    about = ""
    if finding.keys is not None and finding.keyspace is not None:
        about = format_count(round(finding.keys.value), "key") + " "
    return {
        "id": number,
        "weight": finding.severity,
        "weight_tone": _TONES[finding.severity],
        "weight_sort": number,
        "kind": finding.kind,
        "where": finding.keyspace or finding.server or "",
        "what": about + finding.message,
        "advice": finding.advice,
        "examples": "\n".join(finding.examples),
    }


def _as_json(report: AuditReport) -> str:
    return msgspec.json.format(msgspec.json.encode(report)).decode()


PAGE = Page("/audit", "Audit", "fact_check", build)
