"""Every pattern has a page, and every such page has its five parts."""

from __future__ import annotations

import pkgutil
import re

import pytest

import ephemera.patterns
from tests.docs.pages import DOCS, blocks_of, pages

PAGES = sorted(page.name for page in (DOCS / "patterns").glob("*.md"))
ELSEWHERE = {
    "fences": "entitlements",
    "langgraph_checkpoints": "langgraph",
    "prewarm": "windows",
    "stored_records": "entitlements",
}
"""Patterns that are explained on the page of another; `stored_records` is only a part of some."""


def missing_parts(text: str) -> list[str]:
    """Which of the five parts a page about a pattern lacks."""
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    parts = {
        "when you want it": bool(re.match(r"# .+\n\n(.+\n)?You (want|have)\b", text)),
        "code that runs": any(block.language == "python" for block in blocks_of("", text)),
        "guarantees": not {"Guarantees", "What is promised"}.isdisjoint(headings),
        "when Redis is down": any(title == "Failures" or title.startswith("When ") for title in headings),
        "cost": not {"Cost", "What it costs"}.isdisjoint(headings),
    }
    return [part for part, there in parts.items() if not there]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_its_five_parts(page: str) -> None:
    """When you want it, code that a test executes, guarantees, what happens without Redis, cost."""
    assert missing_parts(pages()[f"docs/patterns/{page}"]) == []


def test_every_pattern_has_a_page() -> None:
    """A pattern is on a page of its own name, or on the one that is named above."""
    patterns = {info.name for info in pkgutil.iter_modules(ephemera.patterns.__path__)}
    assert {f"{ELSEWHERE.get(name, name)}.md" for name in patterns} == set(PAGES)


def test_a_missing_part_is_noticed() -> None:
    """A page with nothing but a title lacks all five."""
    assert len(missing_parts("# Something\n\nIt is good.\n")) == 5
