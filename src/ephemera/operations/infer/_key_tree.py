"""One level of a tree of keys: the words that stand there, or the field they have become.

A level holds words until data is seen or they are more than `MOST_WORDS`; then they become a field, for
good. Beside a field only the empty literal remains, which no value is written as. Where no field can end,
right before a hash tag's brace, all parts are literals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import takewhile

from ephemera.operations.infer._key_parser import (
    TAG_OPENS,
    Marks,
    before_nothing,
    divides,
    divisions,
    may_be_field,
    may_be_literal,
)
from ephemera.operations.infer._recognizer import is_word, look_of, usual_look

MOST_WORDS = 16
"""Different words at one place that still count as words of the program."""

_LOOKED_AT = 200  # values of a field whose looks are counted
_EXAMPLES = 3
_ALIKE = 3  # branches with the same words below them, from which on their own words count as data


class Field:
    """What the values at one place have in common."""

    __slots__ = ("_before_nothing", "_divisions", "begin", "count", "divided", "looks", "shortest")

    def __init__(self) -> None:
        self.count = 0
        self.looks: Counter[str] = Counter()
        self.begin: str | None = None  # with what all of them begin
        self.shortest = 1 << 31  # characters of the shortest
        self._before_nothing = ""  # the literal that stands before a value which is empty
        self.divided = False  # whether some can only be several fields: they hold an encoded mark
        self._divisions: set[Marks] | None = None  # how all of them can be divided

    def note(self, value: str, mark: str, count: int = 1) -> None:
        """Take a value into account."""
        self.count += count
        if self.looks.total() < _LOOKED_AT:
            self.looks[look_of(value)] += 1
        self.shortest = min(self.shortest, len(value))
        if self.begin is None:
            self.begin = value
        elif not value.startswith(self.begin):
            self.begin = _common(self.begin, value)
        if self._divisions is None:
            self._divisions = divisions(value, mark)
        elif self._divisions:
            self._divisions = {marks for marks in self._divisions if divides(marks, value, mark)}
        if "%" in value and not may_be_field(value, mark):
            literal = before_nothing(value)
            self._before_nothing = literal or self._before_nothing
            self.divided |= not literal

    def merge(self, other: Field) -> None:
        """Take another field's values into account, too."""
        self.count += other.count
        self.looks += other.looks
        self.divided |= other.divided
        self._before_nothing = self._before_nothing or other._before_nothing
        self.shortest = min(self.shortest, other.shortest)
        if other.begin is not None:
            self.begin = other.begin if self.begin is None else _common(self.begin, other.begin)
        both = [known for known in (self._divisions, other._divisions) if known is not None]
        self._divisions = set.intersection(*both) if both else None

    def prepend(self, begin: str) -> None:
        """Have all values begin with this, too."""
        self.begin = begin + (self.begin or "")
        if self._before_nothing:
            self._before_nothing = begin + self._before_nothing
        self.shortest += len(begin)
        before = tuple(sign for sign in begin if not sign.isalnum())
        known = self._divisions or set()
        self._divisions = {marks for marks in known if marks[0] not in before} | {
            before + marks for marks in known if before
        }
        self.looks = Counter({"text": self.looks.total()})

    @property
    def look(self) -> str:
        """What nearly all values look like."""
        return usual_look(self.looks)

    @property
    def division(self) -> Marks:
        """The marks at which all values are several fields, when some must be."""
        return min(self._divisions or {()}, key=lambda marks: (len(marks), marks)) if self.divided else ()

    @property
    def literal_begin(self) -> str:
        """The literal that all values begin with, up to a mark, and that is all of none of them."""
        begin = (self.begin or "")[: self.shortest - 1]
        if self._before_nothing and begin.startswith(self._before_nothing):
            return self._before_nothing
        if self.look != "text":
            return ""  # dates of one year begin alike, too
        while begin and (begin[-1].isalnum() or not may_be_literal(begin)):
            begin = begin[:-1]
        return begin


Piece = str | Field
"""A part of a pattern: literal text or a field."""


class Branch:
    """What may follow at one place of a tree, and the keys that end there."""

    __slots__ = ("count", "examples", "field", "literals", "longest", "rest", "words")

    def __init__(self) -> None:
        self.words: dict[str, Branch] = {}
        self.literals: dict[str, Branch] = {}  # those that no field could hold
        self.field: Field | None = None
        self.rest: Branch | None = None  # what follows the field
        self.count = 0  # keys that end here
        self.longest = 0  # bytes of the longest of them
        self.examples: list[bytes] = []

    def end(self, key: bytes) -> None:
        """A key ends here."""
        self.count += 1
        self.longest = max(self.longest, len(key))
        if len(self.examples) < _EXAMPLES:
            self.examples.append(key)

    def follow(self, part: str, mark: str) -> Branch:
        """Where a part leads."""
        if not part or mark == TAG_OPENS:
            return _branch(self.literals, part)
        if self.field is None:
            if part in self.words:
                return self.words[part]
            if len(self.words) < MOST_WORDS and is_word(part):
                return _branch(self.words, part)
        return self.as_field(part, mark)

    def as_field(self, part: str, mark: str) -> Branch:
        """Where a part leads that is data, and from now on every other part here."""
        if self.field is None or self.rest is None:
            self.generalize(mark)
        assert self.field is not None and self.rest is not None  # noqa: S101, PT018
        self.field.note(part, mark)
        return self.rest

    def generalize(self, mark: str = "") -> None:
        """Make the words here a field, and one branch of all that follows them."""
        self.field, self.rest = self.field or Field(), self.rest or Branch()
        for word, branch in self.words.items():
            self.field.note(word, mark, branch.total())
            self.rest.merge(branch)
        self.words = {}

    def merge(self, other: Branch) -> None:
        """Have all keys of another branch here."""
        self.count += other.count
        self.longest = max(self.longest, other.longest)
        self.examples = [*self.examples, *other.examples][:_EXAMPLES]
        for word, branch in other.literals.items():
            _branch(self.literals, word).merge(branch)
        for word, branch in other.words.items():
            _branch(self.words, word).merge(branch)
        if other.field is not None and other.rest is not None:
            self.field, self.rest = self.field or Field(), self.rest or Branch()
            self.field.merge(other.field)
            self.rest.merge(other.rest)
        if self.words and (self.field is not None or len(self.words) > MOST_WORDS):
            self.generalize()

    def total(self) -> int:
        """Keys here and below."""
        return self.count + sum(branch.total() for _, branch in self._below())

    def coarsen(self, most_words: int) -> None:
        """Make a field of every place with more words than that."""
        if len(self.words) > most_words:
            self.generalize()
        for _, branch in self._below():
            branch.coarsen(most_words)

    def tidy(self) -> None:
        """Make a field of words that are all followed by the same words: plans with the same features."""
        for _, branch in self._below():
            branch.tidy()
        followers = Counter(
            frozenset(branch.words) for branch in self.words.values() if len(branch.words) > 1
        )
        if followers and max(followers.values()) >= _ALIKE:
            self.generalize()

    def paths(self) -> Iterator[tuple[list[Piece], Branch]]:
        """Every way down from here to where keys end."""
        if self.count:
            yield [], self
        for piece, branch in self._below():
            for pieces, leaf in branch.paths():
                yield [piece, *pieces], leaf

    def _below(self) -> Iterator[tuple[Piece, Branch]]:
        yield from self.literals.items()
        yield from self.words.items()
        if self.field is not None and self.rest is not None:
            yield self.field, self.rest


def _common(one: str, other: str) -> str:
    """With what both begin."""
    return "".join(
        sign for sign, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    )


def _branch(branches: dict[str, Branch], part: str) -> Branch:
    found = branches.get(part)
    if found is None:
        found = branches[part] = Branch()
    return found
