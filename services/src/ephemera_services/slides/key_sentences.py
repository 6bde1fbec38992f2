"""Chooses the sentences of passages that a slide shows, shortened to bullets, and says nothing twice.

Parts of sentences with figures and dates come first, then the beginnings of these sentences, then sentences
without figures; among these, those about the heading, and then those at the beginning. What a slide has
shown, a whole sentence or a part of one, no later slide shows again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ephemera_services.slides.bullet_parts import CLAUSE, LOOSE, bullet_parts, figures_of, is_condition

MAX_BULLETS = 5
_MIN_WORDS = 3
_WORD = re.compile(r"[^\W\d_]{4,}")
_LETTER = re.compile(r"[^\W_]")
_LONG = 35  # words


class Passage(NamedTuple):
    """The sentences below a heading."""

    heading: str
    sentences: Sequence[str]


class _Bullet(NamedTuple):
    """A part of a sentence that may become a bullet; the lowest rank comes first."""

    rank: tuple[float, ...]
    place: tuple[int, int, int]
    """Its passage, its sentence in it, and its part of that."""
    text: str
    sentence: str


class SentencePicker:
    """Picks sentences for one deck, none of them twice."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def pick(self, passages: Sequence[Passage], limit: int = MAX_BULLETS) -> list[str]:
        """The bullets for a slide, in the order of the text; one from each passage that has any at least."""
        offered = [sorted(self._bullets(number, passage)) for number, passage in enumerate(passages)]
        first_ones = [bullet for bullets in offered for bullet in bullets[:1]]
        others = sorted(bullet for bullets in offered for bullet in bullets[1:])
        chosen: list[_Bullet] = []
        for bullet in (*first_ones, *others):
            if len(chosen) < limit and _folded(bullet.text) not in self._used:
                self._used.add(_folded(bullet.text))
                chosen.append(bullet)
        self._used.update(_folded(bullet.sentence) for bullet in chosen)
        return [bullet.text for bullet in sorted(chosen, key=lambda bullet: bullet.place)]

    def _bullets(self, number: int, passage: Passage) -> Iterator[_Bullet]:
        """What may be shown of a passage: parts with figures, and the beginnings of sentences."""
        about = words(passage.heading)
        if len(passage.sentences) > 1:
            self._used.add(_folded(passage.heading))  # a title that is a sentence
        fresh = self._fresh(passage.sentences, _MIN_WORDS) or self._fresh(passage.sentences, 1)
        for at, sentence in fresh:
            parts = bullet_parts(sentence)
            figures = [figures_of(text) for text in parts]
            begins = 2 if is_condition(parts[0]) else 1
            for part, text in enumerate(parts):
                tier = _tier(part, figures, begins)
                if tier is not None and _folded(text) not in self._used:
                    rank = (tier, -_score(sentence, about), number, at, part)
                    yield _Bullet(rank, (number, at, part), text, sentence)

    def _fresh(self, sentences: Sequence[str], least: int) -> list[tuple[int, str]]:
        found: dict[str, tuple[int, str]] = {}
        for at, sentence in enumerate(sentences):
            folded = _folded(sentence)
            if least > 1 and sentence.endswith(":"):  # it announces what is on another line
                continue
            if len(sentence.split()) >= least and _LETTER.search(sentence) and folded not in self._used:
                found.setdefault(folded, (at, sentence))
        return list(found.values())


def _tier(part: int, figures: Sequence[int], begins: int) -> int | None:
    """The part with most figures is first, then others with figures, then beginnings; None for the rest."""
    most = max(figures)
    if figures[part]:
        return 0 if part == figures.index(most) else 1
    if part >= begins:
        return None
    return 2 if most else 3


def words(text: str) -> set[str]:
    """The words of a text that say what it is about."""
    return set(_WORD.findall(text.casefold()))


def headline(text: str, limit: int = 8) -> str:
    """The beginning of a text, for a title."""
    clauses = CLAUSE.split(text)
    named = next(
        (at for at in range(1, len(clauses)) if len(" ".join(clauses[:at]).split()) > 2), len(clauses)
    )
    parts = " ".join(clauses[:named]).split()
    if len(parts) <= limit + 3:
        return " ".join(parts).rstrip(".,;:!?")
    return LOOSE.sub("", " ".join(parts[:limit])).rstrip(".,;:!?") + "…"


def continued(title: str, sentences: Sequence[str]) -> list[str]:
    """The sentences below a title that is the beginning of the first one, which goes on from there."""
    start = title.rstrip("…")
    return [
        f"…{sentence[len(start) :].lstrip(' ,;:')}"
        if at == 0 and sentence.startswith(start) and len(sentence) > len(start) + 1
        else sentence
        for at, sentence in enumerate(sentences)
    ]


def _score(sentence: str, about: set[str]) -> float:
    figures = min(figures_of(sentence), 3)
    long = len(sentence.split()) > _LONG
    return 2.0 * (figures > 0) + 0.25 * figures + 0.5 * len(about & words(sentence)) - 1.0 * long


def _folded(sentence: str) -> str:
    return " ".join(sentence.casefold().split()).strip(".!?…")


def first(sentences: Iterable[str]) -> str:
    """The first sentence with words; empty if there is none."""
    return next((each for each in sentences if _WORD.search(each)), "")
