"""The kinds of rules there are: fixed windows, sliding windows and token buckets.

`per` is the period, 100 milliseconds to 366 days. `key` is the pattern of the rule's keys, `where` the values
of those of its fields that are the rule's own, `tag` the field that decides the cluster slot. `when_down`
says what happens while the server is away: "open", "closed" or `local_share(of=...)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta

from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import FieldValue, check_durations
from ephemera.patterns.rate_limits._algorithms import FixedWindow, SlidingWindow, TokenBucket
from ephemera.patterns.rate_limits._claims import MOST_UNITS
from ephemera.patterns.rate_limits._outage import WhenDown
from ephemera.patterns.rate_limits._rules import Rule

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LONGEST = 366 * 86_400_000  # milliseconds


def fixed_window(
    name: str,
    limit: int | Mapping[str, int],
    *,
    per: timedelta,
    key: str | None = None,
    keep: timedelta | None = None,
    where: Mapping[str, FieldValue] | None = None,
    hash_tag: str | None = None,
    when_down: WhenDown = "open",
) -> Rule:
    """Count in windows one after the other, each in a readable key that is kept for `keep` from its start.

    Up to twice the limit fits into `per` across a boundary; where that matters use `sliding_window`.
    """
    length = _milliseconds(name, per=per)
    kept = length if keep is None else _milliseconds(name, keep=keep)
    if length % 1000 or kept < length:
        raise InvalidDeclaration(
            name,
            f"a window of {length} ms kept for {kept} ms",
            "use windows of whole seconds, and keep a key for at least its window",
        )
    return Rule(
        name, FixedWindow(length, kept), limit, key=key, where=where, hash_tag=hash_tag, when_down=when_down
    )


def sliding_window(
    name: str,
    limit: int | Mapping[str, int],
    *,
    per: timedelta,
    key: str | None = None,
    where: Mapping[str, FieldValue] | None = None,
    hash_tag: str | None = None,
    when_down: WhenDown = "open",
) -> Rule:
    """Never admit more than the limit in any window of `per`, by the server's clock."""
    algorithm = SlidingWindow(_milliseconds(name, per=per))
    return Rule(name, algorithm, limit, key=key, where=where, hash_tag=hash_tag, when_down=when_down)


def token_bucket(
    name: str,
    limit: int | Mapping[str, int],
    *,
    per: timedelta,
    burst: int | None = None,
    key: str | None = None,
    where: Mapping[str, FieldValue] | None = None,
    hash_tag: str | None = None,
    when_down: WhenDown = "open",
) -> Rule:
    """Admit `burst` at once (the limit unless given) and `limit` per `per` in the long run, evenly (GCRA).

    With tiers, `burst` is that of the first; the others hold the same part of their limit.
    """
    first = next(iter(limit.values()), 0) if isinstance(limit, Mapping) else limit
    algorithm = TokenBucket(_milliseconds(name, per=per), first or 1, burst or first or 1)
    if burst is not None and not 1 <= burst <= MOST_UNITS:
        raise InvalidDeclaration(name, f"a bucket that holds {burst}", f"use a burst of 1 to {MOST_UNITS}")
    return Rule(name, algorithm, limit, key=key, where=where, hash_tag=hash_tag, when_down=when_down)


def _milliseconds(name: str, **given: timedelta) -> int:
    """The one duration that is given by its parameter's name."""
    if _NAME.fullmatch(name) is None:
        raise InvalidDeclaration(
            name,
            "it is no name for a rule",
            "use letters, digits, '.', '_' and '-': keys and headers show it",
        )
    check_durations(name, **given)
    (per,) = given.values()
    length = round(per.total_seconds() * 1000)
    if not 100 <= length <= _LONGEST:
        raise InvalidDeclaration(name, f"a period of {per}", "use 100 milliseconds to 366 days")
    return length
