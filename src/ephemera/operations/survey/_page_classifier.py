"""Which declared keyspace each name of a page belongs to, decided for a whole page by one regular expression.

A scan returns a thousand names at a time. They are joined by line ends, which no renderable key contains, and
one expression walks over all of them: an alternative for each pattern, grouped by prefix, and a last one for
undeclared names. That is three times as fast as classifying each name alone, with the same result: what the
expression cannot decide exactly (a `%` inside a name, fields with declared types, a page that is not UTF-8)
goes to the exact classifier.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from ephemera.keyspace import Classifier, Template

_FEW = 3  # prefixes that are looked for in a page before its names are matched
_LAST_GROUP = attrgetter("lastindex")


class HasTemplate(Protocol):
    """A keyspace, or something else whose keys follow a template."""

    @property
    def template(self) -> Template: ...


K = TypeVar("K", bound=HasTemplate)


class PageClassifier(Generic[K]):
    """Maps each name of a page to the number of its keyspace, `keyspaces[number - 1]`, or to `unknown`."""

    def __init__(self, keyspaces: Iterable[K]) -> None:
        self.keyspaces = sorted(keyspaces, key=_prefix)
        self.unknown = len(self.keyspaces) + 1
        self._typed = {number for number, each in enumerate(self.keyspaces, 1) if each.template.types}
        prefixes = {_prefix(each) for each in self.keyspaces}
        self._needles = prefixes if len(prefixes) <= _FEW and "" not in prefixes else None
        # The groups of the expression are numbered in the order of the keyspaces.
        self._matches = re.compile(_expression(self.keyspaces)).finditer

    def __call__(self, page: Sequence[bytes]) -> list[int]:
        """The number of each name's keyspace, in the order of the page."""
        try:
            text = b"\n".join((*page, b"")).decode()
        except UnicodeDecodeError:
            return [self._classify(name) for name in page]
        if text.count("\n") != len(page):
            return [self._classify(name) for name in page]
        if self._needles is not None and not any(needle in text for needle in self._needles):
            return [self.unknown] * len(page)
        numbers = list(map(_LAST_GROUP, self._matches(text)))
        if "%" in text or self._typed:
            for position, name in enumerate(page):
                if b"%" in name or numbers[position] in self._typed:
                    numbers[position] = self._classify(name)
        return numbers

    @cached_property
    def _exact(self) -> Classifier[int]:
        return Classifier((each.template, number) for number, each in enumerate(self.keyspaces, 1))

    def _classify(self, name: bytes) -> int:
        number = self._exact(name)
        return self.unknown if number is None else number


def _prefix(keyspace: HasTemplate) -> str:
    """The prefix of all keys of a keyspace, up to the first ':'; empty when it varies."""
    prefix, colon, _ = keyspace.template.literals[0].partition(":")
    return prefix + colon if colon else ""


def _expression(keyspaces: Sequence[HasTemplate]) -> str:
    """A name and its line end, with an empty group at the end of each keyspace's alternative."""
    alternatives = []
    for prefix, group in groupby(keyspaces, key=_prefix):
        start = re.escape(prefix)
        rests = "|".join(f"{_possessive(keyspace)[len(start) :]}\n()" for keyspace in group)
        alternatives.append(f"{start}(?:{rests})")
    return "|".join([*alternatives, "[^\n]*\n()"])


def _possessive(keyspace: HasTemplate) -> str:
    """A keyspace's expression without backtracking into fields: a field cannot contain its terminator."""
    return keyspace.template.regex.replace("]+", "]++")
