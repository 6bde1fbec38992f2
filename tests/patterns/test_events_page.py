"""The page on events names the right keys; `tests/docs` runs its program."""

from __future__ import annotations

from pathlib import Path

from ephemera import Catalogue
from ephemera.patterns.events import Events
from tests.patterns.event_fixtures import Removed

PAGE = (Path(__file__).parents[2] / "docs" / "patterns" / "events.md").read_text(encoding="utf-8")


def test_the_page_names_the_key_of_dead_letters() -> None:
    """The page names the key that is used."""
    events = Events(Catalogue("page"), "gl:events:users", Removed, purpose="As on the page")
    assert f"`{events.keys({})[1]}`" in PAGE
