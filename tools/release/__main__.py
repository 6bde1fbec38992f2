"""`make release-check`: everything that must hold before a release; `set-version X` writes a version.

Nothing is published. `docs/release.md` is the guide.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tools.release import builds, dependencies, installs, versions

DIST = versions.ROOT / "dist"


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("command", choices=("check", "set-version"))
    parser.add_argument("version", nargs="?", help="for set-version")
    parser.add_argument("--final", action="store_true", help="the changelog needs an entry of this version")
    parser.add_argument("--extras", help="only these, by commas; by default all, minilm only by name")
    chosen = parser.parse_args()
    if chosen.command == "set-version":
        versions.set_version(chosen.version or parser.error("name the version"))
        return 0
    extras = ["", *installs.small(versions.extras()), installs.SERVICES, f"{installs.SERVICES}[push]"]
    if chosen.extras:
        extras = chosen.extras.split(",")
    return check(extras, final=chosen.final)


def check(extras: list[str], *, final: bool) -> int:
    """Check all of it, saying what was done; 1 when something does not hold."""
    found = versions.problems(final=final)
    say(f"version {versions.version()}: {'; '.join(found) or 'the same everywhere, in the changelog'}")
    found += check_builds()
    wheels = sorted(DIST.glob("*.whl"))  # the library, then the services
    for python in installs.pythons():
        for extra in extras:
            found += attempt(f"{Path(python).name}, {extra or 'no extra'}", python, wheels, extra)
    describe_dependencies(wheels)
    for problem in found:
        say(f"PROBLEM: {problem}")
    return int(bool(found))


def check_builds() -> list[str]:
    """Build twice, compare, and let twine read the metadata."""
    with tempfile.TemporaryDirectory() as other:
        shutil.rmtree(DIST, ignore_errors=True)
        first, second = builds.build(DIST), builds.build(Path(other))
    say("\n".join(f"{digest}  {name}" for name, digest in first.items()))
    builds.run(sys.executable, "-m", "twine", "check", "--strict", *map(str, DIST.iterdir()))
    say("built twice and compared; twine accepts the metadata")
    return [f"{name} differs between two builds" for name in first if first[name] != second.get(name)]


def attempt(what: str, python: str, wheels: list[Path], extra: str) -> list[str]:
    """Check one extra on one Python."""
    try:
        installs.check_extra(python, wheels, extra)
    except RuntimeError as problem:
        say(f"{what}: FAILED")
        return [f"{what}: {problem}"]
    say(f"{what}: installs, and imports {', '.join(installs.promised(extra))}")
    return []


def describe_dependencies(wheels: list[Path]) -> None:
    """Write what users get: an SBOM (CycloneDX) and the licences."""
    with tempfile.TemporaryDirectory() as folder:
        python = installs.environment(Path(folder), dependencies.everything(wheels))
        packages = dependencies.describe(python, DIST)
    say(f"written: the SBOM and the licences of {packages} packages, in dist/")


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
