"""What feed refuses to start with, what its README says of its settings, and its demonstration data."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

import ephemera_services.feed
from ephemera_services.feed import Settings, seed
from ephemera_services.feed.demo_data import STORIES
from ephemera_services.feed.service import Aggregator
from ephemera_services.runtime import InvalidSettings, read_settings, variable_names
from tests.cli.commands import ephemera as command
from tests.services.feed_fixtures import feed_fixtures

README = Path(ephemera_services.feed.__file__).with_name("README.md")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("WINDOW_DAYS", "29"),
        ("WINDOW_DAYS", "61"),
        ("TICK_SECONDS", "61"),
        ("FREE_NOVELTY", "0"),
        ("PRO_EVERY", "0s"),
        ("EMBEDDER", "magic"),
        ("GRPC_ADDRESS", "nowhere"),
        ("MAX_DIRTY_CHANNELS_PER_TICK", "none"),
        ("NOVELTY", "3"),
    ],
)
def test_what_cannot_work_is_refused_by_name(variable: str, value: str) -> None:
    """A setting out of its bounds, or one that does not exist, stops the start and is named."""
    with pytest.raises(InvalidSettings, match=f"EPHEMERA_FEED_{variable}"):
        read_settings(Settings, {f"EPHEMERA_FEED_{variable}": value})


def test_the_planner_ticks_every_thirty_seconds_and_at_least_once_a_minute() -> None:
    """A tick is every 30 s by default, and every 60 s at most."""
    assert Settings().tick_seconds == 30
    assert read_settings(Settings, {"EPHEMERA_FEED_TICK_SECONDS": "60"}).tick_seconds == 60
    with pytest.raises(InvalidSettings, match="EPHEMERA_FEED_TICK_SECONDS"):
        read_settings(Settings, {"EPHEMERA_FEED_TICK_SECONDS": "60.1"})


def test_a_worker_needs_servers() -> None:
    """A worker without the service's servers says which variables name them."""
    outcome = command("worker", "feed")
    assert outcome.code != 0
    assert "EPHEMERA_DATABASE_URL" in outcome.err + outcome.out


async def test_an_embedder_needs_its_endpoint(places: dict[str, str]) -> None:
    """The embedder `openai` without a URL is refused at the start."""
    with pytest.raises(InvalidSettings, match="EPHEMERA_FEED_EMBEDDER_URL"):
        async with feed_fixtures(places, embedder="openai"):
            pass


def test_the_readme_has_every_setting() -> None:
    """Each variable is in the README's table, the plans' with their beginnings left out."""
    text = README.read_text(encoding="utf-8")
    for variable in variable_names(Settings).values():
        assert variable.removeprefix("EPHEMERA_FEED") in text, variable


async def test_the_demonstration_makes_a_feed(places: dict[str, str]) -> None:
    """Its users have something to read after one run, and seeding again changes nothing."""
    async with feed_fixtures(places) as world:
        assert await seed(world.aggregator) == ["ann", "bob"]
        assert await seed(world.aggregator) == []
        assert (await world.rebuild("ann")).outcome == "rebuilt"
        feed = await world.aggregator.feed("ann")
        assert feed is not None
        assert len(feed.items) == sum(map(len, STORIES.values()))
        assert all(item.sources for item in feed.items)
        assert await _count(world.aggregator) == sum(map(len, chain.from_iterable(STORIES.values())))


async def _count(aggregator: Aggregator) -> int:
    status = await aggregator.status("ann")
    assert status is not None
    assert status.pending == 0
    feed = await aggregator.feed("ann")
    assert feed is not None
    return sum(item.size for item in feed.items) + feed.unclustered


async def test_an_embedder_that_fails_is_made_up_for(places: dict[str, str]) -> None:
    """Insights are published without vectors while the embedder is down, and the worker computes them."""
    absent = {"embedder": "openai", "embedder_url": "http://127.0.0.1:1/v1"}
    async with feed_fixtures(places, **absent) as world:
        await world.publish("unseen", 5)
        assert _errors(world.aggregator) == 5
    async with feed_fixtures(places) as world:
        await world.aggregator.subscribe("zoe", "unseen", "pro")
        run = await world.rebuild("zoe")
        assert (run.outcome, run.pending) == ("rebuilt", 5)
        insights = world.tables.insights
        rows = await world.sql(insights.select().where(insights.c.channel_id == "unseen"))
        assert {row.embedded_by for row in rows} == {"lexical-1"}


def _errors(aggregator: Aggregator) -> float | None:
    value: float | None = aggregator.metrics.registry.get_sample_value(
        "feed_errors_total", {"where": "embedder"}
    )
    return value
