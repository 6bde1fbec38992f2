"""Readers of the open formats that can be imported: OSIS XML and tab-separated values (TSV), both in UTF-8.

Both read item by item, so a file may be of any length. OSIS marks a verse as an element, or by two milestones
(`sID`, `eID`); notes, titles and variant readings are not part of its text. A TSV file begins with a line of
column names, which says what it has:

| columns | items |
|---|---|
| `reference`, `text`, or `book`, `chapter`, `verse`, `text` | verses; `Gen.1.1`, `1 John 3:16` |
| `id`, `lemma`, `transliteration`, `gloss`, `definition` | entries of the lexicon; `G26`, `H7225` |

A file is untrusted: a document type declaration, and with it every entity, is refused, elements nest at most
64 deep, and a verse, a tag, a comment or a line that is too long is an error.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from xml.parsers import expat

from ephemera.errors import EphemeraError
from ephemera_services.scripture.records import BOOKS

_CHUNK = 64 * 1024
_MAX_DEPTH = 64
_MAX_TEXT = 4000  # characters of a verse
_MAX_MARKUP = 1024 * 1024  # bytes of a tag or a comment, which the parser has in memory and reads repeatedly
_MAX_LINE = 20_000  # bytes of a line of a TSV file
_MAX_UNKNOWN = 100  # books that are named among what was skipped
_NOT_TEXT = frozenset({"note", "title", "rdg", "rdgGroup", "figure", "header", "catchWord"})
_BREAKS = frozenset({"l", "lb", "lg", "p", "div", "q", "item", "speech"})
_ID = re.compile(r"([1-3]?[A-Za-z]+)\.(\d{1,3})\.(\d{1,3})")
_REFERENCE = re.compile(r"(.+?) (\d{1,3}):(\d{1,3})")
_NUMBER = re.compile(r"\d{1,3}")
_WORD = re.compile(r"([GHgh])0*([1-9]\d{0,4})")
_VERSE_COLUMNS = ("book", "chapter", "verse", "text")
_WORD_COLUMNS = ("id", "lemma", "transliteration", "gloss", "definition")
_LANGUAGES = {"g": "greek", "h": "hebrew"}
_BOOK_OF = {name.casefold(): each for each, name in BOOKS.items()} | {each: each for each in BOOKS}
_BOOK_OF["psalms"] = "ps"


class SourceError(EphemeraError, ValueError):
    """A file that cannot be imported; the message says where and why."""


class SourceVerse(NamedTuple):
    """A verse of a translation."""

    book: str
    chapter: int
    verse: int
    text: str


class Source:
    """A file to import: iterate over its items, each a `SourceVerse` or the fields of a lexicon entry."""

    schema = "passages"
    title = rights = ""
    """What the file says about the translation, known after the first item."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.position = 0
        """Bytes read so far."""
        self.skipped: Counter[str] = Counter()
        """What was left out, by reason."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def _verse(self, book: str, chapter: str, verse: str, words: str) -> SourceVerse | None:
        """A verse, unless it has no text, or its book is not of the canon that the service has."""
        known, shown = _BOOK_OF.get(book.casefold()), " ".join(words.split())
        if known is None:
            reason = f"book {book[:40]!r}"
            is_named = reason in self.skipped or len(self.skipped) < _MAX_UNKNOWN
            self.skipped[reason if is_named else "other books"] += 1
        elif not shown:
            self.skipped["without text"] += 1
        else:
            return SourceVerse(known, int(chapter), int(verse), shown)
        return None


class OsisSource(Source):
    """An OSIS document."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._found: deque[SourceVerse] = deque()
        self._path: list[str] = []
        self._hidden = 0
        self._id: str | None = None
        self._milestone = False
        self._words: list[str] = []
        self._length = self._works = 0

    def __iter__(self) -> Iterator[SourceVerse]:
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = _refuse_declaration
        parser.EntityDeclHandler = _refuse_declaration
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        try:
            while chunk := self._file.read(_CHUNK):
                parser.Parse(chunk)
                self.position += len(chunk)
                if self.position - parser.CurrentByteIndex > _MAX_MARKUP:
                    raise SourceError(f"a tag or a comment has more than {_MAX_MARKUP} bytes")
                while self._found:
                    yield self._found.popleft()
            parser.Parse(b"", True)
        except expat.ExpatError as problem:
            raise SourceError(f"line {problem.lineno}: {expat.ErrorString(problem.code)}") from None
        except SourceError as problem:
            raise SourceError(f"line {parser.CurrentLineNumber}: {problem}") from None
        yield from self._found

    def _start(self, qualified: str, attributes: dict[str, str]) -> None:
        name = qualified.rpartition(" ")[2]
        self._path.append(name)
        if len(self._path) > _MAX_DEPTH:
            raise SourceError(f"elements are nested more than {_MAX_DEPTH} deep")
        self._works += name == "work"
        if name in _NOT_TEXT:
            self._hidden += 1
        elif name == "verse" and "eID" in attributes:
            self._finish()
        elif name == "verse" and (osis_id := attributes.get("osisID") or attributes.get("sID")):
            self._finish()
            self._id, self._milestone = osis_id.partition(" ")[0], "sID" in attributes
        elif name in _BREAKS:
            self._characters(" ")

    def _end(self, _: str) -> None:
        name = self._path.pop()
        if name in _NOT_TEXT:
            self._hidden -= 1
        elif (name == "verse" and not self._milestone) or name == "chapter":
            self._finish()
        elif name in _BREAKS:
            self._characters(" ")

    def _characters(self, text: str) -> None:
        if self._id is not None and not self._hidden:
            self._length += len(text)
            if self._length > _MAX_TEXT:
                raise SourceError(f"{self._id[:40]} has more than {_MAX_TEXT} characters; does it end?")
            self._words.append(text)
        elif self._works == 1 and self._path[-2:] == ["work", "title"]:
            self.title = (self.title + text)[:200]
        elif self._works == 1 and self._path[-2:] == ["work", "rights"]:
            self.rights = (self.rights + text)[:2000]

    def _finish(self) -> None:
        if self._id is not None:
            parts = _ID.fullmatch(self._id.partition("!")[0].rpartition(":")[2])
            if parts is None:
                raise SourceError(f"{self._id[:40]!r} is not the id of a verse, such as Gen.1.1")
            verse = self._verse(parts[1], parts[2], parts[3], "".join(self._words))
            if verse is not None:
                self._found.append(verse)
        self._id, self._words, self._length = None, [], 0


class TsvSource(Source):
    """A table: a line of column names, and a line for each item, separated by tabs; nothing is quoted."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._columns = [each.strip().lower() for each in self._line().split("\t")]
        if set(_WORD_COLUMNS) <= set(self._columns):
            self.schema = "lexicon"
        elif not ({"reference", "text"} <= set(self._columns) or set(_VERSE_COLUMNS) <= set(self._columns)):
            raise SourceError(
                "line 1: the columns must be reference, text; or book, chapter, verse, text; "
                f"or {', '.join(_WORD_COLUMNS)}"
            )

    def __iter__(self) -> Iterator[Any]:
        number = 1
        while line := self._line():
            number += 1
            if not line.strip():
                continue
            values = line.rstrip("\r\n").split("\t")
            if len(values) != len(self._columns):
                raise SourceError(f"line {number}: it has {len(values)} columns, not {len(self._columns)}")
            try:
                item = self._item(dict(zip(self._columns, values, strict=True)))
            except SourceError as problem:
                raise SourceError(f"line {number}: {problem}") from None
            if item is not None:
                yield item

    def _line(self) -> str:
        line = self._file.readline(_MAX_LINE + 1)
        if len(line) > _MAX_LINE:
            raise SourceError(f"a line has more than {_MAX_LINE} bytes")
        first = self.position == 0
        self.position += len(line)
        try:
            return line.decode("utf-8-sig" if first else "utf-8")
        except UnicodeDecodeError:
            raise SourceError("the file is not UTF-8") from None

    def _item(self, values: dict[str, str]) -> Any:
        if self.schema == "lexicon":
            return _entry(values)
        if "reference" in values:
            found = _ID.fullmatch(values["reference"]) or _REFERENCE.fullmatch(values["reference"])
            if found is None:
                raise SourceError(f"{values['reference'][:40]!r} is not a verse, such as Gen.1.1")
            return self._verse(found[1], found[2], found[3], values["text"])
        if not (_NUMBER.fullmatch(values["chapter"]) and _NUMBER.fullmatch(values["verse"])):
            raise SourceError("chapter and verse must be numbers")
        return self._verse(values["book"].strip(), values["chapter"], values["verse"], values["text"])


def open_source(path: Path, file: BinaryIO) -> Source:
    """The reader for a file, by its ending: `.xml` and `.osis`, `.tsv` and `.txt`."""
    match path.suffix.lower():
        case ".xml" | ".osis":
            return OsisSource(file)
        case ".tsv" | ".txt":
            return TsvSource(file)
    raise SourceError(f"{path.name} is neither OSIS (.xml, .osis) nor TSV (.tsv, .txt)")


def _entry(values: dict[str, str]) -> dict[str, str]:
    found = _WORD.fullmatch(values["id"].strip())
    if found is None:
        raise SourceError(f"{values['id'][:40]!r} is not the id of a word, such as G26 or H7225")
    kind = found[1].lower()
    shown = {name: " ".join(values[name].split()) for name in _WORD_COLUMNS}
    return {**shown, "id": kind + found[2], "language": _LANGUAGES[kind]}


def _refuse_declaration(*_: object) -> None:
    raise SourceError("a document type declaration is not accepted")
