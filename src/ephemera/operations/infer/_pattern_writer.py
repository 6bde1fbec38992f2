"""From a way down a tree of keys to a pattern in words: literals as they are, fields by telling names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ephemera.operations.infer._key_parser import TAG_CLOSES, TAG_OPENS, Seams, is_tagged
from ephemera.operations.infer._key_tree import Branch, Field, Piece
from ephemera.operations.infer._recognizer import field_name, looks_secret


@dataclass(frozen=True, slots=True)
class Shape:
    """A pattern that keys seem to follow."""

    pattern: str
    hash_tag: str | None
    count: int
    longest: int  # bytes of its longest key
    examples: list[bytes]
    secret: bool  # by its words, its keys or values may be secrets

    def with_other_names(self) -> Shape:
        """The same with longer names for its fields."""
        hash_tag = self.hash_tag and f"{self.hash_tag}_"
        return replace(self, pattern=self.pattern.replace("}", "_}"), hash_tag=hash_tag)


class _Sentence:
    """A pattern while it is written."""

    def __init__(self) -> None:
        self.text = ""
        self.names: list[str] = []
        self.hash_tag: str | None = None
        self._before = ""  # the literal since the last field

    def literal(self, text: str) -> None:
        self.text += text
        self._before += text

    def field(self, field: Field, *, tagged: bool) -> None:
        begin = field.literal_begin
        if begin and not tagged and not field.division:
            self.literal(begin)
        self._named(field.look)
        if tagged:
            self.hash_tag = self.names[-1]
        for mark in field.division:
            self.literal(mark)
            self._named("text")

    def _named(self, look: str) -> None:
        name = field_name(look, self._before, self.names)
        self.names.append(name)
        self.text += f"{{{name}}}"
        self._before = ""


def worded(seams: Seams, pieces: Sequence[Piece], leaf: Branch) -> Shape:
    """The shape of the keys that end at a leaf."""
    sentence = _Sentence()
    begun = len(pieces) - len(seams) - 1  # a first part may be two pieces: its beginning and its field
    for number, piece in enumerate(pieces):
        place = number - begun
        if place > 0:
            sentence.literal(seams[place - 1].strip(TAG_OPENS + TAG_CLOSES))
        if isinstance(piece, str):
            sentence.literal(piece)
        else:
            sentence.field(piece, tagged=is_tagged(seams, place))
    literals = sentence.text
    return Shape(
        literals,
        sentence.hash_tag,
        leaf.count,
        leaf.longest,
        leaf.examples,
        looks_secret(literals, *sentence.names),
    )
