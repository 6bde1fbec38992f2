"""Which declared space does each name of a page belong to? A whole page by one expression.

A scan gives names a thousand at a time. They are joined by line ends, which no key that can be rendered
holds, and one expression walks over all of them: an alternative for each pattern, grouped by how they begin,
and a last one for what is none of them. That is three times as fast as asking for each name alone, and the
answers are the same: what the expression cannot tell exactly (a `%` inside a name, a page that is not UTF-8)
is asked of the catalogue's classifier.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from ephemera.keyspace import Classifier, Keyspace

_LAST_GROUP = attrgetter("lastindex")


class Names:
    """Gives each name of a page the number of its space, `spaces[number - 1]`, or `unknown`."""

    def __init__(self, spaces: Iterable[Keyspace[Any]]) -> None:
        self.spaces = sorted(spaces, key=_head)
        self.unknown = len(self.spaces) + 1
        self._exact = Classifier((space.template, number) for number, space in enumerate(self.spaces, 1))
        # The groups of the expression are counted as the spaces are: by their order.
        self._each = re.compile(_expression(self.spaces)).finditer

    def __call__(self, page: Sequence[bytes]) -> list[int]:
        """The number of each name's space, in the order of the page."""
        try:
            text = b"\n".join((*page, b"")).decode()
        except UnicodeDecodeError:
            return [self._one(name) for name in page]
        if text.count("\n") != len(page):
            return [self._one(name) for name in page]
        numbers = list(map(_LAST_GROUP, self._each(text)))
        if "%" in text:
            for place, name in enumerate(page):
                if b"%" in name:
                    numbers[place] = self._one(name)
        return numbers

    def _one(self, name: bytes) -> int:
        number = self._exact(name)
        return self.unknown if number is None else number


def _head(space: Keyspace[Any]) -> str:
    """How all keys of a space begin, up to the first ':'; empty when that differs from key to key."""
    head, colon, _ = space.template.literals[0].partition(":")
    return head + colon if colon else ""


def _expression(spaces: Sequence[Keyspace[Any]]) -> str:
    """A name and its line end, with an empty group at the end of each space's alternative."""
    alternatives = []
    for head, alike in groupby(spaces, key=_head):
        begin = re.escape(head)
        rests = "|".join(f"{_possessive(space)[len(begin) :]}\n()" for space in alike)
        alternatives.append(f"{begin}(?:{rests})")
    return "|".join([*alternatives, "[^\n]*\n()"])


def _possessive(space: Keyspace[Any]) -> str:
    """A space's expression that never gives back what a field took: what ends a field is not in it."""
    return space.template.regex.replace("]+", "]++")
