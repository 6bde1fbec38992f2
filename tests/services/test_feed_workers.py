"""Several workers as processes: one of them clusters a user, and one that dies is stood in for."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ephemera import Store, connect
from ephemera.embedded import Postgres, Valkey
from ephemera_services.feed import Settings
from ephemera_services.feed.keys import ClusterUpdate, FeedKeys
from tests.services.feed_users import Caller, feeding, texts, until, working

ENDS = {"rebuilt", "busy", "nothing new", "not due", "overtaken"}


@pytest.fixture(scope="module")
def caller(places: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """A running service."""
    with feeding(tmp_path_factory.mktemp("logs"), places) as running:
        yield running


async def test_two_workers_on_one_user(caller: Caller, places: dict[str, str], tmp_path: Path) -> None:
    """A user who is handed over twenty times, to two processes, is clustered once."""
    caller.publish("crowded", *texts("space", 40))
    caller.subscribe("ann", "crowded", plan="pro")
    keys = FeedKeys(Settings())
    async with connect(places["EPHEMERA_URL"], keys.catalogue) as store:
        with working(tmp_path, places) as one, working(tmp_path, places) as other:
            await _both_wait(store)
            await store[keys.updates].publish_many([ClusterUpdate("ann", "novelty", 40)] * 20)
            until(lambda: len(one.runs("ann") + other.runs("ann")) >= 20, "all of them are done")
            until(lambda: "rebuilt" in one.runs("ann") + other.runs("ann"), "one of them has clustered")
            until(lambda: caller.http.get("/feed/planner").json()["queue"] == 0, "an empty queue")
        runs = one.runs("ann") + other.runs("ann")
    assert set(runs) <= ENDS
    assert runs.count("rebuilt") == 1
    assert one.runs("ann"), "both have worked"
    assert other.runs("ann"), "both have worked"
    assert caller.status("ann")["cluster_version"] == 1
    assert caller.sql("SELECT cluster_version FROM feed.clusters WHERE user_id = 'ann'") == [(1,)]


async def _both_wait(store: Store) -> None:
    """Wait until two workers are blocked at the stream: what comes now is given to both, two events each."""

    def waits(client: str) -> bool:
        return " cmd=xreadgroup " in client and " flags=b " in client

    nodes = store.client("queue").nodes()
    async with asyncio.timeout(60):
        while True:
            listed = [(await node.call("CLIENT", "LIST")).decode() for node in nodes]
            if sum(waits(client) for clients in listed for client in clients.splitlines()) >= 2:
                return
            await asyncio.sleep(0.01)


def test_a_worker_killed_in_mid_run(caller: Caller, places: dict[str, str], tmp_path: Path) -> None:
    """What it was at is done by another one, and its processes are gone with it."""
    caller.publish("long", *texts("banks", 30))
    with working(tmp_path, places) as doomed:
        caller.subscribe("bob", "long", plan="pro")
        running = "SELECT 1 FROM feed.user_stats WHERE user_id = 'bob' AND running_until > now()"
        until(lambda: caller.sql(running), "a run")
        doomed.process.send_signal(signal.SIGKILL)
        doomed.process.wait()
    survived = caller.status("bob")["cluster_version"]  # it may have been as fast as we are
    with working(tmp_path, places) as heir:
        until(lambda: caller.status("bob")["cluster_version"] == 1, "the heir's run")
        until(lambda: survived or "rebuilt" in heir.runs("bob"), "it says so, once it is in SQL")
    assert len(caller.feed("bob")["items"]) >= 1


async def test_a_run_that_fails_is_a_dead_letter(
    caller: Caller, places: dict[str, str], tmp_path: Path
) -> None:
    """After three attempts it is put aside with its error, and the others are served meanwhile."""
    caller.publish("broken", *texts("space", 5))
    caller.sql("UPDATE feed.insights SET embedding = %s WHERE channel_id = 'broken' AND seq = 3", b"abc")
    caller.publish("sound", *texts("sport", 5))
    keys = FeedKeys(Settings())
    async with connect(places["EPHEMERA_URL"], keys.catalogue) as store:
        with working(tmp_path, places) as worker:
            caller.subscribe("unlucky", "broken", plan="pro")
            caller.subscribe("lucky", "sound", plan="pro")
            caller.wait_for_version("lucky", 1)
            until(lambda: worker.metric('feed_errors_total{where="run"}') >= 3, "three attempts")
            async with asyncio.timeout(60):
                while not (dead := await store[keys.updates].dead_letters()):
                    await asyncio.sleep(0.05)
    assert [(letter.event["user_id"], letter.deliveries) for letter in dead] == [("unlucky", 3)]
    assert "ValueError" in dead[0].error
    assert caller.status("unlucky")["cluster_version"] == 0


def test_a_worker_stops_cleanly_on_sigterm(caller: Caller, places: dict[str, str], tmp_path: Path) -> None:
    """It ends by itself, with exit code 0, and logs nothing as an error."""
    with working(tmp_path, places) as worker:
        caller.publish("calm", *texts("sport", 5))
        caller.subscribe("eve", "calm", plan="pro")
        caller.wait_for_version("eve", 1)
        worker.process.terminate()
        assert worker.process.wait(40) == 0
    assert [line for line in worker.lines() if line["level"] == "error"] == []


def test_a_worker_whose_servers_hang_ends(
    places: dict[str, str], tmp_path: Path, valkey: Valkey, postgres: Postgres
) -> None:
    """A worker that is stopped while PostgreSQL and Redis hang ends by itself and is not aborted."""
    with working(tmp_path, places) as worker:
        for each in (valkey, postgres):
            each.pause()
        try:
            until(lambda: b"waits for its server" in worker.log.read_bytes(), "it notices")
            worker.process.terminate()
            assert worker.process.wait(40) == 0
        finally:
            for each in (valkey, postgres):
                each.resume()
