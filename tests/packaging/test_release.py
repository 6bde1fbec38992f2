"""What `make release-check` relies on, without its minutes of installing."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from tools.release import dependencies, installs, versions


@pytest.mark.parametrize("extra", ["", *installs.small(versions.extras()), "services", "services[push]"])
def test_what_an_extra_promises_exists(extra: str) -> None:
    """Each module that the check imports can be found, so a module that moves is noticed at once."""
    assert [module for module in installs.promised(extra) if find_spec(module) is None] == []


def test_what_is_described_has_all_that_users_install() -> None:
    """Both wheels, each extra but the one with PyTorch, and none that is for working on the project."""
    library, services = dependencies.everything([Path("library.whl"), Path("services.whl")])
    assert services == "services.whl[push]"
    assert set(library.removeprefix("library.whl[").removesuffix("]").split(",")) == {*versions.extras()} - {
        "minilm"
    }
    assert not {"test", "check", "bench", "docs", "release"} & {*versions.extras()}


def test_the_version_is_the_same_everywhere() -> None:
    """Both distributions, the dependency between them, the citation and the changelog have it."""
    assert versions.problems(final=False) == []


def test_a_version_is_set_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `set-version` only the changelog's entry is missing."""
    for name in ("pyproject.toml", "services/pyproject.toml", "CITATION.cff", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(versions.ROOT / name, tmp_path / name)
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    versions.set_version("7.8.9")
    assert versions.version() == "7.8.9"
    assert versions.problems(final=True) == ["CHANGELOG.md has no entry for 7.8.9"]
