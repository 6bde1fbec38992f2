"""The tutorial, followed as a reader would: its chapters in order, in one folder, with their terminals."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.docs.pages import DOCS, blocks_of
from tests.docs.test_quickstart import Reader

CHAPTERS = sorted((DOCS / "tutorial").glob("[0-9]-*.md"))


def test_the_chapters_can_be_followed(tmp_path: Path) -> None:
    """Every file, terminal and command of 1-sessions to 6-production gives what the pages show.

    A terminal that a chapter opens again (the service, after a change) is ended first. The pages:
    1-sessions, 2-cache, 3-limits, 4-jobs, 5-audit, 6-production.
    """
    assert len(CHAPTERS) == 6
    with ExitStack() as stack:
        reader = Reader(tmp_path, stack)
        for chapter in CHAPTERS:
            for block in blocks_of(f"docs/tutorial/{chapter.name}", chapter.read_text(encoding="utf-8")):
                reader.follow(block)
