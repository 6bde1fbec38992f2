"""`ephemera doctor`."""

from __future__ import annotations

import asyncio
import json

from ephemera import embedded
from ephemera.embedded import free_ports
from ephemera.wire import open_client
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


async def test_hot_keys_are_listed_on_request() -> None:
    """A key that gets most commands is named with its share; without the flag nothing is sampled."""
    with embedded.valkey() as server:
        command = ["doctor", "--url", server.url, "--watch", "100ms", "--json"]
        command += ["--catalogue", "tests.operations.test_health:news"]
        without = await asyncio.to_thread(ephemera, *command)
        assert json.loads(without.out)["hot_keys"] is None
        search = asyncio.create_task(asyncio.to_thread(ephemera, *command, "--hot-keys", "1m"))
        async with open_client(server.url) as client:
            while not search.done():  # until its sample is full
                await asyncio.gather(*(client.call("GET", "news:page:1") for _ in range(200)))
        [hot] = json.loads((await search).out)["hot_keys"]
    assert (hot["key"], hot["pattern"]) == ("news:page:1", "news:page:{id}")
    assert hot["share"] > 0.5
