"""The first part of keys: words, or literal prefixes of ids, none of which is the prefix of another.

A pattern starts with a literal, so ids in first position (`user_123`, `9f3c21ab`) are split into a prefix and
a field: `user_` and the rest, or at worst the first character and the rest. A prefix captures every other
first part that starts with it, so where possible it is made long enough to be the prefix of no word.

Reserved words stay words, however rare they are, as `celery` beside a million ids that start with `c`: what
such keys hold decides how the server must be configured.

More than `MAX_WORDS` words are data, too (user names, for example): those with few keys become prefixes, as
short as possible without capturing the frequent ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Set

from ephemera.operations.survey._key_parser import TAG_OPEN, can_be_literal
from ephemera.operations.survey._key_tree import FieldValues, Node, Piece
from ephemera.operations.survey._recognizer import form_of, is_word

MAX_WORDS = 100
_MAX_PREFIXES = 100
_MAX_PENDING = 1000
_FREQUENT = 0.01  # share of all keys; a word with as many is kept when the others become prefixes
_LETTERS_AND_MARKS = re.compile(r"[!-$&-)+-/;->@-Z^-z|~]+")  # literals except digits


class Prefixes:
    """The first level of a tree: like `Node`, but no field without a literal before it."""

    def __init__(self, mark: str, reserved: Set[str]) -> None:
        self._mark = mark
        self._reserved = reserved
        self._words: dict[str, Node] = {}
        self._pending: dict[str, Node] = {}  # not words, and no prefix chosen for them yet
        self._fields: dict[str, tuple[FieldValues, Node]] = {}
        self._lengths: list[int] = []  # of the prefixes, shortest first

    def follow(self, part: str) -> Node:
        """The node that a first part leads to."""
        known = self._words.get(part) or self._pending.get(part)
        if known is not None:
            return known
        if not part or self._mark == TAG_OPEN or part in self._reserved:
            return self._word(part)
        prefix = self._prefix_of(part)
        if prefix is not None:
            field, rest = self._fields[prefix]
            field.add(part[len(prefix) :], self._mark)
            return rest
        if len(part) == 1 or is_word(part):
            return self._word(part)
        if len(self._pending) >= _MAX_PENDING:
            self._choose_prefixes()
            return self.follow(part)
        return self._pending.setdefault(part, Node())

    def coarsen(self, max_words: int) -> None:
        """Turn every later position with more words than that, and infrequent first words, into fields."""
        if max_words <= 2:
            self._absorb_infrequent()
        for _, node in self._below():
            node.coarsen(max_words)

    def simplify(self) -> None:
        """Choose prefixes, and turn words that are data by what follows them into fields."""
        self._choose_prefixes()
        for _, node in self._below():
            node.simplify()

    def paths(self) -> Iterator[tuple[list[Piece], Node]]:
        """Every path from the first part to a node where keys end."""
        for first, node in self._below():
            for pieces, leaf in node.paths():
                yield [*first, *pieces], leaf

    def _below(self) -> Iterator[tuple[list[Piece], Node]]:
        for word, node in self._words.items():
            yield [word], node
        for prefix, (field, node) in self._fields.items():
            yield [prefix, field], node

    def _word(self, part: str) -> Node:
        if len(self._words) >= MAX_WORDS and self._mark != TAG_OPEN:
            self._absorb_infrequent()
            if part not in self._reserved and self._prefix_of(part) is not None:
                return self.follow(part)
        return self._words.setdefault(part, Node())

    def _prefix_of(self, part: str) -> str | None:
        for length in self._lengths:
            if length < len(part) and part[:length] in self._fields:
                return part[:length]
        return None

    def _choose_prefixes(self) -> None:
        """Choose a prefix for every first part that is not a word."""
        pending, self._pending = self._pending, {}
        for part, node in sorted(pending.items()):
            if self._prefix_of(part) is None:
                natural = _natural_prefix(part) if len(self._fields) < _MAX_PREFIXES else part[0]
                words = self._words.keys() | self._reserved
                self._add_prefix(_shortest_distinct_prefix(part, len(natural), words) or natural)
            prefix = self._prefix_of(part) or ""
            field, rest = self._fields[prefix]
            field.add(part[len(prefix) :], self._mark, node.total())
            rest.merge(node)

    def _add_prefix(self, prefix: str) -> None:
        """Add a prefix, and move everything that starts with it below it."""
        field, rest = FieldValues(), Node()
        for word in [word for word in self._words if word.startswith(prefix) and word != prefix]:
            node = self._words.pop(word)
            field.add(word[len(prefix) :], self._mark, node.total())
            rest.merge(node)
        for longer in [other for other in self._fields if other.startswith(prefix)]:
            values, node = self._fields.pop(longer)
            values.prepend(longer[len(prefix) :])
            field.merge(values)
            rest.merge(node)
        self._fields[prefix] = field, rest
        self._lengths = sorted({len(other) for other in self._fields})

    def _absorb_infrequent(self) -> None:
        """Turn words with few keys into prefixes."""
        totals = {word: node.total() for word, node in self._words.items()}
        enough = _FREQUENT * sum(totals.values())
        kept = {word for word, total in totals.items() if total >= enough or len(word) < 2} | self._reserved
        for word in sorted(totals.keys() - kept):
            if word in self._words and (prefix := _shortest_distinct_prefix(word, 1, kept)):
                self._add_prefix(prefix)


def _natural_prefix(part: str) -> str:
    """The prefix a person would name: 'user_' of 'user_123', 'user' of 'user123'."""
    if form_of(part) != "text":
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


def _shortest_distinct_prefix(part: str, shortest: int, words: Collection[str]) -> str | None:
    """The shortest prefix of a part, of at least this length, that no other word starts with."""
    prefixes = [part[:length] for length in range(shortest, len(part)) if can_be_literal(part[:length])]
    for prefix in prefixes:
        if not any(word.startswith(prefix) and word not in (prefix, part) for word in words):
            return prefix
    return None
