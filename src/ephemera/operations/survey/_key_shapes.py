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

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress, repeat
from typing import Any

from ephemera.keyspace import MAX_KEY_LENGTH, Template
from ephemera.operations.survey._key_parser import (
    TAG_CLOSE,
    TAG_OPEN,
    Separators,
    is_tagged,
    parse_key,
    terminator,
)
from ephemera.operations.survey._key_tree import FieldValues, Node, Piece, Sighting
from ephemera.operations.survey._page_classifier import PageClassifier
from ephemera.operations.survey._prefixes import Prefixes
from ephemera.operations.survey._recognizer import field_name, looks_secret, precedes_secret
from ephemera.operations.survey._samples import Reservoir

MAX_SHAPES = 300
"""Shapes that `KeyShapes.shapes` returns; beyond that, words become fields until they are few enough."""

EXAMPLES = 3
"""Keys of a shape that are shown."""

_LEARN_AFTER = 2000  # keys down the tree, before whole pages are matched against the shapes
_MAX_TAG_LITERALS = 50
_MAX_ENCODED = 10_000  # keys with a % that are compared with the shapes at the end
_NOT_COVERED = "it has a % that only its own pattern encodes"


@dataclass(frozen=True)
class Shape:
    """A pattern that keys seem to follow."""

    pattern: str
    hash_tag: str | None
    count: int
    longest: int  # bytes of its longest key, if above the usual limit
    sample: list[Sighting]
    secret: bool  # judging by its words, its keys or values may be secrets

    @property
    def examples(self) -> list[bytes]:
        """A few of its keys."""
        return _names(self.sample)[:EXAMPLES]

    @cached_property
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
    sample: list[Sighting]

    @property
    def examples(self) -> list[bytes]:
        """A few of them."""
        return _names(self.sample)


class KeyShapes:
    """Collects keys, and returns the patterns they follow, each with a random sample of this size.

    Reserved first parts never become fields.
    """

    def __init__(self, reserved: Set[str] = frozenset(), sample: int = EXAMPLES) -> None:
        self._reserved = reserved
        self._size = sample
        self._random = random.Random()
        self._trees: dict[Separators, Prefixes] = {}
        self._counts: Counter[str] = Counter()
        self._refused: dict[str, list[Sighting]] = {}
        self._encoded: Reservoir[bytes] = Reservoir(_MAX_ENCODED, self._random)
        self._tag_literals: set[str] = set()  # literals right before a hash tag's brace
        self._shapes: list[Shape] | None = None  # since the last key
        self._known: _KnownShapes | None = None
        self._followed = 0  # keys that went down the tree since the shapes were last learned
        self._learn_after = _LEARN_AFTER

    def add_all(self, keys: Sequence[bytes], origin: Any = None) -> None:
        """Add many keys, which were seen there."""
        self._shapes = None
        if b"%" in b"".join(keys):
            self._encoded.offer([key for key in keys if b"%" in key])
        others = keys if self._known is None else self._known.count(keys, origin)
        for key in others:
            self.add(key, origin)
        self._followed += len(others)
        if self._followed >= self._learn_after:
            self._known = _KnownShapes(self.shapes(), self._new_sample)
            self._followed, self._learn_after = 0, 2 * self._learn_after

    def add(self, key: bytes, origin: Any = None) -> None:
        """Add a key to the shapes, or to the undeclarable keys."""
        self._shapes = None
        node = self._follow(key)
        if isinstance(node, str):
            self._refuse(node, (origin, key))
        else:
            node.end(key, origin, self._new_sample)

    def _new_sample(self) -> Reservoir[Sighting]:
        return Reservoir(self._size, self._random)

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
        return [Undeclarable(why, n, self._refused[why]) for why, n in self._counts.most_common()]

    def uncovered(self) -> list[Undeclarable]:
        """The keys that fit none of the shapes, because of what they encode; estimated if they are many."""
        keys = self._encoded.items
        if not keys:
            return []
        classify = PageClassifier(self.shapes())
        odd = KeyShapes(self._reserved)
        for key, number in zip(keys, classify(keys), strict=True):
            if number == classify.unknown and isinstance(self._follow(key), Node):
                odd.add(key)
        scale = self._encoded.offered / len(keys)
        return [
            Undeclarable(
                f"{each.pattern}: {_NOT_COVERED}",
                round(each.count * scale),
                [] if each.secret else each.sample,
            )
            for each in odd.shapes()
        ]

    def shapes(self) -> list[Shape]:
        """The shapes, the one with most keys first."""
        if self._shapes is None:
            self._count_known()
            self._shapes = self._find_shapes()
        return self._shapes

    def _count_known(self) -> None:
        """Add the keys that were only counted, at the place where an example of their shape is now."""
        known, self._known = self._known, None
        for sample in known.counted() if known else ():
            node = self._follow(sample.items[0][1])
            if isinstance(node, Node):
                node.end_all(sample, 0)

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

    def _refuse(self, reason: str, seen: Sighting) -> None:
        self._counts[reason] += 1
        kept = self._refused.setdefault(reason, [])
        if len(kept) < EXAMPLES:
            kept.append(seen)


class _KnownShapes:
    """Counts the keys of shapes that are known already."""

    def __init__(self, shapes: Sequence[Shape], new_sample: Callable[[], Reservoir[Sighting]]) -> None:
        self._classify = PageClassifier(shapes)
        self._samples = [new_sample() for _ in shapes]

    def count(self, keys: Sequence[bytes], origin: Any) -> list[bytes]:
        """Count the usual keys of known shapes, and return the others: unknown or too long."""
        numbers, unknown = self._classify(keys), self._classify.unknown
        if max(map(len, keys), default=0) > MAX_KEY_LENGTH:
            long = [len(key) > MAX_KEY_LENGTH for key in keys]
            numbers = [unknown if is_long else n for is_long, n in zip(long, numbers, strict=True)]
        for number, count in Counter(numbers).items():
            if number != unknown:
                same = keys if count == len(keys) else compress(keys, map(number.__eq__, numbers))
                self._samples[number - 1].offer_some(count, zip(repeat(origin), same))
        return list(compress(keys, map(unknown.__eq__, numbers)))

    def counted(self) -> Iterator[Reservoir[Sighting]]:
        """The sample of each shape's keys."""
        return (sample for sample in self._samples if sample.offered)


def _names(sample: Sequence[Sighting]) -> list[bytes]:
    return [name for _, name in sample]


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
        if prefix and not tagged and not values.split and not looks_secret(self.text):
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
        leaf.sample.items if leaf.sample else [],
        looks_secret(writer.text, *writer.names),
    )
