"""An audit report on the terminal: servers, keyspaces, undeclared keys, findings."""

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ephemera.cli._screens import screen
from ephemera.operations.audit import (
    TTL_BUCKETS,
    AuditReport,
    Finding,
    KeyspaceReport,
    ReportTable,
    UnknownShape,
    report_tables,
)
from ephemera.operations.formatting import format_count, format_size
from ephemera.operations.survey import Interval

_STYLES = {"problem": "bold red", "warning": "yellow", "note": "dim"}
_BARS = " ▁▂▃▄▅▆▇█"
_MAX_SHAPES = 20
_MAX_STREAMS = 20
_LARGEST = 5


def show(report: AuditReport) -> None:
    """Print a report."""
    console = screen(highlight=False)
    for part in parts(report):
        console.print(part, "")


def parts(report: AuditReport) -> Iterator[RenderableType]:
    """The parts of a report that are not empty."""
    yield _title(report)
    yield _servers(report)
    if report.keyspaces:
        yield _keyspaces(report.keyspaces)
    if report.unknown.keys:
        yield _unknown(report)
    if any(keyspace.streams for keyspace in report.keyspaces):
        yield _streams(report.keyspaces)
    if any(keyspace.largest for keyspace in report.keyspaces):
        yield _largest(report.keyspaces)
    yield from map(_plain_table, report_tables(report))
    yield _findings(report.findings)
    yield _footer(report)


def _title(report: AuditReport) -> Text:
    seen = report.coverage
    part = "all" if seen.complete else "part"
    return Text.from_markup(
        f"[bold]{escape(', '.join(report.catalogues) or 'no catalogue')}[/] on "
        f"{format_count(len(report.servers), 'server')}: {format_count(seen.names, 'name')} ({part} of "
        f"{format_count(seen.keys, 'key')}) in {report.seconds:.1f} s",
        emoji=False,
    )


def _servers(report: AuditReport) -> Table:
    table = _table("Servers", "server", "keys", "memory", "eviction", "AOF")
    for server in report.servers:
        limit = format_size(server.max_memory) if server.max_memory else "no limit"
        replica = ", replica" if server.replica else ""
        table.add_row(
            _two_lines(server.name, f"{server.software} {server.version}{replica}"),
            f"{server.keys:,}",
            f"{format_size(server.used_memory)} of {limit}\n[dim]fragmentation {server.fragmentation:.2f}[/]",
            f"{server.policy}\n[dim]{server.evicted:,} evicted[/]",
            "on" if server.append_only else "off",
        )
    return table


def _keyspaces(keyspaces: Iterable[KeyspaceReport]) -> Group:
    """Two lines for each keyspace: five columns fit into 80 characters, nine would wrap their figures."""
    table = _table("Declared keyspaces", "keyspace", "keys", "size", "TTLs")
    for keyspace in keyspaces:
        keys = f"{keyspace.keys:,}"
        if keyspace.estimated_keys is not None:
            keys += f"\n[dim]of {_about(keyspace.estimated_keys)}[/]"
        sampled = f", {keyspace.sampled:,} sampled" if keyspace.sampled < keyspace.keys else ""
        declared = f"{keyspace.kind}, {keyspace.role}, {keyspace.lifetime}{sampled}"
        table.add_row(
            _two_lines(keyspace.pattern, declared, style="cyan"),
            keys,
            _size(keyspace.size),
            _histogram(keyspace.ttl),
            style="dim" if not keyspace.keys else None,
        )
    legend = f"TTLs: sampled keys by remaining TTL, {' · '.join(TTL_BUCKETS)}; sizes at 95 % confidence"
    return Group(table, Text(legend, style="dim"))


def _unknown(report: AuditReport) -> Group:
    unknown = report.unknown
    title = format_count(unknown.keys, "undeclared key")
    if unknown.size is not None and unknown.without_ttl is not None:
        title += f", {_size(unknown.size)}, {_about(unknown.without_ttl)} of them without a TTL"
    table = _table(title, "shape", "keys", "types", "examples")
    for shape in unknown.shapes[:_MAX_SHAPES]:
        keys = f"{shape.keys:,}" + (f"\n[dim]{format_size(shape.size.value)}[/]" if shape.size else "")
        table.add_row(_shape(shape), keys, ", ".join(shape.types), _examples(shape))
    more = len(unknown.shapes) - _MAX_SHAPES
    return (
        Group(table, Text(f"and {more} more shapes; --json has all", style="dim"))
        if more > 0
        else Group(table)
    )


def _streams(keyspaces: Iterable[KeyspaceReport]) -> Table:
    table = _table("Streams", "stream", "entries", "group", "consumers", "pending", "undelivered")
    streams = [stream for keyspace in keyspaces for stream in keyspace.streams]
    for stream in sorted(streams, key=lambda each: -each.length)[:_MAX_STREAMS]:
        table.add_row(
            escape(stream.key),
            f"{stream.length:,}",
            "\n".join(escape(group.name) for group in stream.groups),
            "\n".join(f"{group.consumers:,}" for group in stream.groups),
            "\n".join(f"{group.pending:,}" for group in stream.groups),
            "\n".join("?" if group.lag is None else f"{group.lag:,}" for group in stream.groups),
        )
    return table


def _largest(keyspaces: Iterable[KeyspaceReport]) -> Table:
    table = _table("Largest sampled keys", "key", "size", "members")
    keys = [key for keyspace in keyspaces for key in keyspace.largest]
    for key in sorted(keys, key=lambda each: -each.size)[:_LARGEST]:
        table.add_row(escape(key.key), format_size(key.size), f"{key.members:,}" if key.members else "")
    return table


def _plain_table(found: ReportTable) -> Table:
    table = _table(found.title, *found.columns)
    for row in found.rows:
        table.add_row(*map(escape, row))
    return table


def _findings(findings: list[Finding]) -> RenderableType:
    if all(finding.kind == "incomplete" for finding in findings):
        return Text("No findings.", style="bold green")
    table = Table(title="Findings", title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        if finding.kind == "incomplete":
            continue  # see the footer
        style = "dim" if finding.accepted else _STYLES[finding.severity]
        table.add_row(Text(finding.kind, style=style), _sentence(finding))
    return table


def _sentence(finding: Finding) -> Text:
    about = finding.keyspace or finding.server
    text = Text.assemble((about, "cyan"), ": ") if about else Text()
    if finding.keys is not None and finding.keyspace is not None:
        text.append(f"{_about(finding.keys)} {'key' if finding.keys.high == 1 else 'keys'} ")
    text.append(finding.message)
    if finding.examples:
        text.append(f" ({', '.join(finding.examples)})", style="dim")
    if finding.accepted:
        return text.append(f"\naccepted {finding.accepted}", style="dim")
    if finding.severity != "note":
        text.append(f"\n{finding.why}", style="dim")
    if finding.advice:
        text.append(f"\n{finding.advice}", style="italic")
    for command in finding.commands:
        text.append(f"\n  {command}", style="bold")
    return text


def _footer(report: AuditReport) -> Text:
    impact = report.impact
    lines = [f"Not seen: {each}." for each in report.coverage.not_seen]
    if report.coverage.cursor is not None:
        lines.append(f"Resume with --cursor {report.coverage.cursor}")
    lines.append(
        f"The audit raised keyspace_hits and keyspace_misses by {impact.lookups:,} in total; "
        + (
            "no access time changed."
            if impact.access_times_kept or not impact.contents_read
            else f"{format_count(impact.contents_read, 'key')} count as accessed just now: "
            "this server has no CLIENT NO-TOUCH (--no-contents avoids it)."
        )
    )
    return Text("\n".join(lines), style="dim")


_FOLDED = ("server", "keyspace", "shape", "examples", "key", "stream", "group", "types")


def _table(title: str, *columns: str) -> Table:
    """A table whose names are folded to fit; figures and histograms are never broken."""
    table = Table(title=title, title_justify="left")
    for name in columns:
        folded = name in _FOLDED
        right = not folded and name not in ("memory", "eviction", "AOF", "TTLs")
        table.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=not folded)
    return table


def _two_lines(name: str, details: str, style: str = "default") -> str:
    return f"[{style}]{escape(name)}[/]\n[dim]{escape(details)}[/]"


def _shape(shape: UnknownShape) -> str:
    text = escape(shape.pattern) if shape.pattern else f"[italic]{escape(shape.reason or '')}[/]"
    known = f"{shape.library}: {shape.purpose}" if shape.library else ""
    notes = [known, f"accepted {shape.accepted}" if shape.accepted else ""]
    return "\n".join([text, *(f"[dim]{escape(note)}[/]" for note in notes if note)])


def _examples(shape: UnknownShape) -> str:
    return escape(", ".join(shape.examples)) or "[dim]not shown: they may be secrets[/]"


def _histogram(ttl: dict[str, int]) -> str:
    most = max(ttl.values(), default=0)
    return "".join(_BARS[-(-8 * ttl.get(bucket, 0) // most)] if most else " " for bucket in TTL_BUCKETS)


def _size(size: Interval | None) -> str:
    if size is None:
        return ""
    if size.exact or not size.value:
        return format_size(size.value)
    if size.high is None:
        return f"{format_size(size.value)} [dim]?[/]"
    return f"{format_size(size.value)} [dim]±{(size.high - size.value) / size.value:.0%}[/]"


def _about(keys: Interval) -> str:
    if keys.exact:
        return f"{keys.value:,.0f}"
    high = "?" if keys.high is None else f"{keys.high:,.0f}"
    return f"{keys.value:,.0f} ({keys.low:,.0f} to {high})"
