"""Chooses the sentences of a passage that a slide shows, and shortens them to a bullet's length.

Nothing is rephrased. Sentences with figures and dates come first, then those about the heading, then those at
the beginning. A long sentence is cut to the clauses with its figures, and an
ellipsis says where.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

MAX_BULLETS = 5
MAX_WORDS = 15
_MIN_WORDS = 3
_CLAUSE = re.compile(r"(?<=[,;:])\s+|\s+(?=[–—-]\s)")
_DASH = re.compile(r"^[–—-]\s+")  # before a clause that begins a part
_WORD = re.compile(r"[^\W\d_]{4,}")
_LETTER = re.compile(r"[^\W_]")
_FIGURE = re.compile(r"\d+")
_LONG = 35  # words


class SentencePicker:
    """Picks sentences for one deck, none of them twice."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def pick(self, heading: str, sentences: Sequence[str], limit: int = MAX_BULLETS) -> list[str]:
        """The bullets for a heading, in the order of the text."""
        about = words(heading)
        if len(sentences) > 1:
            self._used.add(_folded(heading))  # a title that is a sentence
        fresh = self._fresh(sentences, _MIN_WORDS) or self._fresh(sentences, 1)
        scored = sorted(fresh, key=lambda each: (-_score(each[1], about), each[0]))[:limit]
        chosen = [sentence for _, sentence in sorted(scored)]
        self._used.update(map(_folded, chosen))
        return _bullets(chosen, limit)

    def _fresh(self, sentences: Sequence[str], least: int) -> list[tuple[int, str]]:
        found: dict[str, tuple[int, str]] = {}
        for at, sentence in enumerate(sentences):
            folded = _folded(sentence)
            if least > 1 and sentence.endswith(":"):  # it announces what is on another line
                continue
            if len(sentence.split()) >= least and _LETTER.search(sentence) and folded not in self._used:
                found.setdefault(folded, (at, sentence))
        return list(found.values())


def words(text: str) -> set[str]:
    """The words of a text that say what it is about."""
    return set(_WORD.findall(text.casefold()))


def shorten(sentence: str) -> str:
    """A sentence of at most `MAX_WORDS` words: the part of it with most figures."""
    return max(_parts(sentence), key=_figures)  # the first of several


def headline(text: str, limit: int = 8) -> str:
    """The beginning of a text, for a title."""
    clauses = _CLAUSE.split(text)
    named = next(
        (at for at in range(1, len(clauses)) if len(" ".join(clauses[:at]).split()) > 2), len(clauses)
    )
    parts = " ".join(clauses[:named]).split()
    shown = parts if len(parts) <= limit + 3 else parts[:limit]
    return " ".join(shown).rstrip(".,;:!?") + ("" if shown == parts else "…")


def _score(sentence: str, about: set[str]) -> float:
    figures = min(_figures(sentence), 3)
    long = len(sentence.split()) > _LONG
    return 2.0 * (figures > 0) + 0.25 * figures + 0.5 * len(about & words(sentence)) - 1.0 * long


def _bullets(sentences: Sequence[str], limit: int) -> list[str]:
    """The sentences, shortened; further parts of them with figures while there is room."""
    room, bullets = limit - len(sentences), list[str]()
    for sentence in sentences:
        best = shorten(sentence)
        for part in _parts(sentence):
            if part == best:
                bullets.append(_balanced(part))
            elif room > 0 and _figures(part):
                bullets.append(_balanced(part))
                room -= 1
    return bullets


def _parts(sentence: str) -> list[str]:
    """A sentence in parts of whole clauses, each short enough; an ellipsis says that one is not the first."""
    if len(sentence.split()) <= MAX_WORDS:
        return [" ".join(sentence.split())]
    parts: list[str] = []
    for clause in _clauses(sentence):
        longer = f"{parts[-1]} {clause}" if parts else clause
        if parts and len(longer.split()) <= MAX_WORDS:
            parts[-1] = longer
        else:
            parts.append(_DASH.sub("", clause))
    shown = [_window(part.split()) if len(part.split()) > MAX_WORDS else part for part in parts]
    stripped = [part.rstrip(",;: ") for part in shown]
    return [part if at == 0 or part[0] == "…" else f"…{part}" for at, part in enumerate(stripped)]


def _clauses(sentence: str) -> Iterator[str]:
    """Its clauses; what is in brackets is not divided."""
    clause = ""
    for part in filter(None, _CLAUSE.split(sentence)):
        clause = f"{clause} {part}" if clause else part
        if clause.count("(") <= clause.count(")"):
            yield clause
            clause = ""
    if clause:
        yield clause


def _balanced(text: str) -> str:
    """A bullet without the bracket that another part of its sentence closes or opens."""
    if text.startswith("(") and ")" not in text:
        return text[1:]
    return re.sub(r"\)(?=[.!?]?$)", "", text) if ")" in text and "(" not in text else text


def _figures(text: str) -> int:
    return len(_FIGURE.findall(text))


def _window(parts: list[str]) -> str:
    """As many words as fit: the first ones, those up to the last figure, or the last ones."""
    room = MAX_WORDS - 1
    figures = [at for at, word in enumerate(parts) if _FIGURE.search(word)]
    start = 0
    if figures and figures[-1] >= room:
        start = min(figures[0], figures[-1] + 2 - room)
        if figures[-1] - figures[0] >= room:  # they do not all fit
            start = figures[0]
        elif start + room < len(parts) and len(parts) - MAX_WORDS <= figures[0]:
            start, room = len(parts) - MAX_WORDS, MAX_WORDS
    shown = " ".join(parts[start : start + room]).rstrip(",;:")
    return f"{'…' if start else ''}{shown}{'…' if start + room < len(parts) else ''}"


def _folded(sentence: str) -> str:
    return " ".join(sentence.casefold().split()).rstrip(".!?…")


def first(sentences: Iterable[str]) -> str:
    """The first sentence with words; empty if there is none."""
    return next((each for each in sentences if _WORD.search(each)), "")
