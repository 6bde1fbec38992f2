"""Every pattern has a page, and every such page has its five parts; guides open as these pages do."""

from __future__ import annotations

import pkgutil
import re

import pytest

import ephemera.patterns
from tests.docs.pages import DOCS, blocks_of, pages

PAGES = sorted(page.name for page in (DOCS / "patterns").glob("*.md"))
FEATURES = {"local_cache"}
"""Pages about a part of a pattern: the local cache is an option of the cache."""
GUIDES = [
    "install",
    "which-pattern",
    *(f"guides/{page.stem}" for page in sorted((DOCS / "guides").glob("*.md"))),
]
GUIDES.remove("guides/README")
_OPENING = re.compile(r"# .+\n\n[^|`<#-].*\n[^|`<#-].*\n")
"""Below the title, two lines of prose: not of a table, a list or code."""


def missing_parts(text: str) -> list[str]:
    """Which of the five parts a page about a pattern lacks."""
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    parts = {
        "what it is for, and when you want it": bool(_OPENING.match(text)),
        "code that runs": any(block.language == "python" for block in blocks_of("", text)),
        "guarantees": "Guarantees" in headings,
        "when Redis is down": any(title.startswith(("Failure", "When ")) for title in headings),
        "cost": "Cost" in headings,
    }
    return [part for part, there in parts.items() if not there]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_its_five_parts(page: str) -> None:
    """What it is for, code that a test executes, guarantees, what happens without Redis, cost."""
    assert missing_parts(pages()[f"docs/patterns/{page}"]) == []


@pytest.mark.parametrize("page", GUIDES)
def test_a_guide_says_what_it_is_for(page: str) -> None:
    """It opens with two lines, before any table: what it is for, and when you want it."""
    assert _OPENING.match(pages()[f"docs/{page}.md"])


def test_every_pattern_has_a_page() -> None:
    """A pattern is on a page of its own name."""
    modules = pkgutil.iter_modules(ephemera.patterns.__path__)
    patterns = {info.name for info in modules if not info.name.startswith("_")}
    assert {f"{name}.md" for name in patterns | FEATURES} == set(PAGES)


def test_a_missing_part_is_noticed() -> None:
    """A page with nothing but a title lacks all five."""
    assert len(missing_parts("# Something\n\nIt is good.\n")) == 5
