"""A report as JUnit XML, for pipelines: a test case for every kind of finding."""

from __future__ import annotations

from collections.abc import Collection
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ephemera.operations.audit._kinds import KINDS
from ephemera.operations.audit._report import AuditReport, Finding


def as_junit(report: AuditReport, failing: Collection[str]) -> str:
    """The report as JUnit XML: findings of these kinds are failures, others are output."""
    cases = [_case(kind, [each for each in report.findings if each.kind == kind], failing) for kind in KINDS]
    suite = Element(
        "testsuite",
        name=f"ephemera audit {' '.join(report.catalogues)}".strip(),
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        skipped=str(sum(case.find("skipped") is not None for case in cases)),
        errors="0",
        time=f"{report.seconds:.3f}",
        timestamp=report.at,
    )
    suite.extend(cases)
    indent(suite)
    return tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _case(kind: str, findings: list[Finding], failing: Collection[str]) -> Element:
    case = Element("testcase", classname="ephemera.audit", name=kind)
    open_findings = [each for each in findings if each.accepted is None]
    text = "\n\n".join(map(_text, findings))
    if open_findings and kind in failing:
        SubElement(case, "failure", type=KINDS[kind].severity, message=KINDS[kind].meaning).text = text
    elif findings and not open_findings:
        SubElement(case, "skipped", message=f"accepted {findings[0].accepted}")
    elif findings:
        SubElement(case, "system-out").text = text
    return case


def _text(finding: Finding) -> str:
    about = finding.keyspace or finding.server
    lines = [f"{about}: {finding.message}" if about else finding.message, finding.why, finding.advice]
    return _printable("\n".join([*filter(None, lines), *(f"  {each}" for each in finding.commands)]))


def _printable(text: str) -> str:
    """XML has no way to write control characters."""
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)
