"""DUR9: an exception that cannot be shown fails its event like any other, and the consumer continues."""

from __future__ import annotations

import pytest

from ephemera import connect
from ephemera.embedded import Valkey
from tests.patterns.event_fixtures import BRIEF, CATALOGUE, Registered, Seen, settled


class Unshowable(Exception):
    """An exception without text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Unusual(BaseException):
    """An exception that is no `Exception`."""


@pytest.mark.parametrize(
    ("problem", "shown"),
    [
        (Unshowable(), "Unshowable (its message raises RuntimeError)"),
        (ValueError("half \ud83d of a pair"), "ValueError: half \\ud83d of a pair"),
        (Unusual("rare"), "Unusual: rare"),
    ],
    ids=["str fails", "lone surrogate", "no Exception"],
)
async def test_dur9_the_event_is_retried_and_finally_a_dead_letter(
    server: Valkey, key: str, problem: BaseException, shown: str
) -> None:
    """The event becomes a dead letter with what can be said of the error, and later events are handled."""
    seen = Seen(lambda event, _: problem if event.user_id == "bad" else None)
    async with connect(server.url, CATALOGUE) as store:
        async with store[BRIEF].consume("g", seen, concurrency=1, name=key):
            await store[BRIEF].publish_many([Registered("bad"), Registered("good")], name=key)
            await settled(store, BRIEF, name=key)
        (letter,) = await store[BRIEF].dead_letters(name=key)
    assert (letter.error, letter.deliveries) == (shown, 3)
    assert seen.users.count("bad") == 3
    assert seen.users.count("good") == 1
