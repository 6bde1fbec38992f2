"""What of a Markdown text is prose: without front matter, code, comments, images, and the marks around words.

It is applied to every text, and leaves one without such marks as it is. The module imports nothing of the
service, since documents are read in a process with little time and memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*")
_QUOTE = re.compile(r"^ {0,3}(?:>[ \t]?)+(?![ \t]*\d)")  # `> 5 %` is a comparison
_FIELD = re.compile(r"[\w-]+:(?:\s|$)|[\s-]")
_MAX_FRONT_MATTER = 100  # lines

_IMAGE = re.compile(r"!\[[^\[\]]{0,300}\](?:\([^()]{0,600}\)|\[[^\[\]]{0,100}\])")
_LINK = re.compile(r"\[([^\[\]]{0,300})\](?:\([^()]{0,600}\)|\[[^\[\]]{0,100}\])")
_CODE = re.compile(r"(`{1,2})(?!`)(.{1,200}?)(?<!`)\1(?!`)")
_STRONG = re.compile(r"(\*\*|__)(?=\S)(.{1,200}?)(?<=\S)\1")
_EMPHASIS = re.compile(r"(?<![\w*])([*_])(?=[^\s*_])([^*_]{1,200})(?<=\S)\1(?![\w*])")
_TAG = re.compile(
    r"</?(?:a|b|br|center|details|div|em|i|img|kbd|p|span|strong|sub|summary|sup|u)\b[^<>]{0,300}>"
)


def prose(text: str) -> str:
    """The prose of a text; everything else is replaced by blank lines."""
    lines = _uncommented(text).splitlines()
    return "\n".join(_lines(lines[_front_matter(lines) :]))


def unmarked(text: str) -> str:
    """A line without the marks of links, code and emphasis, and without images."""
    text = _LINK.sub(r"\1", _IMAGE.sub("", text))
    text = _EMPHASIS.sub(r"\2", _STRONG.sub(r"\2", _CODE.sub(r"\2", text)))
    return _TAG.sub(" ", text).strip()


def _lines(lines: list[str]) -> Iterator[str]:
    """Lines outside of fences, without the marks of quotations."""
    at, below_text, unclosed = 0, False, set[str]()
    while at < len(lines):
        line = lines[at]
        mark = _FENCE.match(line)
        end = None if mark is None or mark[1] in unclosed else _end_of_fence(lines, at, mark[1])
        if mark and end is None:
            unclosed.add(mark[1])  # so that no search for its end is repeated
        if end is not None:
            line, at = "", end
        elif not below_text and _RULE.fullmatch(line):  # below a line of text it marks a heading
            line = ""
        yield _QUOTE.sub("", line)
        below_text = bool(line.strip())
        at += 1


def _end_of_fence(lines: list[str], start: int, mark: str) -> int | None:
    """The line that ends the code which begins there; None if it is a line of text."""
    for at in range(start + 1, len(lines)):
        line = lines[at].strip()
        if line.startswith(mark) and not line.strip(mark[0]):
            return at
    return None


def _front_matter(lines: list[str]) -> int:
    """The number of lines at the beginning that tell tools about the text."""
    if not lines or lines[0].rstrip() != "---":
        return 0
    for number, line in enumerate(lines[1:_MAX_FRONT_MATTER], 1):
        if line.rstrip() == "---":
            return number + 1
        if line and not _FIELD.match(line):
            return 0
    return 0


def _uncommented(text: str) -> str:
    """The text without the comments of HTML."""
    if "<!--" not in text:
        return text
    first, *others = text.split("<!--")
    return first + "".join(part.partition("-->")[2] if "-->" in part else f"<!--{part}" for part in others)
