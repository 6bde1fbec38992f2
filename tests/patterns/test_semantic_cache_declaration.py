"""Invalid declarations are refused, and scopes are checked against their type."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from ephemera import keyspace
from ephemera.embedded import Valkey
from ephemera.errors import InvalidDeclaration, InvalidValue
from ephemera.keyspace import Catalogue, fixed, sliding
from ephemera.patterns.semantic_cache import MatchPolicy, ModelCalls, Qdrant, Scope, SemanticCache
from tests.patterns.outline_cache import CATALOGUE, OUTLINES, Compass, Model, Outline, scope, semantic_cache
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors"]


@pytest.fixture
async def vectors() -> AsyncIterator[Qdrant]:
    """Vectors of this test alone."""
    async with Qdrant() as opened:
        yield opened


class _Optional(Scope, frozen=True, kw_only=True):
    audience: str = "everybody"


class _Wider(Scope, frozen=True, kw_only=True):
    audience: str


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"pattern": "two:{a}:{b}"}, "one field"),
        ({"lifetime": sliding(hours=1)}, "fixed"),
        ({"match_policy": MatchPolicy(threshold=1.5)}, "cosine"),
        ({"match_policy": MatchPolicy(threshold=0)}, "cosine"),
        ({"scope": _Optional}, "audience has a default"),
        ({"scope": Outline}, "is not a scope"),
        ({"sweep_every": timedelta(0)}, "sweep_every"),
        ({"model_calls": ModelCalls(max_concurrent=0)}, "max_loads=0"),
    ],
)
def test_invalid_options_are_refused(wrong: dict[str, Any], said: str) -> None:
    """An invalid declaration fails at once, and the error says what to do."""
    right: dict[str, Any] = {"scope": Scope, "lifetime": fixed(hours=1), "purpose": "Answers", **wrong}
    pattern = right.pop("pattern", "answers:{hash}")
    with pytest.raises(InvalidDeclaration, match=said):
        SemanticCache(Catalogue("wrong"), pattern, Outline, **right)


async def test_a_scope_is_of_its_declared_type(server: Valkey) -> None:
    """A text instead of the set of documents, or another struct, is refused before anything is sent."""
    wrong: tuple[Any, ...] = (msgspec.structs.replace(scope(), documents="report"), Outline("x"), None)
    async with keyspace.connect(server.url, CATALOGUE) as store:
        for each in wrong:
            with pytest.raises(InvalidValue, match="Scope"):
                await store[OUTLINES].get_or_ask("a pitch @0", each, Model())


async def test_a_scope_may_have_more_fields(server: Valkey, vectors: Qdrant) -> None:
    """A field that a scope adds separates answers like the others."""
    wider = Catalogue("wider")
    cache = SemanticCache(
        wider, "wider:{hash}", Outline, scope=_Wider, lifetime=fixed(hours=1), purpose="For audiences"
    )
    base = msgspec.to_builtins(scope())
    model = Model()
    async with keyspace.connect(server.url, wider) as store:
        outlines = semantic_cache(store, cache, embedder=Compass(), vectors=vectors)
        for audience in ("investors", "children"):
            where = msgspec.convert({**base, "audience": audience}, _Wider)
            assert (await outlines.get_or_ask("a pitch @0", where, model)).origin == "asked"
            assert (await outlines.get_or_ask("a pitch @1", where, model)).origin == "semantic"
