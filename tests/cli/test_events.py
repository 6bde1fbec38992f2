"""`ephemera events` on real servers: groups, pending events, dead letters and replay."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ephemera import connect, embedded
from ephemera.keyspace import SERVER_IDENTITY
from tests.cli.commands import Outcome, ephemera
from tests.patterns.delayed_events import CATALOGUE as LATER
from tests.patterns.delayed_events import WAITING
from tests.patterns.event_fixtures import ACCOUNTS, BRIEF, CATALOGUE, Removed, Seen, settled, until
from tests.patterns.test_events_replay import CATALOGUE as REPLAYED
from tests.patterns.test_events_replay import KEPT as RETAINED

NAME = "tests.patterns.event_fixtures:CATALOGUE"
NAME_OF_LATER = "tests.patterns.delayed_events:CATALOGUE"
NAME_OF_REPLAYED = "tests.patterns.test_events_replay:CATALOGUE"


@pytest.fixture(params=["server", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    """One server, and then a cluster."""
    return str(request.getfixturevalue(request.param).url)


async def _run(url: str, command: str, *words: str, name: str = NAME) -> Outcome:
    """Run a command in a thread, because it runs its own event loop."""
    return await asyncio.to_thread(ephemera, "events", command, name, "--url", url, *words)


async def _run_json(url: str, command: str, *words: str, name: str = NAME) -> Any:
    outcome = await _run(url, command, *words, "--json", name=name)
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


async def test_groups_are_shown_with_lag_and_pending(url: str, key: str) -> None:
    """Every stream is shown with its length, dead letters and groups."""
    stream = ACCOUNTS.keyspace.key(name=key)
    async with connect(url, CATALOGUE) as store:
        async with store[ACCOUNTS].consume("mailer", Seen(), name=key):
            await store[ACCOUNTS].publish(Removed("1"), name=key)
            await settled(store, ACCOUNTS, name=key)
        await store[ACCOUNTS].publish_many([Removed("2"), Removed("3")], name=key)
        shown = {row["key"]: row for row in await _run_json(url, "groups")}
        table = (await _run(url, "groups")).out
    assert shown[stream]["groups"] == [
        {"name": "mailer", "consumers": 0, "pending": 0, "lag": 2, "paused": None}
    ]
    assert (shown[stream]["length"], shown[stream]["dead"]) == (3, 0)
    assert "events-of-all:here" in shown
    assert "mailer" in table


async def test_pending_events_are_shown(url: str, key: str) -> None:
    """A pending event is shown with its consumer and number of deliveries, for one stream if given."""
    seen = Seen(lambda *_: ValueError("not today"))
    stream = WAITING.keyspace.key(name=key)

    async def failed() -> bool:
        return bool(seen.events)

    async with connect(url, LATER) as store:
        async with store[WAITING].consume("g", seen, name=key) as consumer:
            entry = await store[WAITING].publish(Removed("1"), name=key)
            await until(failed)
        (row,) = await _run_json(url, "pending", "--stream", stream, name=NAME_OF_LATER)
        table = (await _run(url, "pending", "--stream", stream, name=NAME_OF_LATER)).out
    assert (row["id"], row["group"], row["consumer"]) == (entry, "g", consumer.name)
    assert row["deliveries"] == 1
    assert entry in table


async def test_dead_letters_are_shown_and_replayed(url: str, key: str) -> None:
    """A dead letter is shown with its error; once replayed, it is handled."""
    broken = True
    seen = Seen(lambda *_: ValueError("[bold]broken") if broken else None)
    stream = BRIEF.keyspace.key(name=key)
    async with connect(url, CATALOGUE) as store, store[BRIEF].consume("g", seen, name=key):
        await store[BRIEF].publish_many([Removed("1"), Removed("2"), Removed("3")], name=key)
        await settled(store, BRIEF, name=key)
        letters = await _run_json(url, "dead", "--stream", stream)
        assert [letter["error"] for letter in letters] == ["ValueError: [bold]broken"] * 3
        assert "[bold]broken" in (await _run(url, "dead", "--stream", stream)).out
        broken = False
        one = letters[0]["id"]
        assert await _run_json(url, "replay", "--stream", stream, "--id", one) == {"replayed": 1}
        again = await _run(url, "replay", "--stream", stream, "--id", one)
        assert (again.code, again.out) == (1, f"0 dead letters replayed on {stream}.\n")
        assert "1 was not found" in again.err
        rest = await _run(url, "replay", "--stream", stream, "--all")
        assert rest.out == f"2 dead letters replayed on {stream}.\n"
        await settled(store, BRIEF, name=key)
        assert await _run_json(url, "dead", "--stream", stream) == []
        assert (await _run(url, "dead", "--stream", stream)).out == "There are no dead letters.\n"
    assert sorted(seen.users[-3:]) == ["1", "2", "3"]


async def test_handled_events_are_replayed_to_a_group(url: str, key: str) -> None:
    """Events since an id or a time come once more to the named group, at most as many as the limit."""
    seen = Seen()
    stream = RETAINED.keyspace.key(name=key)
    where = ("--stream", stream, "--group", "g")
    async with connect(url, REPLAYED) as store, store[RETAINED].consume("g", seen, name=key):
        ids = await store[RETAINED].publish_many([Removed("1"), Removed("2"), Removed("3")], name=key)
        await settled(store, RETAINED, name=key)
        done = await _run_json(url, "replay", *where, "--since", ids[1], name=NAME_OF_REPLAYED)
        assert done == {"replayed": 2, "following": None, "may_lack": False}
        await settled(store, RETAINED, name=key)
        words = ("--since", "2020-01-01T00:00Z", "--limit", "1")
        outcome = await _run(url, "replay", *where, *words, name=NAME_OF_REPLAYED)
        assert outcome.out.startswith(f"1 event of {stream} replayed to g.\n")
        assert f"--since {ids[0].partition('-')[0]}-" in outcome.out
        await settled(store, RETAINED, name=key)
        for wrong, hint in (("yesterday", "is not a time"), ("2026-01-31T12:00", "a time zone")):
            refused = await _run(url, "replay", *where, "--since", wrong, name=NAME_OF_REPLAYED)
            assert refused.code == 2
            assert hint in refused.said
    assert sorted(seen.users) == ["1", "1", "2", "2", "3", "3"]


async def test_wrong_usage_has_an_error_message(url: str) -> None:
    """The key of no stream, and a replay of nothing or of both, end with code 2 and say what is right."""
    elsewhere = await _run(url, "dead", "--stream", "no:such:stream")
    assert elsewhere.code == 2
    assert "--stream: 'no:such:stream' is not the key of an event stream" in elsewhere.said
    assert "accounts:{name}" in elsewhere.err
    junk = await _run(url, "replay", "--stream", "accounts:{x}", "--id", "junk")
    assert junk.code == 2
    assert "--id: 'junk' is not an id such as 1700000000000-0" in junk.said
    for words in ([], ["--all", "--id", "1-1"]):
        outcome = await _run(url, "replay", "--stream", "accounts:{x}", *words)
        assert outcome.code == 2
        assert "--all" in outcome.said


async def test_a_marked_server_can_be_inspected() -> None:
    """A mark is for stores and does not stop an operator."""
    with embedded.valkey() as server:
        server.ask("SET", SERVER_IDENTITY.key(), "another")
        assert [row["length"] for row in await _run_json(server.url, "groups")] == [0]
        assert await _run_json(server.url, "dead") == []
