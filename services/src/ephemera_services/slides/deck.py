"""The slides of a presentation, as writers produce them, SQL stores them, and exports show them.

A slide has a layout, which says which of its fields count:

| layout | shows |
|---|---|
| `title` | the title, and the first bullet as a subtitle |
| `agenda` | the bullets, numbered |
| `section` | the title, and the first bullet below it |
| `bullets` | the bullets |
| `two_columns` | two columns, each with a heading and bullets |
| `table`, `chart` | the table; as a chart if its columns are numbers |
| `closing` | the bullets, and the sources |
"""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

import msgspec

Layout: TypeAlias = Literal[
    "title", "agenda", "section", "bullets", "two_columns", "table", "chart", "closing"
]

MAX_SLIDES = 200
MAX_TABLE_ROWS = 9
"""Rows of a table that a slide shows; the rest are counted below it."""
MAX_TABLE_COLUMNS = 6


_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table: the names of its columns, and its rows, each as long as the header."""

    header: list[str]
    rows: list[list[str]]


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One of two columns of a slide."""

    heading: str
    bullets: list[str]


class SlideContent(msgspec.Struct, frozen=True, kw_only=True):
    """A slide."""

    title: str
    layout: Layout = "bullets"
    bullets: list[str] = []
    columns: list[Column] = []
    table: Table | None = None
    notes: str = ""
    sources: list[str] = []
    """Names of documents."""


def printable(text: str) -> str:
    """A text without control characters and lone surrogates, which no file can have."""
    return _UNPRINTABLE.sub("", text)


def slide_of(row: Any) -> SlideContent:
    """The slide of a row in SQL."""
    fields = {name: getattr(row, name) for name in SlideContent.__struct_fields__}
    return msgspec.convert(fields, SlideContent)


def table_of(rows: list[list[str]]) -> Table | None:
    """A table from rows of cells, the first of which is the header; None if there is nothing to show."""
    cleaned = [[" ".join(cell.split()) for cell in row] for row in rows]
    filled = [row for row in cleaned if any(row)]
    width = min(max(map(len, filled), default=0), MAX_TABLE_COLUMNS)
    if len(filled) < 2 or width < 2:
        return None
    header, *body = [(row + [""] * width)[:width] for row in filled]
    return Table(header=header, rows=body)


def more_rows(table: Table) -> str:
    """The line below a table that counts the rows which a slide does not show; empty if it shows all."""
    left = len(table.rows) - MAX_TABLE_ROWS
    return f"… + {left}" if left > 0 else ""
