"""What a reader of a feed sees: its order, its pages, what is read and unread, and that there is news."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from ephemera_services.feed.item_score import score
from tests.services.feed_client import Client, feed_client
from tests.services.feed_users import texts

NOW = datetime(2026, 6, 1, tzinfo=UTC)
TOPICS = (
    "Glacier melts in Norway",
    "Orchestra tours across Chile",
    "Volcano wakes near Naples",
    "Library opens in Nairobi",
    "Ferry collides off Genoa",
    "Beekeepers protest at Brussels",
    "Marathon record falls in Chicago",
)
ENDS = ("says a witness", "according to police", "as experts warned", "on Monday morning")


@pytest.fixture
async def client(places: dict[str, str]) -> AsyncIterator[Client]:
    """A client of a service in this process."""
    async with feed_client(places) as opened:
        yield opened


async def _seven_items(client: Client, user: str) -> None:
    await client.publish(f"of-{user}", *(f"{topic}, {end}" for end in ENDS for topic in TOPICS))
    await client.subscribed(user, f"of-{user}")
    await client.rebuild(user)


async def test_pages_of_a_version_miss_and_repeat_nothing(client: Client) -> None:
    """Following the cursors gives each item once, in the order of their scores, and again the same."""
    await _seven_items(client, "paula")
    whole = (await client.feed("paula", limit=100))["items"]
    assert len(whole) == len(TOPICS)
    assert [item["score"] for item in whole] == sorted((item["score"] for item in whole), reverse=True)
    for _ in range(2):
        page, seen = await client.feed("paula", limit=3), []
        while True:
            seen += page["items"]
            if page["next_cursor"] is None:
                break
            page = await client.feed("paula", limit=3, cursor=page["next_cursor"])
        assert seen == whole


async def test_a_cursor_ends_with_its_version(client: Client) -> None:
    """A cursor of an older version, or one that a client made up, is a 410 that says what to do."""
    await _seven_items(client, "carla")
    cursor = (await client.feed("carla", limit=2))["next_cursor"]
    for made_up in ("1.x", "999.2", "1.-2", "' OR 1=1", "1.2.3"):
        problem = await client.ask("GET", "/feed/users/carla", status=410, params={"cursor": made_up})
        assert "first page" in problem["detail"]
    beyond = await client.feed("carla", cursor="1.5000")
    assert (beyond["items"], beyond["next_cursor"]) == ([], None)
    await client.publish("of-carla", *texts("space", 4))
    await client.rebuild("carla")
    await client.ask("GET", "/feed/users/carla", status=410, params={"cursor": cursor})


async def test_a_lock_that_another_program_wrote_stops_no_reader(client: Client) -> None:
    """A key of another type in place of the lock: the feed is read without it."""
    await _seven_items(client, "lucy")
    await client.aggregator.store.client("queue").call("HSET", "lock:feed:{lucy}", "another", "type")
    assert len((await client.feed("lucy"))["items"]) == len(TOPICS)


async def test_near_duplicates_of_an_item_are_merged(client: Client) -> None:
    """Texts that differ in a small word are one insight of the item, which lists the others."""
    wire = "The crew capsule docked with the space station after a flight of two days"
    await client.publish("wire", wire, wire + ".", wire.upper(), source="Wire")
    other = "A crew of four arrived at the space station; their capsule docked by itself on the second day"
    await client.publish("wire", other, source="Other", url="https://other.example/crew")
    await client.subscribed("will", "wire")
    await client.rebuild("will")
    [item] = (await client.feed("will"))["items"]
    assert (item["size"], item["distinct"], item["new"], item["unread"]) == (4, 2, 4, 4)
    assert item["sources"] == ["Wire", "Other"]
    path = f"/feed/users/will/items/{item['item_id']}/insights"
    insights = (await client.ask("GET", path))["insights"]
    assert sorted(len(each["duplicate_ids"]) for each in insights) == [0, 2]
    named = {each["insight_id"] for each in insights} | {
        i for each in insights for i in each["duplicate_ids"]
    }
    assert named == set(item["insight_ids"])
    assert {each["url"] for each in insights} == {None, "https://other.example/crew"}
    await client.ask("GET", "/feed/users/will/items/999999999/insights", status=404)


async def test_what_was_read_stays_read_in_the_next_version(client: Client) -> None:
    """A mark makes an item read; with two new insights in the next version, two of it are unread."""
    await client.publish("marks", *texts("space", 5))
    await client.publish("marks", *texts("banks", 4))
    await client.subscribed("mara", "marks")
    await client.rebuild("mara")
    items = (await client.feed("mara"))["items"]
    space = next(item for item in items if item["size"] == 5)
    path = f"/feed/users/mara/items/{space['item_id']}/read"
    for _ in range(2):  # a mark is idempotent
        await client.ask("PUT", path, status=204)
    unread = {item["item_id"]: item["unread"] for item in (await client.feed("mara"))["items"]}
    assert sorted(unread.values()) == [0, 4]
    assert unread[space["item_id"]] == 0
    await client.publish("marks", *texts("space", 7)[5:], *texts("sport", 3))
    await client.rebuild("mara")
    newer = {item["item_id"]: item for item in (await client.feed("mara"))["items"]}
    assert (newer[space["item_id"]]["unread"], newer[space["item_id"]]["new"]) == (2, 2)
    await client.ask("DELETE", path, status=204)
    again = {item["item_id"]: item["unread"] for item in (await client.feed("mara"))["items"]}
    assert again[space["item_id"]] == 7
    await client.ask("PUT", "/feed/users/mara/items/999999999/read", status=404)
    await client.ask("PUT", f"/feed/users/nobody/items/{space['item_id']}/read", status=404)


async def _two_versions(client: Client, user: str) -> tuple[dict[str, Any], str]:
    """An item as version 1 shows it, which has three more insights in version 2, and its path."""
    await client.publish(f"of-{user}", *texts("space", 5))
    await client.subscribed(user, f"of-{user}")
    await client.rebuild(user)
    [item] = (await client.feed(user))["items"]
    await client.publish(f"of-{user}", *texts("space", 8)[5:])
    await client.rebuild(user)
    return item, f"/feed/users/{user}/items/{item['item_id']}"


async def test_a_mark_is_of_the_version_that_was_shown(client: Client) -> None:
    """A mark that names version 1 leaves unread what version 2 added to the item; by default all is read."""
    shown, path = await _two_versions(client, "nora")
    insights = (await client.ask("GET", f"{path}/insights", params={"version": 1}))["insights"]
    assert {each["insight_id"] for each in insights} <= set(shown["insight_ids"])
    await client.ask("PUT", f"{path}/read", params={"version": 1}, status=204)
    [item] = (await client.feed("nora"))["items"]
    assert (item["item_id"], item["size"], item["unread"]) == (shown["item_id"], 8, 3)
    await client.ask("PUT", f"{path}/read", status=204)
    await client.ask("DELETE", f"{path}/read", params={"version": 1}, status=204)
    [item] = (await client.feed("nora"))["items"]
    assert item["unread"] == 5
    await client.ask("PUT", f"/feed/users/nobody/items/{shown['item_id']}/read?version=1", status=404)


async def test_a_version_that_is_not_stored_is_gone(client: Client) -> None:
    """A mark that names a version which ended, or never was, changes nothing and says what to do."""
    _, path = await _two_versions(client, "gwen")
    for number in range(3):
        await client.publish("of-gwen", *texts("banks", 3 * number + 3)[-3:])
        await client.rebuild("gwen")
    for version in (1, 99):
        for method, way in (("GET", "insights"), ("PUT", "read"), ("DELETE", "read")):
            problem = await client.ask(method, f"{path}/{way}", params={"version": version}, status=410)
            assert "read the feed again" in problem["detail"]
    unread = {item["item_id"]: item["unread"] for item in (await client.feed("gwen"))["items"]}
    assert unread[int(path.rpartition("/")[2])] == 8


async def test_a_feed_counts_the_items_that_it_omits(client: Client) -> None:
    """A feed has the first 100 items of a version, and each page of it says how many there are beyond."""
    await client.publish("many", *texts("space", 4))
    await client.subscribed("omar", "many")
    await client.rebuild("omar")
    clusters = client.aggregator.planner.tables.clusters
    async with client.aggregator.engine.begin() as sql:
        of_omar = clusters.c.user_id == "omar"
        [cluster] = (await sql.execute(sa.select(clusters.c.clusters).where(of_omar))).scalar_one()
        await sql.execute(sa.update(clusters).where(of_omar).values(clusters=[cluster] * 103))
    page = await client.feed("omar", limit=100)
    assert (len(page["items"]), page["next_cursor"], page["omitted"]) == (100, None, 3)
    assert (await client.feed("omar", limit=10))["omitted"] == 3


async def test_a_reader_learns_of_a_new_version(client: Client) -> None:
    """A listener gets the version that there is, and each one after it when it is saved."""
    await client.publish("alerts", *texts("space", 4))
    await client.subscribed("lena", "alerts")
    listener = await client.aggregator.listen("lena", None)
    assert listener is not None
    async with listener:
        [first] = await listener.catch_up()
        assert b'"cluster_version":0' in first.data
        await client.rebuild("lena")
        versions = b""
        while b'"cluster_version":1' not in versions:
            versions += b"".join(update.data for update in await listener.next_batch())
    assert await client.aggregator.listen("unknown", None) is None
    await client.ask("GET", "/feed/users/unknown/events", status=404)


def _score(*, distinct: int = 4, new: int = 4, size: int = 4, hours: float = 0) -> float:
    return score(distinct=distinct, new=new, size=size, newest=NOW - timedelta(hours=hours), now=NOW)


def test_recent_large_and_novel_items_rank_first() -> None:
    """All else equal, the newer, the one with more distinct insights, and the one with more news is first."""
    assert _score(hours=1) > _score(hours=24) > _score(hours=72) > 0
    assert _score(hours=24) == pytest.approx(_score() / 2)
    assert _score(distinct=4, size=4) > _score(distinct=1, size=4)
    assert _score(new=4) > _score(new=1) > _score(new=0) == pytest.approx(_score() / 4)
    assert _score(hours=-5) == _score(), "a clock that is ahead is no advantage"
