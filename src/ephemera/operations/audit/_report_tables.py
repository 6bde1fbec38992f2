"""The tables of a report as plain text, for HTML and Markdown: servers, savings, slow log, growth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ephemera.operations.audit._report import (
    AuditReport,
    Comparison,
    KeyspaceGrowth,
    KeyspaceReport,
    SlowCommand,
)
from ephemera.operations.formatting import format_count, format_size
from ephemera.operations.survey import ServerInfo

_WORTHWHILE = 1024 * 1024  # bytes that a change must save to be named
_MAX_ROWS = 20


class ReportTable(NamedTuple):
    """A title, the names of the columns, and rows; the first column is data of the server."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def report_tables(report: AuditReport) -> Iterator[ReportTable]:
    """What would save memory, the slow log, and the changes since an earlier report; without empty ones."""
    savings = [each for each in report.keyspaces if _saves_much(each)]
    if savings:
        yield _savings(savings)
    if report.slow_commands:
        yield _slow_log(report.slow_commands)
    if report.since is not None:
        yield _growth(report.since)


def _saves_much(keyspace: KeyspaceReport) -> bool:
    most = max(keyspace.half_lifetime_saves or 0, keyspace.compression_saves or 0)
    return keyspace.size is not None and most >= max(_WORTHWHILE, keyspace.size.value / 10)


def servers_table(servers: Iterable[ServerInfo]) -> ReportTable:
    """The servers and their settings."""
    columns = ("server", "version", "keys", "memory", "eviction", "append-only file", "fragmentation")
    rows = [
        (
            each.name,
            f"{each.software} {each.version}{', replica' if each.replica else ''}",
            f"{each.keys:,}",
            f"{format_size(each.used_memory)} of {_limit(each)}",
            f"{each.policy}, {format_count(each.evicted, 'key')} evicted",
            "on" if each.append_only else "off",
            f"{each.fragmentation:.2f}",
        )
        for each in servers
    ]
    return ReportTable("Servers", columns, rows)


def _limit(server: ServerInfo) -> str:
    return format_size(server.max_memory) if server.max_memory else "no limit"


def _savings(keyspaces: Iterable[KeyspaceReport]) -> ReportTable:
    rows = [
        (
            each.pattern,
            format_size(_size(each)),
            *(
                "" if saved is None else f"-{format_size(saved)}"
                for saved in (each.half_lifetime_saves, each.compression_saves)
            ),
        )
        for each in sorted(keyspaces, key=_size, reverse=True)
    ]
    return ReportTable(
        "What would save memory", ("keyspace", "size", "half the lifetime", "compression"), rows
    )


def _size(keyspace: KeyspaceReport) -> float:
    return keyspace.size.value if keyspace.size else 0.0


def _slow_log(commands: Iterable[SlowCommand]) -> ReportTable:
    rows = [
        (
            each.keyspace or "(no known key)",
            each.command,
            f"{each.times:,}",
            f"{each.total_ms:,.0f} ms",
            f"{each.longest_ms:,.0f} ms",
        )
        for each in commands
    ]
    return ReportTable("Slow log", ("keyspace", "command", "times", "total", "longest"), rows[:_MAX_ROWS])


def _growth(since: Comparison) -> ReportTable:
    memory = f"{format_size(since.memory_before)} to {format_size(since.memory)}"
    rows = [_grown(change) for change in since.changes[:_MAX_ROWS]]
    rows += [(f"new: {each}", "", "") for each in since.new_findings]
    rows += [(f"gone: {each}", "", "") for each in since.gone_findings]
    title = f"Since {since.at}, {since.days:.1f} days: memory {memory}"
    return ReportTable(title, ("keyspace", "keys", "size"), rows)


def _grown(change: KeyspaceGrowth) -> tuple[str, ...]:
    sizes = f"{format_size(change.size_before)} → {format_size(change.size)}"
    is_known = change.size_before or change.size
    return change.pattern, f"{change.keys_before:,} → {change.keys:,}", sizes if is_known else ""
