"""The page on events names the keys that there are; `tests/docs` runs its program."""

from __future__ import annotations

from pathlib import Path

from ephemera import Catalogue
from ephemera.patterns.events import Events
from tests.patterns.event_fixtures import Removed

PAGE = (Path(__file__).parents[2] / "docs" / "patterns" / "events.md").read_text(encoding="utf-8")


def test_the_dead_letters_key_is_as_the_page_says() -> None:
    """The key that the page names is the one that is used."""
    events = Events(Catalogue("page"), "gl:events:users", Removed, purpose="As on the page")
    assert f"`{events.keys({})[1]}`" in PAGE
