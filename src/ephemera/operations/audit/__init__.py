"""Audits: compare a live server with the catalogues of the services that use it.

    report = await audit("redis://cache.internal", [catalogue])

*What is checked.* All names are counted (`survey`), a sample of each keyspace is inspected, and every
deviation from the declarations becomes a finding with a severity: `problem` (data is wrong or will be lost),
`warning` (it will go wrong some day) or `note`. Servers are checked against the roles of the keyspaces found
on them.

*Cost.* An audit reads and never writes. It keeps to its time budget, reports what it did not see and the
cursor to resume from, and states its effect on the server's own statistics. Keys of sensitive keyspaces are
never shown, nor values of any.

*When Redis is down.* A server that cannot be reached raises `ConnectionFailed`; one that is lost during the
audit leaves a report of what was seen until then.
"""

from ephemera.operations.audit._acceptance import Acceptance, read_acceptances
from ephemera.operations.audit._audit import audit, coverage_of, estimate_all_keys
from ephemera.operations.audit._comparison import compare_reports, read_report
from ephemera.operations.audit._decoder import decodability_reader
from ephemera.operations.audit._html import as_html
from ephemera.operations.audit._junit import as_junit
from ephemera.operations.audit._keyspaces import NO_TTL, TTL_BUCKETS, keyspace_report
from ephemera.operations.audit._kinds import KINDS, FindingKind, Severity, parse_kinds
from ephemera.operations.audit._report import (
    AuditReport,
    Comparison,
    Coverage,
    Finding,
    Impact,
    KeyspaceGrowth,
    KeyspaceReport,
    LargeKey,
    SlowCommand,
    StreamReport,
    UnknownKeys,
    UnknownShape,
    make_finding,
)
from ephemera.operations.audit._report_tables import ReportTable, report_tables, servers_table
from ephemera.operations.audit._servers import KeyUse, server_findings
from ephemera.operations.audit._unknown_keys import read_signs, undeclared_uses, unknown_keys

__all__ = [
    "KINDS",
    "NO_TTL",
    "TTL_BUCKETS",
    "Acceptance",
    "AuditReport",
    "Comparison",
    "Coverage",
    "Finding",
    "FindingKind",
    "Impact",
    "KeyUse",
    "KeyspaceGrowth",
    "KeyspaceReport",
    "LargeKey",
    "ReportTable",
    "Severity",
    "SlowCommand",
    "StreamReport",
    "UnknownKeys",
    "UnknownShape",
    "as_html",
    "as_junit",
    "audit",
    "compare_reports",
    "coverage_of",
    "decodability_reader",
    "estimate_all_keys",
    "keyspace_report",
    "make_finding",
    "parse_kinds",
    "read_acceptances",
    "read_report",
    "read_signs",
    "report_tables",
    "server_findings",
    "servers_table",
    "undeclared_uses",
    "unknown_keys",
]
