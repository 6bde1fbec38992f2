"""Accepted findings, comparison with an earlier report, and JUnit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.errors import InvalidValue
from ephemera.operations.audit import KINDS, Acceptance, audit, read_acceptances
from tests.cli.commands import ephemera
from tests.operations.audit_fixtures import catalogue, of_kind

SHOP = "tests.operations.audit_fixtures:catalogue"
LATER, PAST = date(2999, 1, 1), date(2020, 1, 1)


@pytest.fixture
def shop() -> Iterator[Valkey]:
    """A server with undeclared keys of two shapes, and a declared key without a TTL."""
    with embedded.valkey() as server:
        for key in ("legacy:1", "legacy:2", "stray:1", "seen:1"):
            server.ask("SET", key, "1")
        yield server


def accepting(finding: str, about: str = "*", until: date = LATER) -> Acceptance:
    """An acceptance with some reason."""
    return Acceptance(finding=finding, about=about, reason="it is known", until=until)


async def test_an_accepted_finding_is_marked_and_last(shop: Valkey) -> None:
    """It stays in the report, with reason and date, behind all that are not accepted."""
    report = await audit(shop.url, [catalogue], acceptances=[accepting("no-ttl", "seen:*")])
    (finding,) = of_kind(report, "no-ttl")
    assert finding.accepted == "until 2999-01-01: it is known"
    assert report.findings[-1] == finding


async def test_accepted_shapes_do_not_count_as_unknown(shop: Valkey) -> None:
    """Only the other undeclared keys are a finding; with all shapes accepted there is none."""
    report = await audit(shop.url, [catalogue], acceptances=[accepting("unknown", "legacy:*")])
    (finding,) = of_kind(report, "unknown")
    assert finding.message == "1 undeclared key of 1 shape"
    assert report.unknown.keys == 3
    assert of_kind(await audit(shop.url, [catalogue], acceptances=[accepting("unknown")]), "unknown") == []


async def test_after_its_date_an_acceptance_is_a_finding_itself(shop: Valkey) -> None:
    """The finding counts again, and another one says which acceptance has expired."""
    report = await audit(shop.url, [catalogue], acceptances=[accepting("no-ttl", until=PAST)])
    assert [each.accepted for each in of_kind(report, "no-ttl")] == [None]
    (expired,) = of_kind(report, "expired-acceptance")
    assert "accepted until 2020-01-01: it is known" in expired.message


def test_the_command_reads_the_project_file(
    shop: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pyproject.toml` of the current folder accepts findings, which then do not fail the audit."""
    monkeypatch.chdir(tmp_path)
    words = ("audit", "--url", shop.url, "--catalogue", SHOP, "--fail-on", "no-ttl")
    assert ephemera(*words).code == 1
    Path("pyproject.toml").write_text(
        '[[tool.ephemera.accept]]\nfinding = "no-ttl"\nreason = "old importer"\nuntil = 2999-01-01\n'
    )
    outcome = ephemera(*words)
    assert outcome.code == 0
    assert "accepted until 2999-01-01: old importer" in outcome.out


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('finding = "no-tll"\nreason = "x"\nuntil = 2999-01-01', "'no-tll'"),
        ('finding = "no-ttl"\nreason = " "\nuntil = 2999-01-01', "a reason"),
        ('finding = "no-ttl"\nreason = "x"', "until"),
        ('finding = "no-ttl"\nreason = "x"\nuntil = 2999-01-01\nkeyspace = "x"', "keyspace"),
    ],
)
def test_a_wrong_acceptance_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    """What is wrong is named, with the number of the acceptance."""
    path = tmp_path / "pyproject.toml"
    path.write_text(f"[[tool.ephemera.accept]]\n{text}\n")
    with pytest.raises(InvalidValue) as refused:
        read_acceptances(path)
    assert problem in str(refused.value)
    assert "number 1" in str(refused.value)
    outcome = ephemera("audit", "--url", "redis://x", "--catalogue", SHOP, "--accept", str(path))
    assert outcome.code == 2


@pytest.mark.parametrize("width", [80, 120])
def test_growth_since_an_earlier_report(shop: Valkey, tmp_path: Path, width: int) -> None:
    """Keyspaces and shapes that grew are shown with both figures, and so are new and gone findings."""
    words = ("audit", "--url", shop.url, "--catalogue", SHOP)
    earlier = tmp_path / "earlier.json"
    earlier.write_text(ephemera(*words, "--json").out)
    for number in range(200):
        shop.ask("SET", f"seen:{number}", 1, "EX", 60)
    shop.ask("RPUSH", "news:1", "without a TTL")
    shown = ephemera(*words, "--against", str(earlier), env={"COLUMNS": str(width)}).out
    assert "│ 1 → 200 │" in shown
    assert "new: no-ttl: news:{user_id}" in shown
    assert "gone: no-ttl: seen:{user_id}" in shown
    assert max(map(len, shown.splitlines())) <= width
    since = json.loads(ephemera(*words, "--against", str(earlier), "--json").out)["since"]
    assert {each["pattern"] for each in since["changes"]} == {"seen:{user_id}", "news:{user_id}"}


def test_another_file_is_not_a_report(shop: Valkey, tmp_path: Path) -> None:
    """A file that no audit printed is refused with what is wrong."""
    path = tmp_path / "earlier.json"
    path.write_text("{}")
    outcome = ephemera("audit", "--url", shop.url, "--catalogue", SHOP, "--against", str(path))
    assert outcome.code == 2
    assert "is not a report that `audit --json` printed" in outcome.said


def test_junit_has_a_case_for_every_kind(shop: Valkey, tmp_path: Path) -> None:
    """A finding of --fail-on is a failure with its advice, an accepted one is skipped."""
    project, written = tmp_path / "accepted.toml", tmp_path / "audit.xml"
    project.write_text(
        '[[tool.ephemera.accept]]\nfinding = "no-ttl"\nreason = "old importer"\nuntil = 2999-01-01\n'
    )
    words = ("--accept", str(project), "--junit", str(written), "--fail-on", "unknown,no-ttl")
    assert ephemera("audit", "--url", shop.url, "--catalogue", SHOP, *words).code == 1
    suite = ET.fromstring(written.read_text())
    cases = {case.attrib["name"]: case for case in suite}
    assert set(cases) == set(KINDS)
    assert "ephemera infer" in (cases["unknown"].findtext("failure") or "")
    skipped = cases["no-ttl"].find("skipped")
    assert skipped is not None
    assert "old importer" in skipped.attrib["message"]
    assert (suite.attrib["failures"], suite.attrib["skipped"]) == ("1", "1")


def test_html_is_one_page_that_loads_nothing(shop: Valkey, tmp_path: Path) -> None:
    """Every finding is on it, text of the server is escaped, and nothing refers to another file."""
    shop.ask("SET", "<script>alert(1)</script>:1", "1")
    written = tmp_path / "audit.html"
    words = ("audit", "--url", shop.url, "--catalogue", SHOP, "--html", str(written), "--json")
    report = json.loads(ephemera(*words).out)
    page = written.read_text(encoding="utf-8")
    assert {each["kind"] for each in report["findings"]} <= set(
        re.findall(r"<th class=\"\w+\">([\w-]+)", page)
    )
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "<svg" in page
    assert re.findall(r"(?:src|href|url\(|@import|https?:)", page) == []
    assert 'name="viewport"' in page
    body = page.partition("<body>")[2].partition("</body>")[0]
    ET.fromstring(f"<body>{body.replace('<br>', '<br/>')}</body>")


def test_the_page_of_any_server_names_it(shop: Valkey, tmp_path: Path) -> None:
    """Without a catalogue the title is the server, and there are no charts of declared keys."""
    written = tmp_path / "audit.html"
    assert ephemera("audit", "--url", shop.url, "--html", str(written)).code == 0
    page = written.read_text(encoding="utf-8")
    assert f"<title>Audit of {shop.url.rpartition('@')[2].removeprefix('redis://')}</title>" in page
    assert "Memory by keyspace" not in page
    assert "legacy:{legacy_id}" in page
