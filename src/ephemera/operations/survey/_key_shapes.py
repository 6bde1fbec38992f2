"""The shapes of undeclared keys: patterns that cover all of them and never overlap.

Keys with the same separators (`_key_parser`) go down one tree, one level per part. At each level a part is a
literal branch while the parts there read like a few words. As soon as one looks like data, or the words are
too many, all of them become one field, and the branches below the words are merged. The first part always
starts with a literal (`_prefixes`). Two patterns of a tree differ in a literal, or in a literal that the
other's field cannot hold, so a catalogue of all of them can be declared, whatever the keys.

Memory is bounded by the number of words, not of keys: a field keeps a few examples and what its values have
in common.

Most keys of a server follow a few shapes. Once those are known, whole pages of names are matched against them
(`_KnownShapes`), which is five times as fast as following each name down the tree, and only the others go
there. A name that fits a shape would change nothing in the tree but its count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import compress

from ephemera.keyspace import Template
from ephemera.operations.survey._key_parser import (
    TAG_CLOSE,
    TAG_OPEN,
    Separators,
    is_tagged,
    parse_key,
    terminator,
)
from ephemera.operations.survey._key_tree import FieldValues, Node, Piece
from ephemera.operations.survey._page_classifier import PageClassifier
from ephemera.operations.survey._prefixes import Prefixes
from ephemera.operations.survey._recognizer import field_name, looks_secret, precedes_secret

MAX_SHAPES = 300
"""Shapes that `KeyShapes.shapes` returns; beyond that, words become fields until they are few enough."""

_EXAMPLES = 3
_LEARN_AFTER = 2000  # keys down the tree, before whole pages are matched against the shapes
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

    @property
    def template(self) -> Template:
        """The pattern as a template."""
        return Template(self.pattern, hash_tag=self.hash_tag)

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
    """Collects keys, and returns the patterns they follow; reserved first parts never become fields."""

    def __init__(self, reserved: Set[str] = frozenset()) -> None:
        self._reserved = reserved
        self._trees: dict[Separators, Prefixes] = {}
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, list[bytes]] = {}
        self._tag_literals: set[str] = set()  # literals right before a hash tag's brace
        self._shapes: list[Shape] | None = None  # since the last key
        self._known: _KnownShapes | None = None
        self._followed = 0  # keys that went down the tree since the shapes were last learned
        self._learn_after = _LEARN_AFTER

    def add_all(self, keys: Sequence[bytes]) -> list[bytes]:
        """Add many keys, and return those that were kept as examples."""
        self._shapes = None
        others = keys if self._known is None else self._known.count(keys)
        kept = [key for key in others if self.add(key)]
        self._followed += len(others)
        if self._followed >= self._learn_after:
            self._known = _KnownShapes(self.shapes())
            self._followed, self._learn_after = 0, 2 * self._learn_after
        return kept

    def add(self, key: bytes) -> bool:
        """Add a key to the shapes, or to the undeclarable keys; whether it was kept as an example."""
        self._shapes = None
        node = self._follow(key)
        return self._refuse(node, key) if isinstance(node, str) else node.end(key)

    def _follow(self, key: bytes) -> Node | str:
        """The node where a key ends, or the reason why no pattern can render it."""
        parsed = parse_key(key)
        if isinstance(parsed, str):
            return parsed
        separators, parts = parsed
        if TAG_OPEN in separators and not self._is_tag_literal(parts[separators.index(TAG_OPEN)]):
            return "too many different texts before hash tags, where no field can be"
        tree = self._trees.get(separators)
        if tree is None:
            tree = self._trees[separators] = Prefixes(terminator(separators, 0), self._reserved)
        node = tree.follow(parts[0])
        for position in range(1, len(parts)):
            mark, part = terminator(separators, position), parts[position]
            is_data = is_tagged(separators, position) or (
                part and mark != TAG_OPEN and precedes_secret(parts[position - 1])
            )
            node = (node.follow_as_field if is_data else node.follow)(part, mark)
        return node

    def undeclarable(self) -> list[Undeclarable]:
        """The keys that no pattern can render, by reason."""
        return [Undeclarable(why, n, self._examples[why]) for why, n in self._counts.most_common()]

    def shapes(self) -> list[Shape]:
        """The shapes, the one with most keys first."""
        if self._shapes is None:
            self._count_known()
            self._shapes = self._find_shapes()
        return self._shapes

    def _count_known(self) -> None:
        """Add the keys that were only counted, at the place where an example of their shape is now."""
        known, self._known = self._known, None
        for example, count, longest in known.counted() if known else ():
            node = self._follow(example)
            if isinstance(node, Node):
                node.count += count
                node.longest = max(node.longest, longest)

    def _find_shapes(self) -> list[Shape]:
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

    def _refuse(self, reason: str, key: bytes) -> bool:
        self._counts[reason] += 1
        examples = self._examples.setdefault(reason, [])
        if len(examples) == _EXAMPLES:
            return False
        examples.append(key)
        return True


class _KnownShapes:
    """Counts the keys of shapes that are known already."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._classify = PageClassifier(shapes)
        self._counts = [0] * len(shapes)
        self._longest = [0] * len(shapes)

    def count(self, keys: Sequence[bytes]) -> list[bytes]:
        """Count the keys of known shapes, and return the others."""
        numbers, others = self._classify(keys), []
        for number in set(numbers):
            same = list(compress(keys, map(number.__eq__, numbers)))
            if number == self._classify.unknown:
                others = same
            else:
                self._counts[number - 1] += len(same)
                self._longest[number - 1] = max(self._longest[number - 1], max(map(len, same)))
        return others

    def counted(self) -> Iterator[tuple[bytes, int, int]]:
        """An example of each shape with its keys and the length of the longest."""
        for shape, count, longest in zip(self._classify.keyspaces, self._counts, self._longest, strict=True):
            if count:
                yield shape.examples[0], count, longest


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
