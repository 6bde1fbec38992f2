"""Cutting a text into pieces that are searched and quoted: whole sentences, a paragraph or so each."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LENGTH = 350  # characters of a piece, about
_MOST_CHUNKS = 2_000
_SENTENCE = re.compile(r"(?<=[.!?。！？])[\"'»”)]*\s+(?=\S)|(?<=[。！？])")  # noqa: RUF001 - they end sentences, too
_LONGEST = 400  # characters of a sentence; what has no end is cut


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order, each on one line."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        for part in _SENTENCE.split(" ".join(paragraph.split())):
            found += (part[at : at + _LONGEST] for at in range(0, len(part), _LONGEST))
    return [each.strip() for each in found if each.strip()]


def chunks(text: str) -> list[str]:
    """The pieces of a text, in order."""
    return list(_pieces(text))[:_MOST_CHUNKS]


def _pieces(text: str) -> Iterator[str]:
    piece: list[str] = []
    length = 0
    for sentence in sentences(text):
        if piece and length + len(sentence) > _LENGTH:
            yield " ".join(piece)
            piece, length = [], 0
        piece.append(sentence)
        length += len(sentence) + 1
    if piece:
        yield " ".join(piece)
