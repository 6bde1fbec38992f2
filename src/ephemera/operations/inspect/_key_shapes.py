"""The shapes of keys that nobody declared: patterns that cover all of them and never overlap.

Keys with the same seams (`dissecting`) go down one tree, a level for each part. At a level a part is a
literal branch as long as the parts there read like a few words; as soon as one looks like data, or the words
are too many, all of them become one field, and what was below the words is merged. The first part always
starts with a literal (`beginnings`). Two patterns of a tree part at different literals, or at a literal that
the other's field cannot hold, so a catalogue of all of them can be declared, whatever the keys.

Memory is bounded by the number of words, not of keys: a field keeps a few examples and what all its values
share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ephemera.operations.infer._key_parser import TAG_OPENS, Seams, dissect, is_tagged, mark_after
from ephemera.operations.infer._pattern_writer import Shape, worded
from ephemera.operations.infer._prefixes import Beginnings
from ephemera.operations.infer._recognizer import before_secrets

MOST_SHAPES = 300
"""Shapes that `found` gives; above, words become fields until there are no more."""

_EXAMPLES = 3
_MOST_BESIDE = 50


@dataclass(frozen=True, slots=True)
class Undeclarable:
    """Keys that no pattern can render, for one reason."""

    reason: str
    count: int
    examples: list[bytes]


class Shapes:
    """Takes keys one by one; gives the patterns they follow."""

    def __init__(self) -> None:
        self._trees: dict[Seams, Beginnings] = {}
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, list[bytes]] = {}
        self._beside: set[str] = set()  # literals right before a hash tag's brace

    def add(self, key: bytes) -> None:
        """Have a key among the shapes, or among what cannot be declared."""
        dissected = dissect(key)
        if isinstance(dissected, str):
            self._refuse(dissected, key)
            return
        seams, parts = dissected
        if TAG_OPENS in seams and not self._few_beside(parts[seams.index(TAG_OPENS)]):
            self._refuse("too many different texts stand right before hash tags, where no field can", key)
            return
        tree = self._trees.get(seams)
        if tree is None:
            tree = self._trees[seams] = Beginnings(mark_after(seams, 0))
        branch = tree.follow(parts[0])
        for place in range(1, len(parts)):
            mark, part = mark_after(seams, place), parts[place]
            is_data = is_tagged(seams, place) or (
                part and mark != TAG_OPENS and before_secrets(parts[place - 1])
            )
            branch = (branch.as_field if is_data else branch.follow)(part, mark)
        branch.end(key)

    def undeclarable(self) -> list[Undeclarable]:
        """The keys that no pattern can render, by reason."""
        return [Undeclarable(why, n, self._examples[why]) for why, n in self._counts.most_common()]

    def found(self) -> list[Shape]:
        """The shapes, most keys first."""
        for most_words in (None, 8, 4, 2, 1, 0):
            if most_words is not None:
                for tree in self._trees.values():
                    tree.coarsen(most_words)
            shapes = [shape for seams, tree in self._trees.items() for shape in _shapes(seams, tree)]
            if len(shapes) <= MOST_SHAPES:
                break
        return _with_names_of_their_own(sorted(shapes, key=lambda shape: (-shape.count, shape.pattern)))

    def _few_beside(self, literal: str) -> bool:
        if len(self._beside) < _MOST_BESIDE:
            self._beside.add(literal)
        return literal in self._beside

    def _refuse(self, reason: str, key: bytes) -> None:
        self._counts[reason] += 1
        examples = self._examples.setdefault(reason, [])
        if len(examples) < _EXAMPLES:
            examples.append(key)


def _shapes(seams: Seams, tree: Beginnings) -> Iterator[Shape]:
    tree.tidy()
    for pieces, leaf in tree.paths():
        yield worded(seams, pieces, leaf)


def _with_names_of_their_own(shapes: list[Shape]) -> list[Shape]:
    """Shapes that differ by their hash tag alone, which a pattern does not show, get other field names."""
    seen: set[str] = set()
    for place in range(len(shapes)):
        while shapes[place].pattern in seen:
            shapes[place] = shapes[place].with_other_names()
        seen.add(shapes[place].pattern)
    return shapes
