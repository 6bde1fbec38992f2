"""The first part of keys: words, or literal beginnings of ids, none of which is the beginning of another.

A pattern starts with a literal, so ids that stand first (`user_123`, `9f3c21ab`) are a beginning and a
field: `user_` and the rest, or at worst the first character and the rest. A beginning takes every other
first part that starts with it, so words are kept apart from it where that is possible: it is made longer
until it is the beginning of no word.

When the words are more than `MOST_WORDS`, they are data, too (user names, for example): those with few keys
become beginnings, as short as leaves the frequent ones alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from ephemera.operations.infer._key_parser import TAG_OPENS, may_be_literal
from ephemera.operations.infer._key_tree import Branch, Field, Piece
from ephemera.operations.infer._recognizer import is_word, look_of

MOST_WORDS = 100
_MOST_BEGINNINGS = 100
_MOST_UNSETTLED = 1000
_FREQUENT = 0.01  # of all keys; a word with as many is kept when the others become beginnings
_LETTERS_AND_MARKS = re.compile(r"[!-$&-)+-/;->@-Z^-z|~]+")  # literals but digits


class Beginnings:
    """The first level of a tree; as `Branch`, but no field without a literal before it."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._words: dict[str, Branch] = {}
        self._unsettled: dict[str, Branch] = {}  # no words, and no beginning chosen for them yet
        self._fields: dict[str, tuple[Field, Branch]] = {}
        self._lengths: list[int] = []  # of the beginnings, shortest first

    def follow(self, part: str) -> Branch:
        """Where a first part leads."""
        known = self._words.get(part) or self._unsettled.get(part)
        if known is not None:
            return known
        if not part or self._mark == TAG_OPENS:
            return self._word(part)
        begin = self._begin_of(part)
        if begin is not None:
            field, rest = self._fields[begin]
            field.note(part[len(begin) :], self._mark)
            return rest
        if len(part) == 1 or is_word(part):
            return self._word(part)
        if len(self._unsettled) >= _MOST_UNSETTLED:
            self._settle()
            return self.follow(part)
        return self._unsettled.setdefault(part, Branch())

    def coarsen(self, most_words: int) -> None:
        """Make a field of every later place with more words than that, and of infrequent first words."""
        if most_words <= 2:
            self._thin_out()
        for _, branch in self._below():
            branch.coarsen(most_words)

    def tidy(self) -> None:
        """Settle on beginnings, and make fields of words that are data by what follows them."""
        self._settle()
        for _, branch in self._below():
            branch.tidy()

    def paths(self) -> Iterator[tuple[list[Piece], Branch]]:
        """Every way from the first part to where keys end."""
        for first, branch in self._below():
            for pieces, leaf in branch.paths():
                yield [*first, *pieces], leaf

    def _below(self) -> Iterator[tuple[list[Piece], Branch]]:
        for word, branch in self._words.items():
            yield [word], branch
        for begin, (field, branch) in self._fields.items():
            yield [begin, field], branch

    def _word(self, part: str) -> Branch:
        if len(self._words) >= MOST_WORDS and self._mark != TAG_OPENS:
            self._thin_out()
        return self._words.setdefault(part, Branch())

    def _begin_of(self, part: str) -> str | None:
        for length in self._lengths:
            if length < len(part) and part[:length] in self._fields:
                return part[:length]
        return None

    def _settle(self) -> None:
        """Give every first part that is no word a beginning."""
        unsettled, self._unsettled = self._unsettled, {}
        for part, branch in sorted(unsettled.items()):
            if self._begin_of(part) is None:
                natural = _natural_begin(part) if len(self._fields) < _MOST_BEGINNINGS else part[0]
                self._begin_with(_shortest_apart(part, len(natural), self._words) or natural)
            begin = self._begin_of(part) or ""
            field, rest = self._fields[begin]
            field.note(part[len(begin) :], self._mark, branch.total())
            rest.merge(branch)

    def _begin_with(self, begin: str) -> None:
        """Have a new beginning, and everything that starts with it there."""
        field, rest = Field(), Branch()
        for word in [word for word in self._words if word.startswith(begin) and word != begin]:
            branch = self._words.pop(word)
            field.note(word[len(begin) :], self._mark, branch.total())
            rest.merge(branch)
        for longer in [other for other in self._fields if other.startswith(begin)]:
            values, branch = self._fields.pop(longer)
            values.prepend(longer[len(begin) :])
            field.merge(values)
            rest.merge(branch)
        self._fields[begin] = field, rest
        self._lengths = sorted({len(other) for other in self._fields})

    def _thin_out(self) -> None:
        """Make beginnings of the words that have few keys."""
        totals = {word: branch.total() for word, branch in self._words.items()}
        enough = _FREQUENT * sum(totals.values())
        kept = {word for word, total in totals.items() if total >= enough or len(word) < 2}
        for word in sorted(totals.keys() - kept):
            if word in self._words and (begin := _shortest_apart(word, 1, kept)):
                self._begin_with(begin)


def _natural_begin(part: str) -> str:
    """How a person would say that an id begins: 'user_' of 'user_123', 'user' of 'user123'."""
    if look_of(part) != "text":
        return part[0]
    found = _LETTERS_AND_MARKS.match(part)
    run = found[0] if found else ""
    marked = run
    while marked and marked[-1].isalnum():
        marked = marked[:-1]
    if 0 < len(marked) < len(part):
        return marked
    if run and part[len(run) :].isdigit():
        return run
    return part[0]


def _shortest_apart(part: str, shortest: int, words: Collection[str]) -> str | None:
    """The shortest beginning of a part, of at least a length, that no other word goes on from."""
    begins = [part[:length] for length in range(shortest, len(part)) if may_be_literal(part[:length])]
    for begin in begins:
        if not any(word.startswith(begin) and word not in (begin, part) for word in words):
            return begin
    return None
