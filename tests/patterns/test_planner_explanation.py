"""The planner explains for each user which condition holds, and its ticks do what it says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from ephemera.embedded import Postgres, Valkey
from ephemera.patterns.planner import UserExplanation
from tests.patterns.planner_world import DAY, HOUR, World, database, world


@pytest.fixture
async def here(server: Valkey, postgres: Postgres) -> AsyncIterator[World]:
    """A planner on an empty database."""
    async with world(server.url, database(postgres)) as made:
        yield made


async def _explained(here: World, user: str) -> UserExplanation:
    explained = await here.planner.explain(user)
    assert explained is not None
    return explained


def _met(explained: UserExplanation) -> dict[str, bool]:
    return {each.name: each.is_met for each in explained.conditions}


async def test_novelty_is_counted_up_to_its_threshold(here: World) -> None:
    """Two new insights of three are not due; the third makes the user due for the next tick."""
    await here.add_user("ann", "news")
    await here.publish("news", 2)
    explained = await _explained(here, "ann")
    assert (explained.situation, explained.reason) == ("not due", None)
    novelty = next(each for each in explained.conditions if each.name == "novelty")
    assert (novelty.is_met, novelty.value, novelty.limit) == (False, 2, 3)
    assert explained.until > 0, "when its time has passed"
    await here.publish("news")
    explained = await _explained(here, "ann")
    assert (explained.situation, explained.reason) == ("due", "novelty")
    await here.tick()
    assert here.users() == ["ann"]
    assert (await _explained(here, "ann")).situation == "enqueued"
    await here.work()
    assert (await _explained(here, "ann")).situation == "not due"


async def test_time_inactivity_and_cooldown(here: World) -> None:
    """Each condition is named when it alone decides."""
    await here.add_user("bob", "sport", plan="calm")
    now = datetime.now(UTC)
    await here.change("bob", last_clustered_at=now - 2 * DAY, last_enqueued_at=None)
    explained = await _explained(here, "bob")
    assert (explained.situation, explained.reason) == ("due", "time")
    assert _met(explained)["novelty"] is False
    await here.change("bob", last_enqueued_at=now - HOUR / 2)
    explained = await _explained(here, "bob")
    assert (explained.situation, explained.reason) == ("cooldown", "time")
    assert explained.until == pytest.approx((now + HOUR / 2).timestamp() * 1000, abs=60_000)
    await here.change("bob", last_active_at=now - 8 * DAY)
    explained = await _explained(here, "bob")
    assert explained.situation == "inactive"
    assert _met(explained)["active"] is False


async def test_failed_runs(here: World) -> None:
    """After a failure the user rests, with the error; after too many they are parked."""
    await here.add_user("eve", "news")
    now = datetime.now(UTC)
    await here.change("eve", attempts=1, retry_at=now + HOUR, last_error="out of memory")
    explained = await _explained(here, "eve")
    assert (explained.situation, explained.last_error) == ("resting", "out of memory")
    assert _met(explained)["attempts"] is False
    await here.change("eve", attempts=10, retry_at=now - timedelta(minutes=1))
    assert (await _explained(here, "eve")).situation == "parked"
    await here.change("eve", running_until=now + HOUR)
    assert (await _explained(here, "eve")).situation == "running"


async def test_unknown_users_and_plans(here: World) -> None:
    """There is nothing to explain about an unknown user, and little about a plan of another release."""
    assert await here.planner.explain("unknown") is None
    await here.add_user("old", "news")
    await here.change("old", plan="withdrawn")
    explained = await _explained(here, "old")
    assert (explained.plan, explained.situation, explained.conditions) == ("withdrawn", "not due", ())


async def test_many_users_are_explained_at_once(here: World) -> None:
    """Those who exist, each as by themselves."""
    await here.add_user("ann", "news")
    await here.add_user("bob", "news", plan="calm")
    await here.publish("news", 3)
    explained = await here.planner.explain_all(["ann", "bob", "unknown"])
    assert {user: (each.plan, each.reason) for user, each in explained.items()} == {
        "ann": ("free", "novelty"),
        "bob": ("calm", "novelty"),
    }
