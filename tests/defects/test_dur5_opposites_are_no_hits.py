"""DUR5: the semantic cache answered "turn off two-factor authentication" with the answer to "turn on"."""

from __future__ import annotations

import pytest

from ephemera.embedded import Valkey
from ephemera.errors import MissingResource
from ephemera.keyspace import connect
from ephemera.patterns.embedders import Lexical
from ephemera.patterns.semantic_cache import Qdrant, SemanticBackend, SweepReport
from tests.patterns.outline_cache import CATALOGUE, OUTLINES, Model, scope
from tests.patterns.similar_prompts import similarities
from tests.untyped import untyped

_ASKED = (
    "I have a new phone and I would like to know step by step how to turn {} two-factor authentication "
    "for the account that my company uses to manage its invoices and its customers"
)


async def test_dur5_turn_off_is_not_answered_with_turn_on(server: Valkey) -> None:
    """Prompts above the threshold that ask for opposite things are two questions, in either order."""
    on, off = _ASKED.format("on"), _ASKED.format("off")
    [similarity] = await similarities(Lexical(), [(on, off)])
    assert similarity >= OUTLINES.match_policy.threshold
    async with Qdrant() as vectors:
        resources = {OUTLINES: SemanticBackend(embedder=Lexical(), vectors=vectors)}
        async with connect(server.url, CATALOGUE, resources=resources) as store:
            outlines = store[OUTLINES]
            for first, second in ((on, off), (off, on)):
                model, where = Model(), scope()
                await outlines.get_or_ask(first, where, model)
                assert (await outlines.get_or_ask(second, where, model)).value.title == second
                assert (await outlines.get_or_ask(first + "!", where, model)).origin == "semantic"
                assert model.asked == [first, second]


async def test_dur5_similar_matching_is_off_until_an_embedder_is_chosen(server: Valkey) -> None:
    """Without a backend only the same prompt is a hit; everything else works, without a vector store."""
    model, where = Model(), scope(documents={"a document"})
    async with connect(server.url, CATALOGUE) as store:
        outlines = store[OUTLINES]
        assert (await outlines.get_or_ask("A pitch", where, model)).origin == "asked"
        assert (await outlines.get_or_ask("A pitch", where, model)).origin == "exact"
        assert (await outlines.get_or_ask("a pitch!", where, model)).origin == "asked"
        await outlines.invalidate_source("a document")
        assert await outlines.find("A pitch", where) is None
        again = await outlines.get_or_ask("A pitch", where, model)
        assert await outlines.report_bad_hit(again.id)
        assert await outlines.find("A pitch", where) is None
        assert await outlines.sweep() == SweepReport(0, 0)


async def test_dur5_a_backend_names_its_embedder(server: Valkey) -> None:
    """Vectors without an embedder, or an embedder in place of a backend, are refused."""
    with pytest.raises(TypeError, match="embedder"):
        untyped(SemanticBackend)(vectors=Qdrant())
    async with connect(server.url, CATALOGUE, resources={OUTLINES: Lexical()}) as store:
        with pytest.raises(MissingResource):
            store[OUTLINES]
