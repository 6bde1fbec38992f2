"""What `make release-check` relies on, without its minutes of installing."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tools.release import installs, versions


@pytest.mark.parametrize("extra", ["", *installs.small(versions.extras()), "services", "services[push]"])
def test_what_an_extra_promises_exists(extra: str) -> None:
    """Each module that the check imports can be found, so a module that moves is noticed at once."""
    assert [module for module in installs.promised(extra) if find_spec(module) is None] == []


def test_the_version_is_the_same_everywhere() -> None:
    """Both distributions have it, the services require it, and the changelog has an entry."""
    assert versions.problems(final=False) == []
