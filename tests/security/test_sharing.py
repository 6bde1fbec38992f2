"""Which services could reach each other's keys on one server, and that production separates those."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

from ephemera.errors import EphemeraError
from ephemera.keyspace import Keyspace, check_overlap
from tests.security.guarded import SYSTEMS, catalogue_of
from tools.deploy.layout import SERVICES

PAGE = Path(__file__).parents[2] / "docs/security.md"


def shared(one: str, other: str, *, channels: bool) -> set[str]:
    """Patterns of keys, or of channels, that two services both have, as the first writes them."""
    return {
        mine.pattern
        for mine in catalogue_of(one)
        for theirs in catalogue_of(other)
        if (mine.kind == "channel") == (theirs.kind == "channel") == channels and _overlap(mine, theirs)
    }


def _overlap(mine: Keyspace[Any], theirs: Keyspace[Any]) -> bool:
    try:
        check_overlap(mine.template, mine.kind, theirs)
    except EphemeraError:
        return True
    return False


def test_the_pairs_that_overlap_are_known() -> None:
    """Only identity, slides and league have a key in common; what that is, the page says."""
    pairs = {pair: shared(*pair, channels=False) for pair in combinations(SYSTEMS, 2)}
    found = {pair: patterns for pair, patterns in pairs.items() if patterns}
    assert found.keys() == {("identity", "slides"), ("identity", "league"), ("slides", "league")}
    assert found["identity", "slides"] == {"user_sessions:{user_id}"}
    assert found["slides", "league"] == {"session:{session_id}", "user_sessions:{user_id}"}
    text = PAGE.read_text()
    assert all(f"`{pattern}`" in text for pattern in found["slides", "league"])


def test_production_separates_sessions() -> None:
    """Services whose sessions have one pattern have different caches."""
    caches = {service.name: service.cache for service in SERVICES}
    assert caches["slides"] != caches["league"] != caches["identity"]
