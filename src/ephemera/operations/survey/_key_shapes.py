"""The shapes of undeclared keys: patterns that cover all of them and never overlap.

Keys with the same separators (`_key_parser`) go down one tree, one level per part. At each level a part is a
literal branch while the parts there read like a few words. As soon as one looks like data, or the words are
too many, all of them become one field, and the branches below the words are merged. The first part always
starts with a literal (`_prefixes`). Two patterns of a tree differ in a literal, or in a literal that the
other's field cannot hold, so a catalogue of all of them can be declared, whatever the keys.

Memory is bounded by the number of words, not of keys: a field keeps a few examples and what its values have
in common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ephemera.operations.survey._key_parser import (
    TAG_CLOSE,
    TAG_OPEN,
    Separators,
    is_tagged,
    parse_key,
    terminator,
)
from ephemera.operations.survey._key_tree import FieldValues, Node, Piece
from ephemera.operations.survey._prefixes import Prefixes
from ephemera.operations.survey._recognizer import field_name, looks_secret, precedes_secret

MAX_SHAPES = 300
"""Shapes that `KeyShapes.shapes` returns; beyond that, words become fields until they are few enough."""

_EXAMPLES = 3
_MAX_TAG_LITERALS = 50


@dataclass(frozen=True, slots=True)
class Shape:
    """A pattern that keys seem to follow."""

    pattern: str
    hash_tag: str | None
    count: int
    longest: int  # bytes of its longest key
    examples: list[bytes]
    secret: bool  # judging by its words, its keys or values may be secrets

    def with_longer_names(self) -> Shape:
        """The same shape with longer field names."""
        hash_tag = self.hash_tag and f"{self.hash_tag}_"
        return replace(self, pattern=self.pattern.replace("}", "_}"), hash_tag=hash_tag)


@dataclass(frozen=True, slots=True)
class Undeclarable:
    """Keys that no pattern can render, for one reason."""

    reason: str
    count: int
    examples: list[bytes]


class KeyShapes:
    """Collects keys one by one, and returns the patterns they follow."""

    def __init__(self) -> None:
        self._trees: dict[Separators, Prefixes] = {}
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, list[bytes]] = {}
        self._tag_literals: set[str] = set()  # literals right before a hash tag's brace

    def add(self, key: bytes) -> None:
        """Add a key to the shapes, or to the undeclarable keys."""
        parsed = parse_key(key)
        if isinstance(parsed, str):
            self._refuse(parsed, key)
            return
        separators, parts = parsed
        if TAG_OPEN in separators and not self._is_tag_literal(parts[separators.index(TAG_OPEN)]):
            self._refuse("too many different texts directly before hash tags, where no field can be", key)
            return
        tree = self._trees.get(separators)
        if tree is None:
            tree = self._trees[separators] = Prefixes(terminator(separators, 0))
        node = tree.follow(parts[0])
        for position in range(1, len(parts)):
            mark, part = terminator(separators, position), parts[position]
            is_data = is_tagged(separators, position) or (
                part and mark != TAG_OPEN and precedes_secret(parts[position - 1])
            )
            node = (node.follow_as_field if is_data else node.follow)(part, mark)
        node.end(key)

    def undeclarable(self) -> list[Undeclarable]:
        """The keys that no pattern can render, by reason."""
        return [Undeclarable(why, n, self._examples[why]) for why, n in self._counts.most_common()]

    def shapes(self) -> list[Shape]:
        """The shapes, the one with most keys first."""
        for max_words in (None, 8, 4, 2, 1, 0):
            if max_words is not None:
                for tree in self._trees.values():
                    tree.coarsen(max_words)
            shapes = [
                shape for separators, tree in self._trees.items() for shape in _tree_shapes(separators, tree)
            ]
            if len(shapes) <= MAX_SHAPES:
                break
        return _with_unique_patterns(sorted(shapes, key=lambda shape: (-shape.count, shape.pattern)))

    def _is_tag_literal(self, literal: str) -> bool:
        if len(self._tag_literals) < _MAX_TAG_LITERALS:
            self._tag_literals.add(literal)
        return literal in self._tag_literals

    def _refuse(self, reason: str, key: bytes) -> None:
        self._counts[reason] += 1
        examples = self._examples.setdefault(reason, [])
        if len(examples) < _EXAMPLES:
            examples.append(key)


def _tree_shapes(separators: Separators, tree: Prefixes) -> Iterator[Shape]:
    tree.simplify()
    for pieces, leaf in tree.paths():
        yield _shape(separators, pieces, leaf)


def _with_unique_patterns(shapes: list[Shape]) -> list[Shape]:
    """Rename fields of shapes that differ only by their hash tag, which a pattern does not show."""
    seen: set[str] = set()
    for position in range(len(shapes)):
        while shapes[position].pattern in seen:
            shapes[position] = shapes[position].with_longer_names()
        seen.add(shapes[position].pattern)
    return shapes


class _PatternWriter:
    """Writes a pattern: literals as they are, fields with descriptive names."""

    def __init__(self) -> None:
        self.text = ""
        self.names: list[str] = []
        self.hash_tag: str | None = None
        self._literal = ""  # since the last field

    def literal(self, text: str) -> None:
        self.text += text
        self._literal += text

    def field(self, values: FieldValues, *, tagged: bool) -> None:
        prefix = values.literal_prefix
        if prefix and not tagged and not values.split:
            self.literal(prefix)
        self._name(values.form)
        if tagged:
            self.hash_tag = self.names[-1]
        for mark in values.split:
            self.literal(mark)
            self._name("text")

    def _name(self, form: str) -> None:
        name = field_name(form, self._literal, self.names)
        self.names.append(name)
        self.text += f"{{{name}}}"
        self._literal = ""


def _shape(separators: Separators, pieces: Sequence[Piece], leaf: Node) -> Shape:
    """The shape of the keys that end at a leaf."""
    writer = _PatternWriter()
    extra = len(pieces) - len(separators) - 1  # a first part may be two pieces: its prefix and its field
    for number, piece in enumerate(pieces):
        position = number - extra
        if position > 0:
            writer.literal(separators[position - 1].strip(TAG_OPEN + TAG_CLOSE))
        if isinstance(piece, str):
            writer.literal(piece)
        else:
            writer.field(piece, tagged=is_tagged(separators, position))
    return Shape(
        writer.text,
        writer.hash_tag,
        leaf.count,
        leaf.longest,
        leaf.examples,
        looks_secret(writer.text, *writer.names),
    )
