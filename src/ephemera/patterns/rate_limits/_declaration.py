"""The declaration of limits: the three kinds of rules, their keyspaces, and the channel of announcements.

Each pattern becomes a keyspace of the catalogue, so that documentation, audit and access rules include it.
Rules that share a pattern share its keyspace; its lifetime is the longest of theirs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ephemera.errors import InvalidDeclaration, UndeclaredKeyspace
from ephemera.keyspace import (
    Catalogue,
    ChannelAccessor,
    FieldValue,
    Keyspace,
    Role,
    SortedSetAccessor,
    Store,
    check_declaration,
    check_durations,
    fixed,
    until,
    windowed,
)
from ephemera.patterns.rate_limits._claims import (
    MAX_GRAINS,
    MAX_UNITS,
    FixedWindow,
    SlidingWindow,
    TokenBucket,
    WindowField,
)
from ephemera.patterns.rate_limits._rules import Rule, WhenDown
from ephemera.patterns.rate_limits._runtime import BoundRateLimits

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LONGEST_PERIOD = 366 * 86_400_000  # milliseconds
_SHORTEST_LOG = 3_600_000  # milliseconds for which denials are logged at least


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
    """Count in consecutive windows, each in a readable key that is kept for `keep` from its start.

    Up to twice the limit fits into `per` across a boundary; where that matters use `sliding_window`.

    Args:
        name: The name of the rule: part of its keys, and of decisions and metrics.
        limit: How many are admitted in `per`: one number, or one for each tier by name.
        per: The period, 100 milliseconds to 366 days.
        key: The pattern of the rule's keys; by default `{prefix}:{rule}:{subject}`, with the prefix of the
            `RateLimits`.
        keep: How long a window's key is kept from its start, to be read afterwards; by default until it ends.
        where: The values of those fields of `key` that belong to the rule, not to the subject.
        hash_tag: The field of `key` that decides the cluster slot; by default the whole key does.
        when_down: The policy while the server is down: "open" (the default), "closed" or
            `local_share(of=...)`.

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
    """Never admit more than the limit in any window of `per`, by the server's clock.

    Args:
        name: The name of the rule: part of its keys, and of decisions and metrics.
        limit: How many are admitted in `per`: one number, or one for each tier by name.
        per: The period, 100 milliseconds to 366 days.
        key: The pattern of the rule's keys; by default `{prefix}:{rule}:{subject}`, with the prefix of the
            `RateLimits`.
        where: The values of those fields of `key` that belong to the rule, not to the subject.
        hash_tag: The field of `key` that decides the cluster slot; by default the whole key does.
        when_down: The policy while the server is down: "open" (the default), "closed" or
            `local_share(of=...)`.

    """
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
    """Admit `burst` at once and `limit` per `per` in the long run, evenly (GCRA).

    Args:
        name: The name of the rule: part of its keys, and of decisions and metrics.
        limit: How many are admitted in `per`: one number, or one for each tier by name.
        per: The period, 100 milliseconds to 366 days.
        burst: How many are admitted at once; by default the limit. With tiers, it is that of the first; the
            others hold the same proportion of their limit.
        key: The pattern of the rule's keys; by default `{prefix}:{rule}:{subject}`, with the prefix of the
            `RateLimits`.
        where: The values of those fields of `key` that belong to the rule, not to the subject.
        hash_tag: The field of `key` that decides the cluster slot; by default the whole key does.
        when_down: The policy while the server is down: "open" (the default), "closed" or
            `local_share(of=...)`.

    """
    first = next(iter(limit.values()), 0) if isinstance(limit, Mapping) else limit
    algorithm = TokenBucket(_milliseconds(name, per=per), first or 1, burst or first or 1)
    if burst is not None and not 1 <= burst <= MAX_UNITS:
        raise InvalidDeclaration(name, f"a burst of {burst}", f"use a burst of 1 to {MAX_UNITS}")
    return Rule(name, algorithm, limit, key=key, where=where, hash_tag=hash_tag, when_down=when_down)


class RateLimits:
    """Rules that are checked together: `store[LIMITS]` gives the `BoundRateLimits` of a store.

    Args:
        catalogue: The catalogue that declares the keys.
        prefix: What keys begin with, `{prefix}:{rule}:{subject}`, where a rule gives none of its own.
        rules: The rules, each with a name of its own.
        role: The server that counts: "cache", or "queue" where an evicted count matters.
        cached_denials: How many denials each process caches at most; 0 caches none.

    """

    def __init__(
        self,
        catalogue: Catalogue,
        prefix: str,
        *rules: Rule,
        role: Role = "cache",
        cached_denials: int = 10_000,
    ) -> None:
        check_declaration(catalogue, prefix)
        self.catalogue = catalogue
        self.role: Role = role
        self.cached_denials = cached_denials
        self.rules = {rule.name: rule for rule in rules}
        if not rules:
            raise InvalidDeclaration(
                prefix,
                "it has no rules",
                "give it at least one: RateLimits(catalogue, prefix, sliding_window(...))",
            )
        if len(self.rules) < len(rules):
            raise InvalidDeclaration(
                prefix, "two of its rules have the same name", "give each rule a name of its own"
            )
        by_pattern: defaultdict[str, list[Rule]] = defaultdict(list)
        for rule in rules:
            by_pattern[rule.key or _default_key(prefix, rule)].append(rule)
        for pattern, sharing in by_pattern.items():
            _declare(catalogue, pattern, sharing, role)
        self.channel: Keyspace[ChannelAccessor[str]] = catalogue.channel(
            f"{prefix}:freed",
            str,
            purpose="Announces whose limit has room again, after a refund or a reset",
            if_lost="processes drop their cached denials",
            role=role,
        )
        self.denied = _denied(catalogue, prefix, rules, role)
        for rule in rules:
            rule.limits = self
        catalogue.patterns.append(self)

    def __getitem__(self, name: str) -> Rule:
        """A rule by its name."""
        return self.rules[name]

    def __repr__(self) -> str:
        return f"<RateLimits {', '.join(self.rules)}>"

    def bind(self, store: Store) -> BoundRateLimits:
        """Bind the limits to a store that has their catalogue."""
        if not store.declares(self.channel):
            names = tuple(catalogue.name for catalogue in store.catalogues)
            raise UndeclaredKeyspace(self.channel.pattern, self.catalogue.name, names)
        return BoundRateLimits(self, store)


def _default_key(prefix: str, rule: Rule) -> str:
    window = ":{window_start}" if isinstance(rule.algorithm, FixedWindow) else ""
    return f"{prefix}:{rule.name}:{{subject}}{window}"


def _declare(catalogue: Catalogue, pattern: str, rules: list[Rule], role: Role) -> None:
    """Declare the keyspace of a pattern, and assign its fields to its rules."""
    first = rules[0]
    for rule in rules:
        if rule.limits is not None:
            raise InvalidDeclaration(rule.name, "it is declared already", "make another rule")
        if _format(rule) != _format(first):
            raise InvalidDeclaration(
                pattern,
                f"{first.name} and {rule.name} would store different things in it",
                "rules that share a pattern share the algorithm, the hash tag and the fields of where=",
            )
    keyspace = _keyspace(catalogue, pattern, rules, role)
    seen: dict[tuple[tuple[str, str], ...], str] = {}
    for rule in rules:
        _assign_fields(rule, keyspace)
        own = tuple(sorted((name, str(value)) for name, value in rule.where.items()))
        other = seen.setdefault(own, rule.name)
        if other != rule.name:
            raise InvalidDeclaration(
                pattern,
                f"{other} and {rule.name} would count in the same keys",
                "distinguish them by where={...}, or give one rule tiers",
            )


def _format(rule: Rule) -> tuple[object, ...]:
    return type(rule.algorithm), rule.hash_tag, rule.where.keys()


def _assign_fields(rule: Rule, keyspace: Keyspace[Any]) -> None:
    fields = keyspace.template.fields
    rule.keyspace = keyspace
    if isinstance(rule.algorithm, FixedWindow):
        rule.window = WindowField(keyspace.pattern, fields, rule.algorithm.per, rule.algorithm.keep)
        fields = fields[:-1]
    if unknown := rule.where.keys() - set(fields):
        raise InvalidDeclaration(
            keyspace.pattern,
            f"where= of {rule.name} names {', '.join(sorted(unknown))}, which is not a field of it",
            f"its fields are {', '.join(fields) or 'none'}",
        )
    rule.subject_fields = tuple(name for name in fields if name not in rule.where)


def _keyspace(catalogue: Catalogue, pattern: str, rules: list[Rule], role: Role) -> Keyspace[Any]:
    options: dict[str, Any] = {
        "purpose": f"Use of the limit{'s'[: len(rules) > 1]} {', '.join(rule.name for rule in rules)}",
        "saves": "counting requests in SQL",
        "invalidated_by": ("its window's end", "reset"),
        "if_lost": "counting starts again: at most one more limit until the window ends",
        "role": role,
    }
    if rules[0].hash_tag is not None:
        options["hash_tag"] = rules[0].hash_tag
    outlives = "the window that it counts" if role == "queue" else None
    algorithms = [rule.algorithm for rule in rules]
    match algorithms[0]:
        case FixedWindow():
            every = max(_duration(each.per) for each in algorithms)
            keep = max(_duration(each.keep) for each in algorithms if isinstance(each, FixedWindow))
            options["lifetime"] = windowed(every=every, keep=keep, outlives=outlives)
            return catalogue.counter(pattern, **options)
        case SlidingWindow():
            longest = max(each.per for each in algorithms)
            options["lifetime"] = fixed(milliseconds=longest + -(-longest // MAX_GRAINS), outlives=outlives)
            return catalogue.value(pattern, bytes, **options)
        case TokenBucket():
            options["lifetime"] = until(outlives=outlives)
            return catalogue.value(pattern, int, **options)


def _denied(
    catalogue: Catalogue, prefix: str, rules: tuple[Rule, ...], role: Role
) -> Keyspace[SortedSetAccessor[str]]:
    """The keyspace of the log of denials."""
    longest = max(_SHORTEST_LOG, *(rule.algorithm.per for rule in rules))
    outlives = "the denials that it lists" if role == "queue" else None
    return catalogue.sorted_set(
        f"{prefix}_denied",
        str,
        lifetime=fixed(milliseconds=longest, outlives=outlives),
        role=role,
        purpose="Denied subjects by rule and until when, for operators",
        saves="a scan of all limits to see who is being throttled",
        invalidated_by=("reset", "newer denials"),
        if_lost="it lists denials from now on",
    )


def _duration(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def _milliseconds(name: str, **duration: timedelta) -> int:
    """Convert the one duration that is given by its parameter's name."""
    if _NAME.fullmatch(name) is None:
        raise InvalidDeclaration(
            name,
            "it cannot name a rule",
            "use letters, digits, '.', '_' and '-': keys and headers show it",
        )
    check_durations(name, **duration)
    (per,) = duration.values()
    length = round(per.total_seconds() * 1000)
    if not 100 <= length <= _LONGEST_PERIOD:
        raise InvalidDeclaration(name, f"a period of {per}", "use 100 milliseconds to 366 days")
    return length
