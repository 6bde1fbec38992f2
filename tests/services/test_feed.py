"""The feed service and a worker, as processes: what users and publishers do, over HTTP and over gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from tests.services.feed_users import Caller, Worker, feeding, texts, until, working
from tests.services.services import SCRAPER


@pytest.fixture(scope="module")
def caller(places: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """A running service."""
    with feeding(tmp_path_factory.mktemp("logs"), places, **SCRAPER) as running:
        yield running


@pytest.fixture(scope="module")
def worker(
    caller: Caller, places: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Worker]:
    """A running worker of the same service."""
    with working(tmp_path_factory.mktemp("logs"), places) as running:
        yield running


def test_the_whole_story(caller: Caller, worker: Worker) -> None:
    """Insights become clusters, a version and a feed, which is kept until there is a newer version."""
    caller.publish("news", *texts("space", 6))
    caller.publish("money", *texts("banks", 6))
    caller.subscribe("ann", "nothing", plan="pro")
    assert caller.feed("ann")["items"] == []
    caller.subscribe("ann", "news", "money")
    until(lambda: caller.status("ann")["pending"] == 0, "everything clustered")
    version = caller.status("ann")["cluster_version"]

    feed = caller.feed("ann")
    assert feed["cluster_version"] == version
    assert feed["summarized_by"] == "extractive"
    assert sorted(item["channel_ids"] for item in feed["items"]) == [["money"], ["news"]]
    assert {item["size"] for item in feed["items"]} == {6}
    (space,) = [item for item in feed["items"] if item["channel_ids"] == ["news"]]
    assert space["title"].startswith("The rocket launch")
    assert caller.feed("ann") == feed, "it was kept, with the moment at which it was built"
    assert _metric(caller, 'feed_reads_total{how="cached"}') >= 1

    caller.publish("news", *texts("sport", 4))
    caller.wait_for_version("ann", version + 1)
    newer = caller.feed("ann")
    assert newer["cluster_version"] > version
    assert any(item["title"].startswith("The striker") for item in newer["items"])
    kept = caller.sql("SELECT cluster_version FROM feed.feeds WHERE user_id = 'ann'")
    assert kept == [(newer["cluster_version"],)], "the older version's was removed"

    answer = caller.http.get("/feed/planner")
    assert answer.status_code == 200, answer.text
    seen = answer.json()
    assert seen["mode"] == "redis"
    assert seen["last_tick"]["at"] is not None
    until(lambda: caller.http.get("/feed/planner").json()["queue"] == 0, "the worker has recorded its run")
    assert set(worker.runs("ann")) >= {"rebuilt"}
    assert worker.metric("feed_version_bumps_total") == newer["cluster_version"]
    assert worker.metric("feed_run_seconds_count") == newer["cluster_version"]
    assert worker.metric("feed_dataset_size_sum") >= 12


def test_the_same_over_grpc(caller: Caller, worker: Worker) -> None:
    """Each method of Aggregator does what its route does."""
    with caller.remote() as remote:
        seqs = [
            remote.call("PublishInsight", channel_id="arena", text=text).seq for text in texts("sport", 5)
        ]
        assert seqs == [1, 2, 3, 4, 5]
        assert remote.call("Subscribe", user_id="bob", channel_id="arena", plan="pro").subscribed
        assert not remote.call("Subscribe", user_id="bob", channel_id="arena").subscribed
        remote.call("Touch", user_id="bob")
        until(lambda: remote.call("GetStatus", user_id="bob").pending == 0, "bob's clusters")
        status = remote.call("GetStatus", user_id="bob")
        assert status.plan == "pro"
        assert list(status.channel_ids) == ["arena"]
        assert not status.queued
        assert status.last_clustered_at.seconds > status.last_enqueued_at.seconds - 60 > 0
        feed = remote.call("GetFeed", user_id="bob")
        over_http = caller.feed("bob")
        assert feed.cluster_version == status.cluster_version == over_http["cluster_version"]
        assert [item.title for item in feed.items] == [item["title"] for item in over_http["items"]]
        assert [list(item.insight_ids) for item in feed.items] == [
            item["insight_ids"] for item in over_http["items"]
        ]
        assert feed.built_at.ToJsonString()[:19] == over_http["built_at"][:19]
        assert remote.call("Unsubscribe", user_id="bob", channel_id="arena").unsubscribed
        assert not remote.call("Unsubscribe", user_id="bob", channel_id="arena").unsubscribed
        assert list(remote.call("GetStatus", user_id="bob").channel_ids) == []


def test_insights_and_reading_over_grpc(caller: Caller, worker: Worker) -> None:
    """Bulk publication, origins, the insights of an item, pages and read marks do what their routes do."""
    url = "https://news.example/derby"
    origin = {"source": "Example Daily", "url": url, "language": "en"}
    stories = [*texts("sport", 4), *texts("banks", 4)]
    with caller.remote() as remote:
        insights: list[dict[str, object]] = [{"channel_id": "mixed", "text": text} for text in stories]
        insights[0] |= {**origin, "published_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)}
        published = remote.call("PublishInsights", insights=insights).insights
        assert [each.seq for each in published] == list(range(1, 9))
        again = remote.call("PublishInsight", channel_id="mixed", text="Again", url=url)
        assert (again.duplicate, again.insight_id) == (True, published[0].insight_id)
        read = remote.call("GetInsight", insight_id=again.insight_id)
        assert {name: getattr(read, name) for name in origin} == origin
        assert read.published_at.ToJsonString() == "2026-01-02T03:04:05Z"
        assert not remote.call("GetInsight", insight_id=published[1].insight_id).HasField("url")

        remote.call("Subscribe", user_id="gina", channel_id="mixed", plan="pro")
        until(lambda: remote.call("GetStatus", user_id="gina").pending == 0, "gina's clusters")
        page = remote.call("GetFeed", user_id="gina", limit=1)
        assert (len(page.items), page.items[0].unread) == (1, 4)
        second = remote.call("GetFeed", user_id="gina", limit=1, cursor=page.next_cursor)
        assert second.items[0].item_id != page.items[0].item_id
        assert not second.HasField("next_cursor")
        item = {"user_id": "gina", "item_id": page.items[0].item_id}
        members = remote.call("GetItemInsights", **item).insights
        assert sum(1 + len(each.duplicate_ids) for each in members) == 4
        remote.call("MarkRead", **item)
        assert remote.call("GetFeed", user_id="gina").items[0].unread == 0
        remote.call("MarkRead", unread=True, **item)
        assert remote.call("GetFeed", user_id="gina").items[0].unread == 4
        remote.call("MarkRead", version=page.cluster_version, **item)
        assert remote.call("GetFeed", user_id="gina").items[0].unread == 0
        for method in ("MarkRead", "GetItemInsights"):
            code, said = remote.refused(method, version=99, **item)
            assert (code, "read the feed again" in said) == ("FAILED_PRECONDITION", True)

        assert remote.refused("GetInsight", insight_id=0)[0] == "NOT_FOUND"
        assert remote.refused("MarkRead", user_id="gina", item_id=0)[0] == "NOT_FOUND"
        assert remote.refused("GetItemInsights", user_id="gina", item_id=0)[0] == "NOT_FOUND"
        assert remote.refused("GetFeed", user_id="gina", cursor="99.1")[0] == "FAILED_PRECONDITION"
        assert remote.refused("GetFeed", user_id="gina", limit=0)[0] == "INVALID_ARGUMENT"
        wrong = remote.refused("PublishInsight", channel_id="mixed", text="x", url="javascript:alert(1)")
        assert wrong[0] == "INVALID_ARGUMENT"
        far = {"seconds": 2**40}
        code, said = remote.refused("PublishInsight", channel_id="mixed", text="x", published_at=far)
        assert (code, said.partition(":")[0]) == ("INVALID_ARGUMENT", "published_at")


def test_open_readers_are_notified(caller: Caller, worker: Worker) -> None:
    """A stream of server-sent events begins with the current version and has each new one."""
    caller.publish("live", *texts("space", 4))
    caller.subscribe("olga", "live", plan="pro")
    caller.wait_for_version("olga", 1)
    with caller.http.stream("GET", "/feed/users/olga/events", timeout=60) as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        lines = events.iter_lines()
        next(line for line in lines if '"cluster_version":' in line)
        version = caller.status("olga")["cluster_version"]
        caller.publish("live", *texts("sport", 4))
        next(line for line in lines if f'"cluster_version":{version + 1}' in line)


def test_grpc_refuses_what_http_refuses(caller: Caller) -> None:
    """What is wrong is INVALID_ARGUMENT with its field, who is unknown NOT_FOUND."""
    with caller.remote() as remote:
        for method in ("GetFeed", "GetStatus"):
            code, said = remote.refused(method, user_id="unknown")
            assert code == "NOT_FOUND"
            assert "'unknown'" in said
        assert remote.refused("GetFeed", user_id="no body")[0] == "INVALID_ARGUMENT"
        code, said = remote.refused("PublishInsight", channel_id="space", text="")
        assert (code, said.partition(":")[0]) == ("INVALID_ARGUMENT", "text")
        assert remote.refused("Subscribe", user_id="a", channel_id="b", plan="gold")[0] == "INVALID_ARGUMENT"
        assert remote.refused("Subscribe", user_id="a" * 200, channel_id="b")[0] == "INVALID_ARGUMENT"
        code, _ = remote.refused("PublishInsight", channel_id="space", text="x" * 70_000)
        assert code in ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT")


def test_many_calls_at_once(caller: Caller) -> None:
    """Hundreds of calls over gRPC and HTTP at once give each insight its own seq, and no error is logged."""
    with caller.remote() as remote, ThreadPoolExecutor(16) as threads:

        def over_grpc(number: int) -> int:
            return int(remote.call("PublishInsight", channel_id="rush", text=f"insight {number}").seq)

        def over_http(number: int) -> int:
            form = {"channel_id": "rush", "text": f"insight {number}"}
            return int(caller.http.post("/feed/insights", json=form).json()["seq"])

        calls = [threads.submit(over_grpc if number % 2 else over_http, number) for number in range(300)]
        assert sorted(call.result() for call in calls) == list(range(1, 301))
    assert [line for line in caller.served.lines() if line["level"] == "error"] == []


def test_unknown_users_and_wrong_requests(caller: Caller) -> None:
    """Who never subscribed has no feed and no status, and is not made known by a touch."""
    assert caller.http.post("/feed/users/unknown/touch").status_code == 204
    assert caller.http.get("/feed/users/unknown").status_code == 404
    assert caller.http.get("/feed/users/unknown/status").status_code == 404
    assert caller.http.delete("/feed/users/unknown/subscriptions/space").json() == {"unsubscribed": False}
    wrong = caller.http.put("/feed/users/ann/subscriptions/space", json={"plan": "gold"})
    assert wrong.status_code == 422
    assert caller.http.post("/feed/insights", json={"channel_id": "a/b", "text": "x"}).status_code == 422


def _metric(caller: Caller, name: str) -> float:
    token = SCRAPER["EPHEMERA_METRICS_TOKEN"]
    shown = caller.http.get("/metrics", headers={"authorization": f"Bearer {token}"}).text
    return sum(float(line.rpartition(" ")[2]) for line in shown.splitlines() if line.startswith(f"{name} "))
