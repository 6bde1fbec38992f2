"""The version, which `pyproject.toml` of the library decides, and the changelog's entry of it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
_VERSION = re.compile(r'^version = "([^"]+)"$', re.MULTILINE)
_CITED = re.compile(r"^version: (\S+)$", re.MULTILINE)
_DEPENDENCY = re.compile(r'("ephemera-data\[[^\]]*\]==)([^"]+)(")')
_ENTRY = re.compile(r"^## \[?(?P<version>[^\]\s]+)\]?.*\n(?P<text>(?:(?!## ).*\n?)*)", re.MULTILINE)


def version() -> str:
    """The version of this tree."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def extras() -> list[str]:
    """The extras that users install; those for working on the project are left out."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        found = tomllib.load(file)["project"]["optional-dependencies"]
    return [name for name in found if name not in {"check", "test", "bench", "docs", "release"}]


def set_version(new: str) -> None:
    """Write a version to both distributions, the dependency between them, and the citation."""
    for project in (ROOT / "pyproject.toml", ROOT / "services/pyproject.toml"):
        text = _VERSION.sub(f'version = "{new}"', project.read_text(encoding="utf-8"), count=1)
        project.write_text(_DEPENDENCY.sub(rf"\g<1>{new}\g<3>", text), encoding="utf-8")
    citation = ROOT / "CITATION.cff"
    citation.write_text(_CITED.sub(f"version: {new}", citation.read_text(encoding="utf-8")), encoding="utf-8")


def problems(*, final: bool) -> list[str]:
    """What is wrong with the versions and the changelog; a final release needs an entry of its own."""
    services = (ROOT / "services/pyproject.toml").read_text(encoding="utf-8")
    own, needed = _VERSION.search(services), _DEPENDENCY.search(services)
    found = []
    if own is None or needed is None or {own[1], needed[2]} != {version()}:
        found.append("services/pyproject.toml has another version: python -m tools.release set-version X")
    if _CITED.findall((ROOT / "CITATION.cff").read_text(encoding="utf-8")) != [version()]:
        found.append("CITATION.cff has another version: python -m tools.release set-version X")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = {entry["version"]: entry["text"] for entry in _ENTRY.finditer(changelog)}
    wanted = version() if final else "Unreleased"
    if not entries.get(wanted, entries.get(version(), "")).strip():
        found.append(f"CHANGELOG.md has no entry for {wanted}")
    return found
