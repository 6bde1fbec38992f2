"""The page on the planner names the keys and tables that there are; `tests/docs` runs its program."""

from __future__ import annotations

from pathlib import Path

from tests.patterns.planner_world import declare

PAGE = (Path(__file__).parents[2] / "docs" / "patterns" / "planner.md").read_text(encoding="utf-8")


def test_every_key_and_table_is_on_the_page() -> None:
    """What the planner declares, the page names; keys of locks are on the locks' page."""
    catalogue, metadata, _ = declare()
    for space in catalogue:
        if not space.pattern.startswith("lock:"):
            assert f"`{space.pattern}`" in PAGE
    for table in metadata.tables:
        assert f"`{table}`" in PAGE
