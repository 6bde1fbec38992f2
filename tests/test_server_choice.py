"""The record of the suite's runs on several servers, and a cluster in the place of one server."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ephemera.embedded import Cluster
from tests import server_choice
from tests.server_choice import ClusterAsServer


def _config(server: str) -> Any:
    options = {"--server": server, "--record": True, "-k": ""}
    return SimpleNamespace(getoption=options.__getitem__, args=["tests"])


def _report(place: str, reason: str = "") -> Any:
    return SimpleNamespace(nodeid=f"{place}::test_it", longrepr=("file", 1, f"Skipped: {reason}"))


def test_a_run_replaces_its_own_folders_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another server, or another folder, gave before stays on the page; reasons are counted."""
    page = tmp_path / "servers.md"
    monkeypatch.setattr(server_choice, "PAGE", page)
    skipped = [_report("tests/web/test_a.py", "it has | one")] * 2
    server_choice.record(_config("redis"), {"passed": [_report("tests/wire/test_a.py")]})
    server_choice.record(_config("cluster"), {"skipped": skipped, "failed": [_report("tests/web/test_b.py")]})
    server_choice.record(_config("redis"), {"passed": [_report("tests/web/test_a.py")] * 3})
    text = page.read_text()
    assert "| tests/wire | 1 | 0 | 0 |" in text
    assert "| tests/web | 3 | 0 | 0 |" in text
    assert "| tests/web | 0 | 2 | 1 |" in text
    assert "| 2 | it has \\| one |" in text
    assert "`make test-redis`: 4 passed." in text


def test_a_cluster_in_the_place_of_a_server(cluster: Cluster, key: str) -> None:
    """A command goes to the node of its key, some to all masters, and what only one server has is a skip."""
    server = ClusterAsServer(cluster)
    for number in range(20):
        server.ask("SET", f"{key}:{number}", number)
    assert [server.ask("GET", f"{key}:{number}") for number in range(20)] == [f"{n}" for n in range(20)]
    assert len(server.ask("KEYS", f"{key}:*")) == 20
    with pytest.raises(pytest.skip.Exception, match="it asks one server for what is its own: INFO"):
        server.ask("INFO")
    for name in ("port", "kill"):
        with pytest.raises(pytest.skip.Exception, match="one server"):
            getattr(server, name)
