"""One level of a tree of key parts: literal words, or one field.

A level holds words until data appears or there are more than `MAX_WORDS`; then they become a field, for good.
Next to a field only the empty literal remains, because no value is encoded as empty text. Directly before a
hash tag's brace, where no field can end, all parts are literals.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any

from ephemera.operations.survey._key_parser import (
    TAG_OPEN,
    Joins,
    can_be_field,
    can_be_literal,
    literal_before_empty,
    possible_splits,
    splits_into,
)
from ephemera.operations.survey._recognizer import form_of, is_word, usual_form
from ephemera.operations.survey._samples import Reservoir

MAX_WORDS = 16
"""Different words at one position that still count as literals."""

_FORMS_COUNTED = 200  # values of a field whose forms are counted
_MARKS = re.compile("[^A-Za-z0-9]+")
_ALIKE = 3  # nodes with the same words below them, from which on their own words count as data


Sighting = tuple[Any, bytes]
"""Where a key was seen, and its name."""


class FieldValues:
    """What the values at one position have in common."""

    __slots__ = ("_before_empty", "_splits", "count", "forms", "must_split", "prefix", "shortest")

    def __init__(self) -> None:
        self.count = 0
        self.forms: Counter[str] = Counter()
        self.prefix: str | None = None  # the prefix of all values
        self.shortest = 1 << 31  # characters of the shortest
        self._before_empty = ""  # the literal before an empty value
        self.must_split = (
            False  # whether some can only be several fields, because they contain an encoded mark
        )
        self._splits: set[Joins] | None = None  # the ways in which all of them can be split

    def add(self, value: str, mark: str, count: int = 1) -> None:
        """Add a value."""
        self.count += count
        if self.forms.total() < _FORMS_COUNTED:
            self.forms[form_of(value)] += 1
        self.shortest = min(self.shortest, len(value))
        if self.prefix is None:
            self.prefix = value
        elif not value.startswith(self.prefix):
            self.prefix = _common_prefix(self.prefix, value)
        if self._splits is None:
            self._splits = possible_splits(value, mark)
        elif self._splits:
            self._splits = {marks for marks in self._splits if splits_into(marks, value, mark)}
        if "%" in value and not can_be_field(value, mark):
            literal = literal_before_empty(value)
            self._before_empty = literal or self._before_empty
            self.must_split |= not literal

    def merge(self, other: FieldValues) -> None:
        """Add another field's values."""
        self.count += other.count
        self.forms += other.forms
        self.must_split |= other.must_split
        self._before_empty = self._before_empty or other._before_empty
        self.shortest = min(self.shortest, other.shortest)
        if other.prefix is not None:
            self.prefix = other.prefix if self.prefix is None else _common_prefix(self.prefix, other.prefix)
        both = [known for known in (self._splits, other._splits) if known is not None]
        self._splits = set.intersection(*both) if both else None

    def prepend(self, prefix: str) -> None:
        """Put a prefix before all values."""
        self.prefix = prefix + (self.prefix or "")
        if self._before_empty:
            self._before_empty = prefix + self._before_empty
        self.shortest += len(prefix)
        before = tuple(char for char in prefix if not char.isalnum())
        known = self._splits or set()
        self._splits = {marks for marks in known if marks[0] not in before} | {
            before + marks for marks in known if before
        }
        self.forms = Counter({"text": self.forms.total()})

    @property
    def form(self) -> str:
        """The form of nearly all values."""
        return usual_form(self.forms)

    @property
    def split(self) -> Joins:
        """The marks at which all values are split, when some must be several fields."""
        return min(self._splits or {()}, key=lambda marks: (len(marks), marks)) if self.must_split else ()

    @property
    def literal_prefix(self) -> str:
        """The words that all values start with, up to a mark, and that are shorter than each of them."""
        prefix = (self.prefix or "")[: self.shortest - 1]
        if self._before_empty and prefix.startswith(self._before_empty):
            return self._before_empty
        if self.form != "text":
            return ""  # dates of one year share a prefix, too
        while prefix and (prefix[-1].isalnum() or not can_be_literal(prefix) or not _are_words(prefix)):
            prefix = prefix[:-1]
        return prefix


Piece = str | FieldValues
"""A part of a pattern: literal text or a field."""


class Node:
    """One node: what may follow, and the keys that end here."""

    __slots__ = ("field", "literals", "longest", "rest", "sample", "words")

    def __init__(self) -> None:
        self.words: dict[str, Node] = {}
        self.literals: dict[str, Node] = {}  # parts that no field can hold
        self.field: FieldValues | None = None
        self.rest: Node | None = None  # what follows the field
        self.sample: Reservoir[Sighting] | None = None  # of the keys that end here
        self.longest = 0  # bytes of the longest of them

    @property
    def count(self) -> int:
        """Keys that end here."""
        return self.sample.offered if self.sample else 0

    def end(self, key: bytes, origin: Any, new_sample: Callable[[], Reservoir[Sighting]]) -> None:
        """Record a key that ends here."""
        self.longest = max(self.longest, len(key))
        if self.sample is None:
            self.sample = new_sample()
        self.sample.offer([(origin, key)])

    def end_all(self, sample: Reservoir[Sighting] | None, longest: int) -> None:
        """Record all keys that were offered to a sample."""
        self.longest = max(self.longest, longest)
        if self.sample is None or sample is None:
            self.sample = self.sample or sample
        else:
            self.sample.merge(sample)

    def follow(self, part: str, mark: str) -> Node:
        """The node that a part leads to."""
        if not part or mark == TAG_OPEN:
            return _child(self.literals, part)
        if self.field is None:
            if part in self.words:
                return self.words[part]
            if len(self.words) < MAX_WORDS and is_word(part):
                return _child(self.words, part)
        return self.follow_as_field(part, mark)

    def follow_as_field(self, part: str, mark: str) -> Node:
        """The node that a part leads to that is data; from now on every part here is."""
        field, rest = (
            self.generalize(mark) if self.field is None or self.rest is None else (self.field, self.rest)
        )
        field.add(part, mark)
        return rest

    def generalize(self, mark: str = "") -> tuple[FieldValues, Node]:
        """Turn the words here into a field, and merge everything that follows them."""
        field, rest = self.field or FieldValues(), self.rest or Node()
        self.field, self.rest = field, rest
        for word, node in self.words.items():
            field.add(word, mark, node.total())
            rest.merge(node)
        self.words = {}
        return field, rest

    def merge(self, other: Node) -> None:
        """Add all keys of another node."""
        self.end_all(other.sample, other.longest)
        for word, node in other.literals.items():
            _child(self.literals, word).merge(node)
        for word, node in other.words.items():
            _child(self.words, word).merge(node)
        if other.field is not None and other.rest is not None:
            self.field, self.rest = self.field or FieldValues(), self.rest or Node()
            self.field.merge(other.field)
            self.rest.merge(other.rest)
        if self.words and (self.field is not None or len(self.words) > MAX_WORDS):
            self.generalize()

    def total(self) -> int:
        """Keys here and below."""
        return self.count + sum(node.total() for _, node in self._below())

    def coarsen(self, max_words: int) -> None:
        """Turn every position with more words than that into a field."""
        if len(self.words) > max_words:
            self.generalize()
        for _, node in self._below():
            node.coarsen(max_words)

    def simplify(self) -> None:
        """Turn words into a field that are all followed by the same words: plans with the same features."""
        for _, node in self._below():
            node.simplify()
        followers = Counter(frozenset(node.words) for node in self.words.values() if len(node.words) > 1)
        if followers and max(followers.values()) >= _ALIKE:
            self.generalize()

    def paths(self) -> Iterator[tuple[list[Piece], Node]]:
        """Every path from here to a node where keys end."""
        if self.count:
            yield [], self
        for piece, node in self._below():
            for pieces, leaf in node.paths():
                yield [piece, *pieces], leaf

    def _below(self) -> Iterator[tuple[Piece, Node]]:
        yield from self.literals.items()
        yield from self.words.items()
        if self.field is not None and self.rest is not None:
            yield self.field, self.rest


def _common_prefix(one: str, other: str) -> str:
    """The common prefix."""
    return "".join(
        char for char, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    )


def _are_words(text: str) -> bool:
    """Whether a text consists of words and marks, not of a part of a random id."""
    return all(is_word(part) for part in _MARKS.split(text) if part)


def _child(nodes: dict[str, Node], part: str) -> Node:
    found = nodes.get(part)
    if found is None:
        found = nodes[part] = Node()
    return found
