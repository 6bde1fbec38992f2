"""`make security`: the tests behind docs/security.md, a short fuzz run and the audit; writes their report.

What runs is what the page names, and besides it everything in tests/security and the defects found by attack
(tests/defects/test_sec*). Exit code 1: a test or a trial failed, or a vulnerability is known. An audit that
could not be made, because no vulnerability service answers, fails nothing: the last line and the report say
so.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[2]
CLAIMS_PAGE = ROOT / "docs/security.md"
PAGE = ROOT / "docs/proof/security.md"
ALWAYS = ("tests/security/test_*.py", "tests/defects/test_sec*.py")
"""Files whose tests run whether or not a claim names them."""
FUZZ_SECONDS = 60
NOT_AUDITED = 3
"""The exit code of the audit when no vulnerability service could be reached."""
_TEST = re.compile(r"`(tests/[\w/]+\.py::\w+)`")
_ITEM = re.compile(r"^- (?:.+\n)(?:  .+\n)*", re.MULTILINE)
_HEAD = """\
# Security evidence

The claims of [security](../security.md) and the test run behind them. Written by `make security`.

- {when}, Python {python}: {outcomes}
- Fuzz run of {seconds} s, exit code {fuzzed} (0: every trial held)

| claim | tests | outcome |
|---|---|---|
"""
_AUDIT = """
## Dependencies

`make audit`, exit code {code} (0 no known vulnerability, 1 a vulnerability was found, 3 no service could be
reached):

```text
{said}
```
"""


@dataclass(frozen=True)
class Claim:
    """A claim of the page, and the ids of its tests."""

    what: str
    tests: tuple[str, ...]


def claims_of(text: str) -> list[Claim]:
    """Return the claims of the page: the items of its section Claims."""
    [section] = re.findall(r"^## Claims\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    return [
        Claim(" ".join(_TEST.sub("", item)[2:].split()).rstrip(" ,"), tuple(_TEST.findall(item)))
        for item in _ITEM.findall(section)
    ]


def main() -> int:
    """Run the tests, the fuzz run and the audit, and write the page."""
    claims = claims_of(CLAIMS_PAGE.read_text(encoding="utf-8"))
    always = [str(path.relative_to(ROOT)) for glob in ALWAYS for path in sorted(ROOT.glob(glob))]
    named = {test for claim in claims for test in claim.tests if test.partition("::")[0] not in always}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["--numprocesses", "2", "--dist", "loadfile", f"--junitxml={report}"]
        tested = _run("pytest", *options, *always, *in_file_order(named))
        outcomes = outcomes_of(report.read_text(encoding="utf-8")) if report.exists() else {}
    fuzzed = _run("tests.fuzz", "--seconds", str(FUZZ_SECONDS))
    audit = [sys.executable, "-m", "tools.dependency_audit"]
    audited = subprocess.run(audit, capture_output=True, text=True, check=False)
    sys.stdout.write(audited.stdout)
    PAGE.write_text(page(claims, outcomes, fuzzed, audited.stdout, audited.returncode), encoding="utf-8")
    code, said = verdict(tested, fuzzed, audited.returncode)
    sys.stdout.write(said + "\n")
    return code


def in_file_order(tests: Iterable[str]) -> list[str]:
    """Sort tests as pytest does for whole files: async ones come before those with a browser's event loop."""

    def position(test: str) -> tuple[str, int]:
        file, _, name = test.partition("::")
        return file, (ROOT / file).read_text(encoding="utf-8").index(f"def {name}(")

    return sorted(tests, key=position)


def verdict(tested: int, fuzzed: int, audited: int) -> tuple[int, str]:
    """Return the exit code, and a line for each part; what could not be audited has not failed."""
    audit = {0: "no known vulnerability", NOT_AUDITED: "NOT AUDITED: no vulnerability service answered"}
    said = (
        f"tests: {'FAILED' if tested else 'passed'}; fuzz run: {'FAILED' if fuzzed else 'held'}; "
        f"dependencies: {audit.get(audited, 'FAILED')}"
    )
    return int(bool(tested or fuzzed or audited not in audit)), said


def _run(module: str, *arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", module, *arguments], check=False, cwd=ROOT).returncode


def outcomes_of(report: str) -> dict[str, list[str]]:
    """Return the outcomes of each test by its id; a test with parameters has several."""
    found: dict[str, list[str]] = {}
    for case in ET.fromstring(report).iter("testcase"):
        tags = {each.tag for each in case}
        outcome = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        file = case.get("classname", "").replace(".", "/")
        name = case.get("name", "").partition("[")[0]
        found.setdefault(f"{file}.py::{name}", []).append(outcome)
    return found


def page(claims: Iterable[Claim], outcomes: dict[str, list[str]], fuzzed: int, audit: str, code: int) -> str:
    """Return the report."""
    rows = [
        f"| {claim.what.replace('|', '/')} | {', '.join(f'`{test}`' for test in claim.tests)} | "
        f"{counted([each for test in claim.tests for each in outcomes.get(test, ['not run'])])} |"
        for claim in claims
    ]
    head = _HEAD.format(
        when=datetime.now(UTC).strftime("%Y-%m-%d"),
        python=platform.python_version(),
        outcomes=counted([each for found in outcomes.values() for each in found]),
        seconds=FUZZ_SECONDS,
        fuzzed=fuzzed,
    )
    return head + "\n".join(rows) + "\n" + _AUDIT.format(code=code, said=audit.strip())


def counted(outcomes: list[str]) -> str:
    """Summarize outcomes, as in '12 passed'; failures are emphasized."""
    parts = [f"{outcomes.count(each)} {each}" for each in ("passed", "skipped") if each in outcomes]
    parts += [f"**{outcomes.count(each)} {each}**" for each in ("failed", "not run") if each in outcomes]
    return ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
