"""Insights over HTTP: their origin, bulk publication, what is refused, and a URL that is published twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.services.feed_client import Client, feed_client

ORIGIN = {
    "source": "Example Daily",
    "url": "https://news.example/rocket?id=7",
    "published_at": "2026-01-02T03:04:05Z",
    "language": "pt-BR",
}


@pytest.fixture
async def client(places: dict[str, str]) -> AsyncIterator[Client]:
    """A client of a service in this process."""
    async with feed_client(places) as opened:
        yield opened


async def test_an_insight_is_read_back_with_its_origin(client: Client) -> None:
    """Text, source, URL, published time and language are read as they were published, or null."""
    form = {"channel_id": "origins", "text": "The rocket reached its orbit.", **ORIGIN}
    published = await client.ask("POST", "/feed/insights", status=201, json=form)
    assert published["duplicate"] is False
    read = await client.ask("GET", f"/feed/insights/{published['insight_id']}")
    assert {name: read[name] for name in form} == form
    assert read["seq"] == 1
    plain = await client.ask("POST", "/feed/insights", json={"channel_id": "origins", "text": "Only words"})
    read = await client.ask("GET", f"/feed/insights/{plain['insight_id']}")
    assert [read[name] for name in ORIGIN] == [None] * 4
    await client.ask("GET", "/feed/insights/999999999", status=404)
    await client.ask("GET", "/feed/insights/0", status=422)


async def test_a_channel_has_a_url_once(client: Client) -> None:
    """The same URL again, however it was tracked, is the first insight and no novelty; elsewhere not."""
    form = {
        "channel_id": "once",
        "text": "First words",
        "url": "https://News.Example/a?x=1&utm_source=mail#top",
    }
    first = await client.ask("POST", "/feed/insights", status=201, json=form)
    again = {**form, "text": "Other words", "url": "https://news.example/a?x=1&fbclid=zz"}
    second = await client.ask("POST", "/feed/insights", status=200, json=again)
    assert (second["insight_id"], second["seq"]) == (first["insight_id"], 1)
    assert (first["duplicate"], second["duplicate"]) == (False, True)
    elsewhere = await client.ask("POST", "/feed/insights", status=201, json={**form, "channel_id": "other"})
    assert elsewhere["insight_id"] != first["insight_id"]
    read = await client.ask("GET", f"/feed/insights/{first['insight_id']}")
    assert (read["text"], read["url"]) == ("First words", "https://news.example/a?x=1")
    third = await client.ask("POST", "/feed/insights", json={"channel_id": "once", "text": "No URL"})
    assert third["seq"] == 2


async def test_a_url_that_is_published_by_many_at_once(client: Client) -> None:
    """Of many concurrent publications of a URL exactly one creates an insight."""
    form = {"channel_id": "rush", "text": "Breaking", "url": "https://news.example/breaking"}
    answers = await asyncio.gather(*(client.http.post("/feed/insights", json=form) for _ in range(12)))
    assert sorted(answer.status_code for answer in answers) == [200] * 11 + [201]
    assert {answer.json()["insight_id"] for answer in answers} == {answers[0].json()["insight_id"]}


async def test_bulk_publication_is_one_transaction(client: Client) -> None:
    """Up to 100 insights of several channels are published in their order, or none of them."""
    channels = ("zeta", "alpha", "zeta", "alpha")
    url = "https://news.example/bulk"
    insights: list[dict[str, Any]] = [
        {"channel_id": channel, "text": f"Text {number}"} for number, channel in enumerate(channels)
    ]
    insights += [{"channel_id": "zeta", "text": "With URL", "url": url}] * 2
    body = await client.ask("POST", "/feed/bulk/insights", json={"insights": insights})
    published = body["insights"]
    assert [each["channel_id"] for each in published] == [*channels, "zeta", "zeta"]
    assert [each["seq"] for each in published] == [1, 1, 2, 2, 3, 3]
    assert [each["duplicate"] for each in published] == [False] * 5 + [True]
    wrong = [{"channel_id": "zeta", "text": "Right"}, {"channel_id": "zeta", "text": ""}]
    await client.ask("POST", "/feed/bulk/insights", status=422, json={"insights": wrong})
    await client.ask("POST", "/feed/bulk/insights", status=422, json={"insights": []})
    many = [{"channel_id": "zeta", "text": "x"}] * 101
    await client.ask("POST", "/feed/bulk/insights", status=422, json={"insights": many})
    listed = await client.ask("GET", "/feed/insights", params={"channel_id": "zeta"})
    assert [each["text"] for each in listed["insights"]] == ["With URL", "Text 2", "Text 0"]


async def test_a_channel_is_read_newest_first(client: Client) -> None:
    """A page of a channel begins before a seq, so that following pages miss and repeat nothing."""
    await client.publish("pages", *(f"Text {number}" for number in range(1, 8)))
    seen, before = [], None
    while True:
        query = {"channel_id": "pages", "limit": 3, **({} if before is None else {"before": before})}
        found = (await client.ask("GET", "/feed/insights", params=query))["insights"]
        if not found:
            break
        seen += [each["seq"] for each in found]
        before = seen[-1]
    assert seen == [7, 6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "javascript:alert(1)"},
        {"url": "https://user:secret@news.example/"},
        {"url": "https://news.example/ä"},
        {"url": "https://news.example:port/"},
        {"url": "https:///nowhere"},
        {"url": "https://news.example/" + "x" * 2000},
        {"published_at": "2026-01-02T03:04:05"},
        {"published_at": "0001-01-01T00:00:00+14:00"},
        {"published_at": "9999-12-31T23:59:59-12:00"},
        {"language": "english please"},
        {"source": "two\nlines"},
        {"author": "nobody"},
    ],
    ids=lambda wrong: "-".join(f"{name}-{value[:20]}" for name, value in wrong.items()),
)
async def test_wrong_origins_are_refused(client: Client, wrong: dict[str, str]) -> None:
    """A URL that a page must not link to, a time without zone or far away, and a wrong language are a 422."""
    form = {"channel_id": "wrong", "text": "A text", **wrong}
    problem = await client.ask("POST", "/feed/insights", status=422, json=form)
    assert next(iter(wrong)) in problem["errors"][0]["at"] or "author" in wrong


async def test_every_route_needs_a_token(client: Client) -> None:
    """Whatever is below `/feed`, and whatever the method, is refused without a token."""
    routes = [route for route in client.app.routes if route.path.startswith("/feed")]
    assert len(routes) >= 14
    for route in routes:
        path = route.path.replace("{user_id}", "ann").replace("{channel_id}", "c")
        for method in route.methods:
            numbered = path.replace("{item_id}", "1").replace("{insight_id}", "1")
            response = await client.http.request(method, numbered, headers={"authorization": ""})
            assert response.status_code == 401, (method, path)
