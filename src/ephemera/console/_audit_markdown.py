"""An audit's report as a Markdown document, to be kept or sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ephemera.operations.audit._findings import Finding
from ephemera.operations.audit._report import AuditReport
from ephemera.operations.inspect._formatting import counted, shown_size
from ephemera.operations.inspect._sampling import Interval
from ephemera.operations.inspect._server_facts import ServerFacts


def as_markdown(report: AuditReport) -> str:
    """The whole report; keys and messages are quoted so that none of them becomes markup."""
    seen = report.coverage
    part = "all" if seen.complete else "a part"
    parts = [
        f"# Audit of {', '.join(report.catalogues) or 'no catalogue'}",
        f"{counted(seen.names, 'name')} ({part} of {counted(seen.keys, 'key')}) in {report.seconds:.1f} s.",
        "## Findings",
        _table(("weight", "finding", "where", "what", "advice"), map(_finding, report.findings))
        if report.findings
        else "Nothing is amiss.",
        "## Servers",
        _table(
            ("server", "version", "keys", "memory", "policy", "evicted", "fragmentation"),
            (
                (
                    _code(each.name),
                    f"{each.software} {each.version}",
                    f"{each.keys:,}",
                    _memory(each),
                    each.policy,
                    f"{each.evicted:,}",
                    f"{each.fragmentation:.2f}",
                )
                for each in report.servers
            ),
        ),
        "## Declared spaces",
        _table(
            ("space", "kind", "role", "lifetime", "keys", "bytes", "looked at"),
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
                for each in report.spaces
            ),
        ),
    ]
    if report.unknown.keys:
        shapes = (
            (_code(each.pattern or each.reason or ""), f"{each.keys:,}", ", ".join(each.types))
            for each in report.unknown.shapes
        )
        parts += [
            f"## Undeclared: {counted(report.unknown.keys, 'key')}",
            _table(("shape", "keys", "types"), shapes),
        ]
    if seen.not_seen:
        parts += ["## Not seen", "\n".join(f"- {_plain(each)}" for each in seen.not_seen)]
    return "\n\n".join(parts) + "\n"


def _finding(finding: Finding) -> tuple[str, ...]:
    where = finding.space or finding.server or ""
    examples = f" ({', '.join(map(_code, finding.examples))})" if finding.examples else ""
    keys = ""
    if finding.keys is not None and finding.space is not None:
        keys = counted(round(finding.keys.value), "key") + " "
    about = keys + _plain(finding.message) + examples
    return finding.weight, finding.kind, _code(where) if where else "", about, _plain(finding.advice)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _memory(server: ServerFacts) -> str:
    limit = shown_size(server.max_memory) if server.max_memory else "no limit"
    return f"{shown_size(server.used_memory)} of {limit}"


def _size(size: Interval | None) -> str:
    if size is None:
        return ""
    return shown_size(size.value) if size.exact else f"about {shown_size(size.value)}"


def _code(text: str) -> str:
    """Data, which may hold anything: no backtick or bar of it ends the cell."""
    kept = text.replace("`", "'").replace("|", "/")
    return f"`{kept}`" if kept else ""


def _plain(text: str) -> str:
    marks = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]<>|#"})
    return " ".join(text.translate(marks).split())
