"""Accepted findings: deviations that people know of, with a reason and a date on which they are due again.

    [[tool.ephemera.accept]]
    finding = "no-ttl"
    about = "legacy:*"
    reason = "the importer is replaced in March"
    until = 2027-03-31

`about` is a glob for the keyspace, the server, or the shape of undeclared keys; without it all are meant. On
the day after `until` the finding counts again, and another says that the acceptance has expired.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from ephemera.errors import InvalidValue
from ephemera.operations.audit._kinds import KINDS
from ephemera.operations.audit._report import Finding, UnknownKeys, make_finding

_EXTENSION = 30  # days that the advice for an expired acceptance suggests
_SECTION = "[[tool.ephemera.accept]]"


class Acceptance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One accepted deviation."""

    finding: str
    reason: str
    until: date
    about: str = "*"

    def covers(self, kind: str, about: str) -> bool:
        """Whether a finding of this kind about this keyspace, server or shape is accepted."""
        return kind == self.finding and fnmatchcase(about, self.about)


def read_acceptances(path: Path) -> list[Acceptance]:
    """Read the acceptances of a `pyproject.toml`; `InvalidValue` says which one is wrong."""
    tools = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    declared = tools.get("ephemera", {}).get("accept", [])
    return [_checked(number, each) for number, each in enumerate(declared, 1)]


def accept(findings: Iterable[Finding], acceptances: Sequence[Acceptance], today: date) -> Iterator[Finding]:
    """The same findings, the accepted ones marked, and one for each acceptance that has expired."""
    valid = [each for each in acceptances if each.until >= today]
    for finding in findings:
        by = _covering(valid, finding.kind, finding.keyspace or finding.server or "")
        yield finding if by is None else msgspec.structs.replace(finding, accepted=_words(by))
    for each in acceptances:
        if each.until < today:
            message = f"{each.finding} about {each.about} was accepted until {each.until}: {each.reason}"
            advice = f"fix it, or give a later date in {_SECTION}"
            later = today + timedelta(days=_EXTENSION)
            yield make_finding("expired-acceptance", message, advice, [f"until = {later}"])


def accept_unknown(unknown: UnknownKeys, acceptances: Sequence[Acceptance], today: date) -> UnknownKeys:
    """The same undeclared keys, the accepted shapes marked."""
    valid = [each for each in acceptances if each.until >= today]
    shapes = [
        msgspec.structs.replace(shape, accepted=_words(by))
        if (by := _covering(valid, "unknown", shape.pattern or shape.reason or ""))
        else shape
        for shape in unknown.shapes
    ]
    return msgspec.structs.replace(unknown, shapes=shapes)


def _covering(valid: Iterable[Acceptance], kind: str, about: str) -> Acceptance | None:
    return next((each for each in valid if each.covers(kind, about)), None)


def _words(by: Acceptance) -> str:
    return f"until {by.until}: {by.reason}"


def _checked(number: int, given: object) -> Acceptance:
    name = f"{_SECTION} number {number}"
    try:
        found = msgspec.convert(given, Acceptance)
    except msgspec.ValidationError as problem:
        expected = 'finding, reason and until = 2027-03-31, and about = "glob" if not all are meant'
        raise InvalidValue(name, expected, str(problem)) from None
    if found.finding not in KINDS:
        raise InvalidValue(name, f"a finding of {', '.join(KINDS)}", repr(found.finding))
    if not found.reason.strip():
        raise InvalidValue(name, "a reason", "an empty one")
    return found
