"""Every link of every page leads somewhere: files are there, and so are the headings that anchors name."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT, pages, prose

_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\((?P<target>[^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(?P<title>.+?) *$", re.MULTILINE)


def anchors_of(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in _HEADING.finditer(prose(text)):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading["title"]).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        number = 0
        while (anchor if not number else f"{anchor}-{number}") in found:
            number += 1
        found.add(anchor if not number else f"{anchor}-{number}")
    return found


def broken_links(page: str, text: str) -> Iterator[str]:
    """The links of a page that lead nowhere; what is on another host is not asked."""
    for link in _LINK.finditer(re.sub(r"`[^`\n]*`", "", prose(text))):
        path, _, anchor = link["target"].partition("#")
        target = (ROOT / page).parent / path
        if re.match(r"[a-z]+:", link["target"]):
            continue
        if not target.exists():
            yield link["target"]
        elif anchor:
            there = target.read_text(encoding="utf-8") if path else text
            if anchor not in anchors_of(there):
                yield link["target"]


@pytest.mark.parametrize("page", pages())
def test_the_links_of_a_page_lead_somewhere(page: str) -> None:
    """No file and no heading that a page links to is missing."""
    assert list(broken_links(page, pages()[page])) == []


def test_every_page_can_be_found() -> None:
    """From the README, by links alone, a reader comes to every page of the documentation."""
    seen, ahead = set(), ["README.md"]
    while ahead:
        page = ahead.pop()
        if page in seen or page not in pages():
            continue
        seen.add(page)
        for link in _LINK.finditer(prose(pages()[page])):
            path = link["target"].partition("#")[0]
            if path.endswith(".md"):
                ahead.append(str(((ROOT / page).parent / path).resolve().relative_to(ROOT)))
    assert sorted(page for page in set(pages()) - seen if page.startswith("docs/")) == []


def test_a_broken_link_is_noticed() -> None:
    """A missing file and a missing heading are reported; existing ones are not."""
    text = (
        "[a](no_such.md) [b](README.md#no-such) [c](README.md) [d](https://example.org) [e](#here)\n\n# Here"
    )
    assert list(broken_links("README.md", text)) == ["no_such.md", "README.md#no-such"]
