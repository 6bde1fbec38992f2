"""`make audit`: whether what we depend on has known vulnerabilities, and whether it is what we pinned.

Offline: each package that an extra of ours brings is pinned in constraints.txt and installed in that version,
and `pip check` finds nothing missing or at odds.

Online: pip-audit asks a vulnerability service (PyPI's, else OSV's) about every pinned version. A mirror or a
network without such a service answers "unknown" to everything, which pip-audit takes for nothing to report.
So the service is asked first about a version that is known to be vulnerable: who does not know that one
knows nothing, and is not believed.

Exit codes: 0 no known vulnerability, 1 something was found, 3 offline: only the local checks passed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
SERVICES = ("pypi", "osv")
VULNERABLE = "jinja2==2.4.1"
"""Known to be: CVE-2014-1402, CVE-2019-10906 and more."""
UNKNOWN = 3
_OF_THE_ENVIRONMENT = {"ephemera", "pip", "setuptools"}
"""Ourselves, and what a virtual environment brings."""


def main() -> int:
    """Both parts, and what came of them."""
    problems = [*unpinned(), *drifted(), *at_odds()]
    for problem in problems:
        say(problem)
    say(f"offline: {len(pins())} packages are pinned; problems: {len(problems) or 'none'}")
    if find_spec("pip_audit") is None:
        say("pip-audit is not installed")
    for service in SERVICES:
        if not knows(service):
            say(
                f"{service}: cannot be asked, or knows of no vulnerability in {VULNERABLE}, which has several"
            )
            continue
        found = vulnerabilities(audited(service, "\n".join(f"{name}=={pin}" for name, pin in pins().items())))
        for each in found:
            say(each)
        say(f"{service}: {len(found) or 'no'} known vulnerabilities")
        return int(bool(found or problems))
    say("NOT AUDITED: no vulnerability service can be reached from here, so nothing is known of any package")
    return 1 if problems else UNKNOWN


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"audit: {text}\n")


def pins() -> dict[str, str]:
    """The version of each package that constraints.txt names."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = (line.partition("==") for line in lines if "==" in line and not line.startswith("#"))
    return {normal(name): pin.split(";")[0].strip() for name, _, pin in pinned}


def normal(name: str) -> str:
    """A package's name as all spellings of it share it."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def unpinned() -> list[str]:
    """Packages that are installed because of us, and that constraints.txt does not name."""
    ours = {"ephemera-data", "ephemera-services"}
    needed = brought("ephemera-data") | brought("ephemera-services")
    missing = sorted(needed - ours - pins().keys() - _OF_THE_ENVIRONMENT)
    return [f"{name} is not pinned in constraints.txt" for name in missing]


def brought(root: str) -> set[str]:
    """Everything installed that a package needs, with all of its own extras."""
    own = distribution(root).metadata.get_all("Provides-Extra") or []
    wanted = [(root, frozenset(own))]
    seen: dict[str, frozenset[str]] = {}
    while wanted:
        name, extras = wanted.pop()
        if name in seen and extras <= seen[name]:
            continue
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:
            continue  # an extra that is not installed here
        seen[name] = seen.get(name, frozenset()) | extras
        wanted += [each for need in needs if (each := needed(need, seen[name])) is not None]
    return set(seen)


def needed(text: str, extras: frozenset[str]) -> tuple[str, frozenset[str]] | None:
    """The package that a requirement names, with its extras, if it applies here."""
    requirement = Requirement(text)
    marker = requirement.marker
    if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in (*extras, "")):
        return None
    return normal(requirement.name), frozenset(requirement.extras)


def drifted() -> list[str]:
    """Packages that are installed in another version than the pinned one."""
    found = []
    for name, pin in pins().items():
        try:
            installed = version(name)
        except PackageNotFoundError:
            continue
        if not is_same(installed, pin):
            found.append(f"{name} is installed as {installed}, and pinned as {pin}")
    return found


def is_same(installed: str, pin: str) -> bool:
    """Whether an installed version is the pinned one; a local part, as in 2.0+cpu, says how it was built."""
    return Version(installed).public == Version(pin).public


def at_odds() -> list[str]:
    """What `pip check` says."""
    command = [sys.executable, "-m", "pip", "check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else done.stdout.splitlines()


def knows(service: str) -> bool:
    """Whether a vulnerability service reports a well-known vulnerability."""
    return bool(vulnerabilities(audited(service, VULNERABLE)))


def audited(service: str, requirements: str) -> dict[str, Any]:
    """What pip-audit says of these versions; nothing when its service cannot be asked."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(requirements)
        file.flush()
        words = [
            "--requirement",
            file.name,
            "--no-deps",
            "--disable-pip",
            "--format",
            "json",
            "--timeout",
            "10",
        ]
        command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", service, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        said: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {}
    return said


def vulnerabilities(said: dict[str, Any]) -> list[str]:
    """A line for each vulnerability of pip-audit's report."""
    return [
        f"{each['name']} {each['version']}: {found['id']}; fixed in {found['fix_versions'] or 'no version'}"
        for each in said.get("dependencies", ())
        for found in each.get("vulns", ())
    ]


if __name__ == "__main__":
    sys.exit(main())
