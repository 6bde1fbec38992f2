"""No service can reach another's keys on a server that they share."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from ephemera.errors import EphemeraError
from ephemera.keyspace import Keyspace, check_overlap
from tests.security.guarded import SYSTEMS, catalogue_of


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


def test_no_two_services_have_a_pattern_in_common() -> None:
    """ACL rules are about patterns, and in production all services share the server of role `queue`."""
    for pair in combinations(SYSTEMS, 2):
        for channels in (False, True):
            assert shared(*pair, channels=channels) == set(), pair
