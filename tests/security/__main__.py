"""`make security`: the tests behind docs/security.md and the audit of dependencies; writes their report.

The exit code is pytest's, or the audit's: 3 means that no vulnerability service could be reached.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET

PAGE = Path("docs/proof/security.md")
_HEAD = """\
# Security evidence

The claims of [security](../security.md) and the test run behind them. Written by `make security`.

- {when}, Python {python}: {outcomes}

| claim | method | tests | outcome |
|---|---|---|---|
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
    """A claim, how it is tested, and the files with its tests."""

    what: str
    how: str
    files: tuple[str, ...]


_SERVICES, _SERVERS, _ACL = "security/test_services", "deploy/test_servers", "operations/test_acl"
CLAIMS = (
    Claim(
        "no secret in logs, errors, metrics, Redis",
        "canaries in every password, token, cookie, key, link and URL; five services and three workers at "
        "log level debug, over HTTP, on Valkey, and on Redis 7 by TLS; reprs, errors and what commands print",
        (_SERVICES, "security/test_reprs"),
    ),
    Claim(
        "users of `ephemera acl` suffice",
        "the same scenarios, then `ACL LOG` of both servers; services on the cluster of `deploy/`, "
        "where a refused FLUSHALL is seen; every accessor and pattern as such a user",
        (_SERVICES, _SERVERS, _ACL),
    ),
    Claim(
        "administrators' routes are closed",
        "all of them in the OpenAPI documents: without credentials, with wrong ones, as a user",
        (_SERVICES,),
    ),
    Claim(
        "metrics and console are closed",
        "without a token, with a wrong one; every page of the console without signing in",
        (_SERVICES, "security/test_console"),
    ),
    Claim(
        "no service reaches another's keys",
        "which of them could on one server, and that production separates those",
        ("security/test_sharing",),
    ),
    Claim(
        "TLS throughout",
        "certificates on both sides: Redis 7, PostgreSQL, a cluster of six, a queue with three Sentinels, "
        "Celery; what is not checked does not connect",
        (_SERVICES, _SERVERS, "deploy/test_postgres"),
    ),
    Claim(
        "comparisons take the same time",
        "every `==`, `!=` and `in` of a secret's name in both distributions, by syntax tree",
        ("security/test_comparisons",),
    ),
    Claim(
        "the files of `deploy/` are valid, and hold no secret",
        "Compose Specification; Kubernetes, strict; started on Valkey and Redis 7",
        ("deploy/test_generated", _SERVERS, "deploy/test_postgres"),
    ),
    Claim(
        "dependencies are the pinned ones",
        "pins of all that our extras bring, `pip check`",
        ("deploy/test_audit",),
    ),
)


def main() -> int:
    """Run the tests and the audit, and write the page."""
    files = sorted({file for claim in CLAIMS for file in claim.files})
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = ["--numprocesses", "2", "--dist", "loadfile", f"--junitxml={report}"]
        paths = [f"tests/{file}.py" for file in files]
        tested = subprocess.run([sys.executable, "-m", "pytest", *words, *paths], check=False)
        outcomes = outcomes_of(report.read_text(encoding="utf-8")) if report.exists() else {}
    audit = [sys.executable, "-m", "deploy.audit"]
    audited = subprocess.run(audit, capture_output=True, text=True, check=False)
    sys.stdout.write(audited.stdout)
    PAGE.write_text(page(outcomes, audited.stdout, audited.returncode), encoding="utf-8")
    return tested.returncode or audited.returncode


def outcomes_of(report: str) -> dict[str, list[str]]:
    """Return the outcomes of the tests of each file, by its name as in `CLAIMS`."""
    found: dict[str, list[str]] = {}
    for case in ET.fromstring(report).iter("testcase"):
        names = [each.tag for each in case if each.tag in ("failure", "error", "skipped")]
        outcome = (
            {"failure": "failed", "error": "failed", "skipped": "skipped"}[names[0]] if names else "passed"
        )
        file = case.get("classname", "").removeprefix("tests.").replace(".", "/")
        found.setdefault(file, []).append(outcome)
    return found


def page(outcomes: dict[str, list[str]], audit: str, code: int) -> str:
    """Return the report."""
    rows = [
        f"| {claim.what} | {claim.how} | {', '.join(f'`tests/{file}.py`' for file in claim.files)} | "
        f"{counted([each for file in claim.files for each in outcomes.get(file, ['not run'])])} |"
        for claim in CLAIMS
    ]
    head = _HEAD.format(
        when=datetime.now(UTC).strftime("%Y-%m-%d"),
        python=platform.python_version(),
        outcomes=counted([each for found in outcomes.values() for each in found]),
    )
    return head + "\n".join(rows) + "\n" + _AUDIT.format(code=code, said=audit.strip())


def counted(outcomes: list[str]) -> str:
    """Summarize outcomes, as in '12 passed'; failures are emphasized."""
    parts = [f"{outcomes.count(each)} {each}" for each in ("passed", "skipped") if each in outcomes]
    parts += [f"**{outcomes.count(each)} {each}**" for each in ("failed", "not run") if each in outcomes]
    return ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
