"""The protocol of embedders, and `Lexical`: hashed n-grams, which compare words and not meanings.

A text is folded (Unicode NFKC, case), cut into words, and becomes a bag of features: each word, each pair of
neighbours, and the three-letter pieces of each word. A feature's digest selects one of the 1,024 dimensions
and a sign, so that collisions cancel out rather than add up. Numbers and negations weigh more, and the more
the longer the text: "10 slides" and "12 slides" are different requests, however much else they share. Text
without spaces (Chinese, Japanese) is cut into pairs of characters.

At a similarity of 0.95, texts are alike that differ in case, punctuation, spacing, or a typo or a small word
in a long text. It does not know synonyms. The same text gives the same vector on every machine.
"""

from __future__ import annotations

import asyncio
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol
from zlib import crc32

_DIMENSIONS = 1024
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")  # kana and Han characters
_NEGATIONS = {
    "no", "not", "without", "never", "non", "except", "kein", "keine", "nicht", "ohne", "sans", "sin",
}  # fmt: skip
_NEGATIONS |= {"не", "нет", "без", "кроме", "никогда"}
_WORD_WEIGHT, _PAIR_WEIGHT, _PIECE_WEIGHT = 1.0, 0.5, 0.3
_HEAVY = 3.0  # the least weight of a number or a negation
_HEAVY_PART = 0.4  # its weight as a part of the length of the rest, so that it counts in long texts, too
_LONG = 4000  # characters above which a thread does the work: about a millisecond


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def model(self) -> str:
        """What its vectors depend on; only vectors of one model are compared."""

    async def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return a vector for each text, in their order, all of one length."""


class Lexical:
    """Vectors of a text's words and their pieces: no model, no download, no dependency."""

    model = "lexical-1"

    async def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return a vector for each text; of zeros when it has no word."""
        if sum(map(len, texts)) > _LONG:
            return await asyncio.to_thread(lambda: [_vector(text) for text in texts])
        return [_vector(text) for text in texts]

    def __repr__(self) -> str:
        return "Lexical()"


def _vector(text: str) -> list[float]:
    vector = [0.0] * _DIMENSIONS
    light: Counter[tuple[str, float]] = Counter()
    heavy: Counter[str] = Counter()
    for feature, weight in _features(text):
        if weight:
            light[feature, weight] += 1
        else:
            heavy[feature] += 1
    for (feature, weight), count in light.items():
        _add(vector, feature, weight, count)
    weight = max(_HEAVY, _HEAVY_PART * math.hypot(*vector))
    for feature, count in heavy.items():
        _add(vector, feature, weight, count)
    length = math.hypot(*vector)
    return [value / length for value in vector] if length else vector


def _add(vector: list[float], feature: str, weight: float, count: int) -> None:
    digest = crc32(feature.encode())
    vector[(digest >> 1) % _DIMENSIONS] += (weight if digest & 1 else -weight) * (1.0 + math.log(count))


def _features(text: str) -> Iterator[tuple[str, float]]:
    """Yield the features and their weights, 0 for those whose weight depends on the rest."""
    before = ""
    for word in _words(unicodedata.normalize("NFKC", text).casefold()):
        heavy = word in _NEGATIONS or any(map(str.isdigit, word))
        yield f"w {word}", 0.0 if heavy else _WORD_WEIGHT
        if before:
            yield f"p {before} {word}", _PAIR_WEIGHT
        before = word
        padded = f"<{word}>"
        for start in range(len(padded) - 2):
            yield f"c {padded[start : start + 3]}", _PIECE_WEIGHT


def _words(text: str) -> Iterator[str]:
    for word in _WORD.findall(text):
        unspaced = _UNSPACED.fullmatch(word)
        if unspaced is None or len(word) < 3:
            yield word
        else:
            yield from (word[start : start + 2] for start in range(len(word) - 1))
