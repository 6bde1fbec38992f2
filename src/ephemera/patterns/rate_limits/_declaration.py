"""The declaration of limits: their rules, the rules' keyspaces, and the channel on which room is announced.

Each pattern becomes a space of the catalogue, so that documentation, audit and access rules know it. Rules
that share a pattern share its space; its lifetime is the longest of theirs.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import Any

from ephemera.errors import InvalidDeclaration, UndeclaredKeyspace
from ephemera.keyspace import (
    Catalogue,
    ChannelAccessor,
    Keyspace,
    Role,
    SortedSetAccessor,
    Store,
    check_declaration,
    fixed,
    until,
    windowed,
)
from ephemera.patterns.rate_limits._algorithms import GRAINS, FixedWindow, SlidingWindow, TokenBucket
from ephemera.patterns.rate_limits._limiter import Limiter
from ephemera.patterns.rate_limits._rules import Rule
from ephemera.patterns.rate_limits._windows import window_field

_OUTLIVES = "the window that it counts"
_NOTED = 3_600_000  # milliseconds that denials are listed at the least
_SAVES = "counting requests in SQL"
_IF_LOST = "counting starts anew: at most one more limit until the window ends"


class RateLimits:
    """Rules that are checked together; `store[LIMITS]` gives their `Limiter`."""

    def __init__(
        self,
        catalogue: Catalogue,
        prefix: str,
        *rules: Rule,
        role: Role = "cache",
        remember: int = 10_000,
    ) -> None:
        """Declare the rules' keys, `{prefix}:{rule}:{subject}` where a rule gives none of its own.

        At most `remember` denials are kept in this process; 0 keeps none.
        """
        check_declaration(catalogue, prefix)
        self.catalogue = catalogue
        self.role: Role = role
        self.remember = remember
        self.rules = {rule.name: rule for rule in rules}
        if not rules:
            raise InvalidDeclaration(
                prefix,
                "it has no rules",
                "give it at least one: RateLimits(catalogue, prefix, sliding_window(...))",
            )
        if len(self.rules) < len(rules):
            raise InvalidDeclaration(
                prefix, "two of its rules have one name", "give each rule a name of its own"
            )
        by_pattern: defaultdict[str, list[Rule]] = defaultdict(list)
        for rule in rules:
            by_pattern[rule.key or _usual_key(prefix, rule)].append(rule)
        for pattern, sharing in by_pattern.items():
            _declare(catalogue, pattern, sharing, role)
        self.channel: Keyspace[ChannelAccessor[str]] = catalogue.channel(
            f"{prefix}:freed",
            str,
            purpose="Says whose limit has room again, after a refund or a reset",
            if_lost="processes forget the denials they remember",
            role=role,
        )
        self.denied = _denied(catalogue, prefix, rules, role)
        for rule in rules:
            rule.home = self
        catalogue.patterns.append(self)

    def __getitem__(self, name: str) -> Rule:
        """A rule by its name."""
        return self.rules[name]

    def __repr__(self) -> str:
        return f"<RateLimits {', '.join(self.rules)}>"

    def bind(self, store: Store) -> Limiter:
        """The limits at work on a store that has their catalogue."""
        if not store.declares(self.channel):
            names = tuple(catalogue.name for catalogue in store.catalogues)
            raise UndeclaredKeyspace(self.channel.pattern, self.catalogue.name, names)
        return Limiter(self, store)


def _usual_key(prefix: str, rule: Rule) -> str:
    window = ":{window_start}" if isinstance(rule.algorithm, FixedWindow) else ""
    return f"{prefix}:{rule.name}:{{subject}}{window}"


def _declare(catalogue: Catalogue, pattern: str, rules: list[Rule], role: Role) -> None:
    """Make the space of a pattern, and tell its rules what its fields are to them."""
    first = rules[0]
    for rule in rules:
        if rule.home is not None:
            raise InvalidDeclaration(rule.name, "it is declared already", "make another rule")
        if _sort(rule) != _sort(first):
            raise InvalidDeclaration(
                pattern,
                f"{first.name} and {rule.name} keep different things in it",
                "rules that share a pattern share the algorithm, the tag and the fields that where= gives",
            )
    space = _space(catalogue, pattern, rules, role)
    seen: dict[tuple[tuple[str, str], ...], str] = {}
    for rule in rules:
        _place(rule, space)
        own = tuple(sorted((name, str(value)) for name, value in rule.where.items()))
        other = seen.setdefault(own, rule.name)
        if other != rule.name:
            raise InvalidDeclaration(
                pattern,
                f"{other} and {rule.name} would count in the same keys",
                "tell them apart by where={...}, or give one rule tiers",
            )


def _sort(rule: Rule) -> tuple[object, ...]:
    return type(rule.algorithm), rule.hash_tag, rule.where.keys()


def _place(rule: Rule, space: Keyspace[Any]) -> None:
    fields = space.template.fields
    rule.space, rule.window = space, None
    if isinstance(rule.algorithm, FixedWindow):
        rule.window = window_field(space.pattern, fields, rule.algorithm.per, rule.algorithm.keep)
        fields = fields[:-1]
    if unknown := rule.where.keys() - set(fields):
        raise InvalidDeclaration(
            space.pattern,
            f"where of {rule.name} names {', '.join(sorted(unknown))}, which it has not",
            f"its fields are {', '.join(fields) or 'none'}",
        )
    rule.subject_fields = tuple(name for name in fields if name not in rule.where)


def _space(catalogue: Catalogue, pattern: str, rules: list[Rule], role: Role) -> Keyspace[Any]:
    about: dict[str, Any] = {
        "purpose": f"Use of the limit{'s'[: len(rules) > 1]} {', '.join(rule.name for rule in rules)}",
        "saves": _SAVES,
        "invalidated_by": ("its window's end", "reset"),
        "if_lost": _IF_LOST,
        "role": role,
    }
    if rules[0].hash_tag is not None:
        about["hash_tag"] = rules[0].hash_tag
    outlives = _OUTLIVES if role == "queue" else None
    algorithms = [rule.algorithm for rule in rules]
    match algorithms[0]:
        case FixedWindow():
            every = max(_duration(each.per) for each in algorithms)
            keep = max(_duration(each.keep) for each in algorithms if isinstance(each, FixedWindow))
            about["lifetime"] = windowed(every=every, keep=keep, outlives=outlives)
            return catalogue.counter(pattern, **about)
        case SlidingWindow():
            longest = max(each.per for each in algorithms)
            about["lifetime"] = fixed(milliseconds=longest + -(-longest // GRAINS), outlives=outlives)
            return catalogue.value(pattern, bytes, **about)
        case TokenBucket():
            about["lifetime"] = until(outlives=outlives)
            return catalogue.value(pattern, int, **about)


def _denied(
    catalogue: Catalogue, prefix: str, rules: tuple[Rule, ...], role: Role
) -> Keyspace[SortedSetAccessor[str]]:
    """The space of who was denied lately."""
    longest = max(_NOTED, *(rule.algorithm.per for rule in rules))
    outlives = "the denials that it lists" if role == "queue" else None
    return catalogue.sorted_set(
        f"{prefix}_denied",
        str,
        lifetime=fixed(milliseconds=longest, outlives=outlives),
        role=role,
        purpose="Who was denied, by which rule, until when, for operators",
        saves="a scan of all limits to see who is being throttled",
        invalidated_by=("reset", "newer denials"),
        if_lost="it lists those who are denied from now on",
    )


def _duration(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)
