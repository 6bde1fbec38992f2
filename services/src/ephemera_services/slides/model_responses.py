"""What models write, read as outlines and slides, with the usual habits of models.

The first JSON object or list of a response counts, whatever is written around it. Its fields may have other
names, or be within another object; titles and points may be objects. What a slide has no room for is cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

from ephemera_services.slides.deck import Table, printable, table_of
from ephemera_services.slides.writers import WrittenSlide

_MAX_BULLETS = 5
_MAX_BULLET_WORDS = 25  # more than is asked for, and still readable
_MAX_LINE = 200  # characters
_MAX_NOTES = 4_000
_MAX_RESPONSE = 100_000  # characters
_MAX_BRACES = 100  # at which an object or a list may begin
_TEXT_KEYS = (
    "title", "heading", "headline", "slide_title", "text", "point", "bullet", "name", "content", "value",
)  # fmt: skip
_TITLE_KEYS = ("slides", "outline", "titles", "slide_titles", "sections")
_POINT_KEYS = ("bullets", "points", "key_points", "bullet_points", "content")
_MARKER = re.compile(r"\s*(?:[-*•]|\d{1,2}[.)])\s+")


def first_json(text: str) -> Any:
    """The first JSON object or list of values in a text; ValueError if there is none."""
    decoder = json.JSONDecoder()
    for begin in islice(re.finditer(r"[{\[]", text[:_MAX_RESPONSE]), _MAX_BRACES):
        try:
            found, _ = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            continue
        is_usable = isinstance(found, dict) or all(isinstance(each, dict | str) for each in found)
        if found and is_usable:
            return found
    raise ValueError("there is no complete JSON object in it")


def _fields(found: Any, lists: Sequence[str], others: Sequence[str] = ()) -> dict[str, Any]:
    """The object with one of these fields: the one found, one within it, or one made of a bare list."""
    if isinstance(found, list):
        within = [each for each in found if isinstance(each, dict)]
        has_fields = len(found) == len(within) == 1 and any(name in within[0] for name in (*lists, *others))
        return within[0] if has_fields else {lists[0]: found}
    for candidate in (found, *(value for value in found.values() if isinstance(value, dict))):
        if any(name in candidate for name in (*lists, *others)):
            return dict(candidate)
    return dict(found)


def read_outline(found: Any, wanted: int) -> tuple[str, list[str]]:
    """The title and the titles of slides, or of one less; ValueError if there are fewer."""
    fields = _fields(found, _TITLE_KEYS)
    listed = _first_of(fields, _TITLE_KEYS)
    if isinstance(listed, dict):
        listed = list(listed.values())
    if not isinstance(listed, list):
        raise ValueError("'slides' is not a list of titles")  # noqa: TRY004 - it is the model's
    titles = [title for title in map(_line, listed) if title][:wanted]
    if len(titles) < max(wanted - 1, 1):
        raise ValueError(f"'slides' has {len(titles)} titles, not {wanted}")
    return _line(fields.get("title", "")), titles


def read_title_slide(found: Any, title: str) -> WrittenSlide:
    """A title slide: its subtitle, or else the first of its points."""
    fields = _fields(found, ("subtitle", *_POINT_KEYS), ("notes",))
    subtitle = _first_of(fields, ("subtitle", *_POINT_KEYS))
    lines = [_bullet(each) for each in (subtitle if isinstance(subtitle, list) else [subtitle])]
    return WrittenSlide(title=title, bullets=[line for line in lines if line][:1], notes=_notes(fields))


def read_slide(found: Any, title: str) -> WrittenSlide:
    """A slide of points, a table, or both; ValueError if it has neither."""
    fields = _fields(found, _POINT_KEYS, ("table",))
    listed = _first_of(fields, _POINT_KEYS)
    if isinstance(listed, str):
        listed = listed.splitlines()
    if not isinstance(listed, list):
        raise ValueError("'bullets' is not a list of texts")  # noqa: TRY004
    bullets = [bullet for bullet in map(_bullet, listed) if bullet][:_MAX_BULLETS]
    table = _table(fields.get("table"))
    if not bullets and table is None:
        raise ValueError("'bullets' has no text")
    return WrittenSlide(title=title, bullets=bullets, notes=_notes(fields), table=table)


def _first_of(fields: dict[str, Any], names: Sequence[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _notes(fields: dict[str, Any]) -> str:
    notes = fields.get("notes", "")
    return _printable(notes, _MAX_NOTES) if isinstance(notes, str) else ""


def _table(found: Any) -> Table | None:
    """The table, if it has rows; otherwise None."""
    if not isinstance(found, dict) or not isinstance(found.get("rows"), list):
        return None
    rows = [row for row in (found.get("header"), *found["rows"]) if isinstance(row, list)]
    return table_of([[_printable(str(cell), _MAX_LINE) for cell in row] for row in rows])


def _line(value: Any) -> str:
    """A title: a text, or an object with one, or with an object that has one."""
    for _ in range(2):
        if isinstance(value, dict):
            value = _first_of(value, _TEXT_KEYS) or next(iter(value.values()), "")
    if not isinstance(value, str):
        return ""
    return _MARKER.sub("", _printable(" ".join(value.split()), _MAX_LINE), count=1).strip()


def _bullet(value: Any) -> str:
    """A point, cut where it is far too long for a slide."""
    line = _line(value)
    shown = line.split()
    if len(shown) <= _MAX_BULLET_WORDS:
        return line
    return " ".join(shown[:_MAX_BULLET_WORDS]).rstrip(",;:") + "…"


def _printable(text: str, length: int) -> str:
    return printable(text)[:length].strip()
