"""The guard: two prompts that differ in what similarity does not see are never answered alike.

Embeddings compare what texts are about. "Turn on two-factor authentication" and "turn off two-factor
authentication" are about the same, and so are 10 and 12 slides. So before an answer is used for another
prompt, both are compared in negations, opposites, numbers, units, dates, names, symbols, code and quoted
text. In doubt they differ: a needless call of the model costs less than a wrong answer.

The tables (`guard_words.txt`) are English, with the negations of some other languages. For prompts in other
languages, or for distinctions of your own, add a verifier (`MatchPolicy(verify=...)`), or put what differs
into the scope. Names are words in capitals that no sentence begins with, and some common ones in any case.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import NamedTuple

_REACH = 5  # words between a verb and its particle

_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_TOKEN = re.compile(rf"{_NUMBER.pattern}|{_WORD.pattern}")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_UNIT = re.compile(r"([ -]?)([^\W\d_]{1,20})")
_ORDINALS = ("st", "nd", "rd", "th")
_SYMBOL = re.compile(
    r"[+*/=<>^%$\u20ac\u00a3\u00a5&|~#@\\\u00b0\u2264\u2265\u2260{}\[\]]"
    r"|(?<!\w)-(?=[\d.])|(?<=\d)-(?=\d)|(?<= )-(?= )"  # a minus, not a hyphen
    r"|[\u4e0d\u6ca1\u6c92\u672a\u7121\u65e0\u975e]|\u306a\u3044|\u307e\u305b\u3093|[\uc548\uc54a\uc5c6]"
)
_CODE = re.compile(
    r"(?<!`)`++[^`]{1,4000}`++"  # marked as code
    r"|\b\w+://[^\s)>\]]+|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+\.[\w.-]+"  # addresses
    r"|(?<!\w)--?[A-Za-z][\w-]*"  # flags
    r"|(?<![\w/])~?\.{0,2}/[\w.-]+(?:/[\w.-]*)*"  # paths
    r"|\b\w*_\w+|\b[a-z]{2,}[A-Z]\w*|\b\w{2,}\.[A-Za-z]\w+(?:\.\w+)*|\b\w+\([^()\n]{0,200}\)"  # names
)
_QUOTED = re.compile(
    '"([^"]{1,2000})"|\u201c([^\u201d]{1,2000})\u201d|\u201e([^\u201c\u201d]{1,2000})[\u201c\u201d]'
    "|\u00ab([^\u00bb]{1,2000})\u00bb|(?<!\\w)['\u2018]([^'\u2019\\n]{1,500})['\u2019](?!\\w)"
)
_CLAUSE_END = re.compile(r" ?(?:[.,;:!?\n)]|$)")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\n\u2022])[\s\"'\u201c\u2018(*>-]*$")

_PREFIXES = (
    "un", "non", "in", "im", "il", "ir", "dis", "de", "anti", "mis", "counter", "re", "over", "under",
)  # fmt: skip
_SUFFIXES = ("less", "free")
_PREPOSITIONS = frozenset(("to", "from", "by", "for", "against"))
_FEWEST_MOVED = 4  # words of a text of which a part may move; of two words, either is a part
_SWAPPED = (
    ("hyper", "hypo"), ("pre", "post"), ("over", "under"), ("in", "ex"), ("im", "ex"), ("inter", "intra"),
    ("micro", "macro"), ("pro", "anti"), ("mono", "poly"), ("un", "re"), ("up", "down"), ("super", "sub"),
)  # fmt: skip


class Pole(NamedTuple):
    """A side of a group."""

    group: int
    side: int


@dataclass(frozen=True, slots=True)
class GuardWords:
    """What `guard_words.txt` says: opposites, negations, numbers, and words that are not names.

    A line of its groups is one group, with poles separated by `|`. A pole lists words that say the same for
    this purpose; each stands for its inflections, too (`increase`: increases, increased, increasing). Two
    texts differ when both use a group, and not the same poles in the same order. A group that begins with
    `!` is strict: its last pole is marked (`off`, `without`), and a text that has it differs from one that
    has not. A group that begins with `#` has units, which belong to the number before them. A word in
    brackets is a particle: it counts after a verb of its kind (`turn ... on`), and where a clause ends with
    it.
    """

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
    """Words that are not names where a sentence begins with them."""

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


class Features(NamedTuple):
    """What is compared of a text."""

    quoted: list[str]
    code: list[str]
    numbers: list[str]
    symbols: list[str]
    negated: list[str]
    """The word after each negation."""
    words: list[str]
    names: set[str]
    poles: dict[int, list[int]]


def prompt_difference(one: str, other: str) -> str | None:
    """Return in what two prompts differ so that one's answer cannot be the other's; None if in nothing."""
    if one == other:
        return None
    first, second = _features(one), _features(other)
    for part in ("quoted", "code", "numbers", "symbols", "negated"):
        if getattr(first, part) != getattr(second, part):
            return part
    if guard_words().contrast(first.poles, second.poles):
        return "opposites"
    if _turned(first.words, second.words) or _turned(second.words, first.words):
        return "negated"
    names = first.names | second.names
    if _in_order(first.words, names) != _in_order(second.words, names):
        return "names"
    if _related_otherwise(first.words, second.words):
        return "relations"
    if _replaced(first.words, second.words):
        return "words"
    return "order" if _reordered(first.words, second.words) else None


def _features(text: str) -> Features:
    text = unicodedata.normalize("NFKC", text)
    code = [_bare(found) for found in _CODE.findall(text)]
    rest = _GROUPED.sub("", _CODE.sub(" ", text))
    quoted = [" ".join("".join(found).split()) for found in _QUOTED.findall(rest)]
    words, names, ends, negated = _words(rest)
    return Features(
        quoted,
        code,
        _numbers(rest),
        _SYMBOL.findall(rest),
        sorted(_next_word(words, place) for place in negated),
        words,
        names,
        guard_words().poles_of(words, ends),
    )


def _bare(code: str) -> str:
    """Code without its marks; what is only recognized as code is compared without case."""
    return code.strip("`") if code.startswith("`") else code.rstrip(".,;:?!").casefold()


def _numbers(text: str) -> list[str]:
    """The numbers in a text, in digits or in words, and the unit of each."""
    known = guard_words()
    found: list[str] = []
    for token in _TOKEN.finditer(text):
        value = token[0] if token[0][0].isdigit() else known.numbers.get(token[0].casefold())
        if value is None:
            continue
        found.append(value)
        unit = _UNIT.match(text, token.end())
        name = unit[2].casefold() if unit is not None else ""
        if unit is not None and name not in _ORDINALS and (not unit[1] or name in known.units):
            found.append(str(known.units.get(name, name)))
    return found


def _words(text: str) -> tuple[list[str], set[str], set[int], list[int]]:
    """The words in lower case; the names among them; the places where a clause ends, and of negations."""
    known = guard_words()
    words: list[str] = []
    names: set[str] = set()
    ends: set[int] = set()
    negations: list[int] = []
    loud = text.isupper()
    for found in _WORD.finditer(text):
        shown = found[0].replace("\u2019", "'")
        word = shown.casefold().removesuffix("'s")
        before = text[max(0, found.start() - 20) : found.start()]
        if _CLAUSE_END.match(text, found.end()) is not None:
            ends.add(len(words))
        if word in known.negations or word.endswith("n't") or (word in _SUFFIXES and before.endswith("-")):
            negations.append(len(words))
        if (
            shown[0].isupper()
            and word != "i"
            and not (word in known.starters and (loud or _starts_sentence(before, shown)))
        ):
            names.add(word)
        words.append(word)
    return words, names, ends, negations


def _starts_sentence(before: str, shown: str) -> bool:
    """Whether a word is capitalised because a sentence begins with it."""
    return (len(shown) == 1 or not shown.isupper()) and _SENTENCE_START.search(before) is not None


def _next_word(words: list[str], place: int) -> str:
    """The word that a negation is about, as far as one can see: the next one that says something."""
    fillers = guard_words().fillers
    return next((word for word in words[place + 1 :] if word not in fillers), "")


def _replaced(one: list[str], other: list[str]) -> bool:
    """Whether the texts are the same but for one word that was replaced by another, and not by a synonym."""
    known = guard_words()
    counted = [Counter(word for word in words if word not in known.fillers) for words in (one, other)]
    mine, theirs = [*(counted[0] - counted[1]).elements()], [*(counted[1] - counted[0]).elements()]
    return len(mine) == len(theirs) == 1 and not known.mean_the_same(mine[0], theirs[0])


def _related_otherwise(one: list[str], other: list[str]) -> bool:
    """Whether a word that both texts have follows another preposition: flights to Rome, or from Rome."""
    first, second = _relations(one), _relations(other)
    return any(first[word] != second[word] for word in first.keys() & second.keys())


def _relations(words: list[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for place, word in enumerate(words):
        if word in _PREPOSITIONS and (related := _next_word(words, place)):
            found.setdefault(related, set()).add(word)
    return found


def _turned(one: list[str], other: list[str]) -> bool:
    """Whether the other text has a word of this one with a prefix or suffix that turns its meaning."""
    theirs = set(other).difference(one)
    mine = [word for word in set(one).difference(other) if len(word) > 2]
    return any(
        any(f"{prefix}{word}" in theirs for prefix in _PREFIXES)
        or any(f"{word}{suffix}" in theirs for suffix in _SUFFIXES)
        or any(f"{new}{word[len(old) :]}" in theirs for old, new in _SWAPPED if word.startswith(old))
        for word in mine
    )


def _in_order(words: list[str], names: set[str]) -> list[str]:
    """The names in a text, each once, in the order in which they come."""
    return list(dict.fromkeys(word for word in words if word in names))


def _reordered(one: list[str], other: list[str]) -> bool:
    """Whether two texts have the same words in another order, unless a part moved to the other end."""
    known = guard_words()
    first, second = (
        [known.stem(word) for word in words if word not in known.fillers] for words in (one, other)
    )
    if first == second or Counter(first) != Counter(second):
        return False
    if len(first) < _FEWEST_MOVED:
        return True
    return not any(first[turn:] + first[:turn] == second for turn in range(1, len(first)))
