"""Each adapter needs its own extra, and no other."""

from __future__ import annotations

import subprocess
import sys

import pytest

ADAPTERS = {
    **{each: each for each in ("flask", "django", "channels", "socketio", "langgraph")},
    "langchain": "langchain_core",
    "redis-py": "redis",
}
"""The package of each extra."""
FRAMEWORKS = {*ADAPTERS.values(), "fastapi", "starlette", "litestar", "sqlalchemy", "celery", "typer"}
NEEDED = {"langgraph": {"langchain_core"}, "channels": {"django"}}
"""What an adapter's own framework needs of the others."""


def imported(adapter: str, missing: set[str]) -> subprocess.CompletedProcess[str]:
    """What importing an adapter gives where some packages are not installed."""
    module = adapter.replace("-", "_")
    source = f"import sys; sys.modules.update(dict.fromkeys({missing!r}))\nimport ephemera.adapters.{module}"
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_it_needs_nothing_else(adapter: str) -> None:
    """It can be imported where no other framework is installed."""
    done = imported(adapter, FRAMEWORKS - {ADAPTERS[adapter]} - NEEDED.get(adapter, set()))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_it_says_which_extra_is_missing(adapter: str) -> None:
    """Without its framework, the error names the extra."""
    assert f"pip install 'ephemera-data[{adapter}]'" in imported(adapter, {ADAPTERS[adapter]}).stderr
