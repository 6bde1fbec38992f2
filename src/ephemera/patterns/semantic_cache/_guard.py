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
from typing import NamedTuple

from ephemera.patterns.semantic_cache._guard_words import guard_words

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
