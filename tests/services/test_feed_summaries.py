"""A feed in words: by a model behind an endpoint, and by the insights' own sentences when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from ephemera_services.feed.summarizer import ExtractiveSummarizer
from tests.services.feed_fixtures import World, feed_fixtures


class Endpoint:
    """An endpoint that speaks the chat route, and counts."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[Any] = []
        self.headers: list[str] = []
        self.status = 200
        self.said: str | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request and its answer."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.partition(":")[2])
            for line in head.splitlines()
            if line.lower().startswith("content-length")
        )
        asked = msgspec.json.decode(await reader.readexactly(length))
        self.headers.append(head)
        self.asked.append(asked)
        clusters = msgspec.json.decode(asked["messages"][1]["content"])
        items = [{"title": f"About {len(texts)}", "summary": texts[0][:20]} for texts in clusters]
        said = self.said if self.said is not None else msgspec.json.encode({"items": items}).decode()
        body = msgspec.json.encode({"choices": [{"message": {"content": said}}]})
        writer.write(
            f"HTTP/1.1 {self.status} X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
            + body
        )
        await writer.drain()
        writer.close()


@asynccontextmanager
async def _endpoint() -> AsyncIterator[Endpoint]:
    endpoint = Endpoint()
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0)
    endpoint.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        yield endpoint


async def _clustered(world: World, user: str) -> None:
    await world.publish(f"about-{user}", 5, "banks")
    await world.aggregator.subscribe(user, f"about-{user}", "pro")
    assert (await world.rebuild(user)).outcome == "rebuilt"


async def test_the_model_words_a_version_once(places: dict[str, str]) -> None:
    """Many readers at once have the model asked once, and all get its words; a new version asks again."""
    async with _endpoint() as endpoint, feed_fixtures(places, model_url=endpoint.url, model="tiny") as world:
        await _clustered(world, "ann")
        feeds = await asyncio.gather(*(world.aggregator.feed("ann") for _ in range(20)))
        assert len(endpoint.asked) == 1
        assert {feed.summarized_by for feed in feeds if feed} == {"tiny"}
        assert {feed.items[0].title for feed in feeds if feed} == {"About 5"}
        assert endpoint.asked[0]["model"] == "tiny"
        assert "authorization" not in endpoint.headers[0].lower()
        await world.publish("about-ann", 5, "sport")
        await world.rebuild("ann")
        newer = await world.aggregator.feed("ann")
        assert newer is not None
        assert (newer.cluster_version, len(endpoint.asked)) == (2, 2)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (500, None),
        (200, "no JSON"),
        (200, '{"items": []}'),
        (200, '{"items": [{"title": 7}]}'),
        (200, '{"items": [{"title": "a\\u0000b", "summary": "which SQL cannot store"}]}'),
        (200, f'{{"items": [{{"title": "{"very " * 200}long", "summary": ""}}]}}'),
    ],
)
async def test_a_model_that_fails_is_stood_in_for(
    places: dict[str, str], status: int, said: str | None
) -> None:
    """The feed is worded by its own sentences, says so, and is tried again within a minute."""
    async with _endpoint() as endpoint, feed_fixtures(places, model_url=endpoint.url, model="tiny") as world:
        endpoint.status, endpoint.said = status, said
        user = f"bob-{status}-{len(said or '')}"
        await _clustered(world, user)
        feed = await world.aggregator.feed(user)
        assert feed is not None
        assert feed.summarized_by == "extractive"
        assert feed.items[0].title.startswith("The central bank")
        kept = world.declared.tables.feeds
        rows = await world.sql(kept.select().where(kept.c.user_id == user))
        assert (rows[0].expires_at - rows[0].built_at).total_seconds() < 70
        assert (
            world.aggregator.metrics.registry.get_sample_value("feed_errors_total", {"where": "model"}) == 1
        )


async def test_an_unavailable_model(places: dict[str, str]) -> None:
    """An endpoint that does not answer fails the model, not the read."""
    async with feed_fixtures(places, model_url="http://127.0.0.1:1/v1") as world:
        await _clustered(world, "carl")
        feed = await world.aggregator.feed("carl")
        assert feed is not None
        assert feed.summarized_by == "extractive"


async def test_a_title_is_what_is_common() -> None:
    """The sentence with most of what the texts share is the title, and words of all clusters do not count."""
    quake = [
        "Trains stop in Japan",
        "Japan lifts tsunami warning after the earthquake",
        "Earthquake shakes Japan",
    ]
    other = ["The end of the season in the south of the country", "The south waits for the end of the season"]
    found = await ExtractiveSummarizer().summarize([quake, other])
    assert found[0].title == quake[2]
    assert found[1].title in other
    assert [each.title for each in await ExtractiveSummarizer().summarize([["…"], []])] == ["…", ""]


async def test_extracts_are_the_texts_own_words() -> None:
    """A title is the first sentence nearest the middle, a summary up to three different ones, all bounded."""
    [worded] = await ExtractiveSummarizer().summarize(
        [["Rates stay. More follows.", "RATES STAY. Again.", "Yields fall", "x " * 400, "unseen"]]
    )
    assert worded.title == "Rates stay."
    assert worded.summary.startswith("Rates stay. Yields fall. x x")
    assert worded.summary.endswith("…")
    assert len(worded.summary) < 300
