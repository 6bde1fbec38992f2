"""The pages of the documentation, parsed: blocks of code, spans of code, headings and links."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.reference import __main__ as references

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
READERS_PLUGINS = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_ADDOPTS": "-p pytest_asyncio.plugin -p ephemera.testing",
}
"""An environment in which pytest has the plugins that a reader of the pages has, and not all of ours."""
_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[^\s`]*)[^`\n]*\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_NOTE = re.compile(r"<!-- (?P<note>(?:(?!-->).)*) -->\s*\Z", re.DOTALL)
_OUTPUT = re.compile(r"\A\n+```text\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    page: str
    """The page, as a path from the root."""
    line: int
    language: str
    text: str
    note: str
    """What the comment right before it says: `run by ...`, `not run: ...`, or nothing."""
    output: str
    """The `text` block right after it: what the program prints."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str, text: str) -> list[Block]:
    """The fenced blocks of a page's text."""
    found = []
    for fence in _FENCE.finditer(text):
        note = _NOTE.search(text[: fence.start()])
        output = _OUTPUT.match(text[fence.end() :])
        body = re.sub(rf"^{fence['indent']}", "", fence["text"], flags=re.MULTILINE)
        line = text.count("\n", 0, fence.start()) + 1
        said, printed = note["note"] if note else "", output["text"] if output else ""
        found.append(Block(page, line, fence["language"], body, said, printed))
    return found


def prose(text: str) -> str:
    """A page without its fenced blocks and comments."""
    return re.sub(r"<!--.*?-->", "", _FENCE.sub("", text), flags=re.DOTALL)


def spans_of(text: str) -> list[str]:
    """What stands between backticks in a page's prose."""
    return _SPAN.findall(prose(text))


@cache
def pages() -> dict[str, str]:
    """Every page with its text, by its path from the root: documentation, and what stands beside the code."""
    found = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    for folder in ("src", "services", "benchmarks", "deploy", "examples"):
        found += (ROOT / folder).rglob("*.md")
    return {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in sorted(found)}


@cache
def generated() -> dict[str, Callable[[], str]]:
    """What makes the generated pages, by their paths from the root."""
    return {f"docs/{name}": cache(made) for name, made in references.pages(DOCS).items()}


def written() -> dict[str, str]:
    """The pages that people wrote."""
    return {name: text for name, text in pages().items() if name not in generated()}


@cache
def blocks() -> tuple[Block, ...]:
    """The fenced blocks of all pages that people wrote."""
    return tuple(block for name, text in written().items() for block in blocks_of(name, text))
