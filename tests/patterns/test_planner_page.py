"""The planner's page names its keys and tables; `tests/docs` runs its program."""

from __future__ import annotations

from pathlib import Path

from tests.patterns.planner_world import declare

PAGE = (Path(__file__).parents[2] / "docs" / "patterns" / "planner.md").read_text(encoding="utf-8")


def test_every_key_and_table_is_on_the_page() -> None:
    """The page names every declared key and table; those of locks are on the locks' page."""
    catalogue, metadata, _ = declare()
    for space in catalogue:
        if not space.pattern.startswith("lock:"):
            assert f"`{space.pattern}`" in PAGE
    for table in metadata.tables:
        assert f"`{table}`" in PAGE
