"""The words of the guard: opposites and other groups, negations, numbers, and words that are no names.

They are read from `guard_words.txt` when they are first needed. A line of its groups is one group, with poles
separated by `|`. A pole lists words that say the same for this purpose; each stands for its inflections, too
(`increase`: increases, increased, increasing). Two texts differ when both use a group, and not the same poles
in the same order. A group that begins with `!` is strict: its last pole is marked (`off`, `without`), and a
text that has it differs from one that has not. A group that begins with `#` has units, which belong to the
number before them. A word in brackets is a particle: it counts after a verb of its kind (`turn ... on`), and
where a clause ends with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import NamedTuple

_REACH = 5  # words between a verb and its particle


class Pole(NamedTuple):
    """A side of a group."""

    group: int
    side: int


@dataclass(frozen=True, slots=True)
class GuardWords:
    """What the file says."""

    poles: dict[str, set[Pole]]
    units: dict[str, Pole]
    marked: dict[int, int]
    """The marked side of each strict group."""
    particles: dict[str, set[str]]
    """The verbs of each particle; a particle without verbs always counts."""
    synonyms: dict[str, set[int]]
    """The lines of synonyms that a word is in."""
    numbers: dict[str, str]
    negations: frozenset[str]
    fillers: frozenset[str]
    starters: frozenset[str]
    """Words that are no names where a sentence begins with them."""

    def poles_of(self, words: list[str], ends: set[int]) -> dict[int, list[int]]:
        """The sides of each group that a text uses, in order; `ends` are the places where a clause ends."""
        found: dict[int, list[int]] = {}
        for place, word in enumerate(words):
            poles = self.poles.get(word, set())
            if word in self.particles and self._is_particle(words, place, ends):
                poles = poles | self.poles[f"[{word}]"]
            for group, side in poles:
                sides = found.setdefault(group, [])
                if not sides or sides[-1] != side:
                    sides.append(side)
        return found

    def contrast(self, one: dict[int, list[int]], other: dict[int, list[int]]) -> bool:
        """Whether two texts use different sides of a group."""
        for group in one.keys() | other.keys():
            first, second = one.get(group, []), other.get(group, [])
            if first != second and first and second:
                return True
            marked = self.marked.get(group)
            if marked is not None and (marked in first) != (marked in second):
                return True
        return False

    def mean_the_same(self, one: str, other: str) -> bool:
        """Whether two words are synonyms here, or the same but for inflection or spelling."""
        if self.synonyms.get(one, set()) & self.synonyms.get(other, set()):
            return True
        if self.poles.get(one, set()) & self.poles.get(other, set()):
            return True
        return bool(_lemmas(one) & _lemmas(other)) or _is_misspelt(one, other)

    def stem(self, word: str) -> str:
        """What the inflections of a word have in common, and sometimes another word's."""
        stem = min(_lemmas(word), key=len).removesuffix("e")
        return stem[:-1] if stem[-1:] == stem[-2:-1] else stem  # call, called

    def _is_particle(self, words: list[str], place: int, ends: set[int]) -> bool:
        verbs = self.particles[words[place]]
        return not verbs or place in ends or not verbs.isdisjoint(words[max(0, place - _REACH) : place])


@cache
def guard_words() -> GuardWords:
    """Read the file, once."""
    text = resources.files("ephemera.patterns.semantic_cache").joinpath("guard_words.txt").read_text("utf-8")
    sections = dict(part.split("\n", 1) for part in text.split("\n== ")[1:])
    poles, units, marked = _read_groups(sections["groups"])
    fillers = frozenset(sections["fillers"].split())
    return GuardWords(
        poles=poles,
        units=units,
        marked=marked,
        particles=dict(map(_read_particle, sections["particles"].strip().splitlines())),
        synonyms=_read_synonyms(sections["synonyms"]),
        numbers=dict(each.split(":") for each in sections["numbers"].split()),
        negations=frozenset(sections["negations"].split()),
        fillers=fillers,
        starters=fillers | frozenset(sections["starters"].split()),
    )


def _read_groups(text: str) -> tuple[dict[str, set[Pole]], dict[str, Pole], dict[int, int]]:
    poles: dict[str, set[Pole]] = {}
    units: dict[str, Pole] = {}
    marked: dict[int, int] = {}
    for group, line in enumerate(text.strip().splitlines()):
        sides = line.lstrip("!#").split("|")
        if line.startswith("!"):
            marked[group] = len(sides) - 1
        for side, words in enumerate(sides):
            for form in (form for word in words.split() for form in _forms(word)):
                if line.startswith("#"):
                    units[form] = Pole(group, side)
                if len(form) > 1:  # a letter is a unit after a number, and nothing else
                    poles.setdefault(form, set()).add(Pole(group, side))
    return poles, units, marked


def _read_synonyms(text: str) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for number, line in enumerate(text.strip().splitlines()):
        for form in (form for word in line.split() for form in _forms(word)):
            found.setdefault(form, set()).add(number)
    return found


def _read_particle(line: str) -> tuple[str, set[str]]:
    particle, _, verbs = line.partition(":")
    return particle, {form for verb in verbs.split() for form in (*_forms(verb), *_short_forms(verb))}


def _short_forms(verb: str) -> tuple[str, ...]:
    """The inflections that `_forms` leaves out for short words, which would often be other words."""
    return (f"{verb}ed", f"{verb}ing", f"{verb}{verb[-1]}ed", f"{verb}{verb[-1]}ing")


def _forms(word: str) -> Iterator[str]:
    """The word and its inflections; forms that do not exist do no harm."""
    yield word
    if len(word) < 3 or word.startswith("["):
        return
    yield f"{word}s"
    if len(word) < 4:
        return
    stem = word.removesuffix("e")
    yield from (f"{stem}ed", f"{stem}ing", f"{word}es")
    if word.endswith("y"):
        yield from (f"{word[:-1]}ies", f"{word[:-1]}ied")
    if word[-1] not in "aeiouwxy" and word[-2] in "aeiou":
        yield from (f"{word}{word[-1]}ed", f"{word}{word[-1]}ing")


def _lemmas(word: str) -> set[str]:
    """The words of which this one may be an inflection, itself among them."""
    found = {word}
    if word.endswith("s") and not word.endswith("ss"):
        found.add(word[:-1])
    if word.endswith(("ses", "xes", "zes", "ches", "shes", "oes")):
        found.add(word[:-2])
    if word.endswith(("ies", "ied")):
        found.add(f"{word[:-3]}y")
    for ending in ("ed", "ing"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) > 2:
            found |= {stem, f"{stem}e"}
            if stem[-1] == stem[-2]:
                found.add(stem[:-1])
    return found


def _is_misspelt(one: str, other: str) -> bool:
    """Whether two words are spellings of one: a letter is left out of a long one, or one of few replaced."""
    short, long = sorted((one, other), key=len)
    pairs = zip(short, long, strict=False)
    place = next((at for at, (mine, theirs) in enumerate(pairs) if mine != theirs), len(short))
    if len(short) == len(long):
        same = short[place + 1 :] == long[place + 1 :]
        return same and {short[place], long[place]} in ({"i", "y"}, {"s", "z"}, {"c", "s"})
    return len(short) > 6 and place > 0 and len(long) - len(short) == 1 and short[place:] == long[place + 1 :]
