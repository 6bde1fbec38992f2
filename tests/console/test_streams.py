"""The page of streams: dead letters and their replay belong to each group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ephemera import connect
from ephemera.console._pages import _streams as streams
from ephemera.embedded import Valkey
from ephemera.operations.inspect import EventStream
from tests.patterns.event_fixtures import BRIEF, CATALOGUE, Removed, Seen, settled, until

PLACE: Any = SimpleNamespace(name="here")


async def test_dead_letters_are_counted_by_group(
    server: Valkey, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group without failures has none; a deleted group keeps its own."""
    fails = Seen(lambda *_: ValueError("broken"))
    async with connect(server.url, CATALOGUE) as store:
        live = store[BRIEF]
        async with (
            live.consume("well", Seen(), name=key),
            live.consume("ill", fails, name=key),
            live.consume("gone", fails, name=key),
        ):
            await live.publish_many([Removed("1"), Removed("2")], name=key)
            await settled(store, BRIEF, name=key)
        stream = EventStream(store, BRIEF, BRIEF.keyspace.key(name=key))
        await stream.client.call("XGROUP", "DESTROY", stream.key, "gone")

        async def rows() -> dict[str, Any]:
            found = streams.group_rows(PLACE, "of", await stream.info(), await stream.dead_letters(4))
            return {row["group"]: (row["state"], row["dead"], row["actions"]) for row in found}

        assert await rows() == {
            "well": ("caught up", 0, []),
            "ill": ("caught up", 2, ["replay_all"]),
            "gone": ("deleted", 2, ["replay_all"]),
        }
        monkeypatch.setattr(streams, "_MAX_LETTERS", 4)  # there may be more of them than were looked at
        assert (await rows())["well"] == ("caught up", "?", ["replay_all"])
        assert (await rows())["ill"] == ("caught up", "2+", ["replay_all"])
        assert await stream.replay([], group="ill") == 2
        assert {letter.group for letter in await stream.dead_letters(4)} == {"gone"}
        async with live.consume("well", Seen(), name=key):
            await store.call("HSET", BRIEF.keys({"name": key}).paused, "well", "0 1000 OSError: no route")

            async def paused() -> bool:
                return bool((await rows())["well"][0] == "paused")

            await until(paused)
