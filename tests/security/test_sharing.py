"""No service can reach another's keys on a server that they share."""

from __future__ import annotations

from functools import cache
from itertools import combinations, permutations
from typing import Any

from ephemera.errors import EphemeraError
from ephemera.keyspace import SERVER_IDENTITY, Keyspace, check_overlap
from ephemera.operations.configuration import access_rules
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


def test_no_service_has_permission_for_keys_of_another() -> None:
    """A glob may match more than its pattern: its `*` matches colons, too, which no value has."""
    rules = {each: access_rules(catalogue_of(each), each) for each in SYSTEMS}
    for one, other in permutations(SYSTEMS, 2):
        for mine, theirs in (
            (rules[one].keys, rules[other].keys),
            (rules[one].channels, rules[other].channels),
        ):
            reached = {(glob, each) for each in theirs for glob in mine if _may_match(glob, each)}
            assert reached <= {(SERVER_IDENTITY.template.glob,) * 2}, one


@cache
def _may_match(glob: str, keys: str) -> bool:
    """Whether a glob matches any of the keys that another is for, whose `*` is a value."""
    if glob[:1] == "*":
        return _may_match(glob[1:], keys) or (keys != "" and _may_match(glob, keys[1:]))
    if keys[:1] == "*":
        return _may_match(glob, keys[1:]) or (glob[:1] not in ("", ":") and _may_match(glob[1:], keys))
    if not glob or not keys:
        return glob == keys
    return (glob[0] == keys[0] or glob[0] == "?" or keys[0] == "?") and _may_match(glob[1:], keys[1:])
