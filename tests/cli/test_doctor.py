"""`ephemera doctor`."""

from __future__ import annotations

import json

from ephemera import embedded
from ephemera.embedded import free_ports
from tests.cli.commands import ephemera


def test_a_healthy_server() -> None:
    """Figures, rules and the memory of keyspaces are shown, with exit code 0."""
    with embedded.valkey(config={"maxmemory": "64mb", "maxmemory-policy": "allkeys-lru"}) as server:
        outcome = ephemera(
            *("doctor", "--url", server.url, "--role", "cache", "--watch", "100ms"),
            *("--catalogue", "tests.operations.test_health:news"),
        )
    assert outcome.code == 0, outcome.err
    for said in ("hit ratio >= 85%", "evictions = 0", "news:page:{id}", "it evicts"):
        assert said in outcome.out, outcome.out
    warnings = [line for line in outcome.out.splitlines() if line.startswith("warning ")]
    if not warnings:
        assert "No problems." in outcome.out, outcome.out
    else:  # this machine is busy, which is a warning with good reason
        assert [line.partition(":")[0] for line in warnings] == ["warning latency"], outcome.out


def test_an_unreachable_server() -> None:
    """The problem is printed on stdout with advice and exit code 1; no password is shown."""
    [port] = free_ports(1)
    url = f"redis://:hidden-secret@127.0.0.1:{port}"
    outcome = ephemera("doctor", "--url", url, "--catalogue", "tests.operations.test_health:news")
    assert outcome.code == 1
    assert "is the server running, and is the URL right?" in outcome.out
    assert "hidden-secret" not in outcome.out + outcome.err


def test_json_has_everything() -> None:
    """The JSON has health, capacity and the days until full."""
    with embedded.valkey() as server:
        outcome = ephemera(
            *("doctor", "--url", server.url, "--watch", "100ms", "--json"),
            *("--catalogue", "tests.operations.test_health:news"),
        )
    said = json.loads(outcome.out)
    assert said["health"]["servers"][0]["checks"]
    assert {space["pattern"] for space in said["capacity"]["keyspaces"]} >= {"news:page:{id}", "news:jobs"}
    assert said["days_until_full"] is None
    assert outcome.code == (1 if said["health"]["status"] == "problem" else 0)
