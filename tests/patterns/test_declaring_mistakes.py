"""Mistakes in declarations that a type checker would find: named by parameter, with what to write."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from ephemera import errors, keyspace
from ephemera.adapters import langgraph
from ephemera.errors import InvalidDeclaration
from ephemera.keyspace import Catalogue, fixed
from ephemera.patterns import (
    cache,
    entitlements,
    events,
    fanout,
    http_cache,
    jobs,
    locks,
    planner,
    preferences,
    progress,
    rate_limits,
    revocation,
    semantic_cache,
    sessions,
    tokens,
    usage,
    windows,
    write_behind,
)
from ephemera.patterns.embedders import OpenAICompatible
from ephemera.patterns.semantic_cache import Qdrant

MINUTE = timedelta(minutes=1)


class Card(msgspec.Struct):
    """Something to store."""

    user_id: str = ""


def _any(made: object) -> Any:
    """The same without its types."""
    return made


def _new() -> Catalogue:
    return Catalogue("mistakes")


DURATIONS: dict[str, Callable[[], object]] = {
    "'a:{id}': fresh=300": lambda: _any(cache.Cache)(_new(), "a:{id}", Card, fresh=300, purpose="x"),
    "'a:{id}': stale=300": lambda: _any(cache.Cache)(
        _new(), "a:{id}", Card, fresh=MINUTE, stale=300, purpose="x"
    ),
    "'LocalCache': max_age=300": lambda: _any(cache.LocalCache)(max_age=300),
    "'l:{id}': lease=300": lambda: _any(locks.Locks)(_new(), "l:{id}", lease=300, purpose="x"),
    "'search': per=300": lambda: _any(rate_limits.sliding_window)("search", 5, per=300),
    "'bucket': per=300": lambda: _any(rate_limits.token_bucket)("bucket", 5, per=300),
    "'window': per=300": lambda: _any(rate_limits.fixed_window)("window", 5, per=300),
    "'window': keep=300": lambda: _any(rate_limits.fixed_window)("window", 5, per=MINUTE, keep=300),
    "'e:{id}': lease=300": lambda: _any(events.Events)(
        _new(), "e:{id}", Card, delivery=_any(events.DeliveryPolicy)(lease=300), purpose="x"
    ),
    "'t:{jti}': lifetime=300": lambda: revocation.Revocation(
        _new(), tokens={"access": _any(revocation.TokenKind)("t:{jti}", lifetime=300)}
    ),
    "'w:v1': lead_time=300": lambda: _any(windows.Windows)(_new(), "w:v1", print, lead_time=300),
    "'w:v1': cached_for=300": lambda: _any(windows.Windows)(_new(), "w:v1", print, cached_for=300),
    "'Freshness': fresh=300": lambda: _any(windows.Freshness)(fresh=300),
    "'site': wait=300": lambda: _any(http_cache.HttpCache)(_new(), "site", wait=300),
    "'p:{id}': heartbeat=300": lambda: _any(progress.Progress)(
        _new(), "p:{id}", Card, wake="wake", terminal=Card, heartbeat=300
    ),
    "'views': flush_every=300": lambda: _any(write_behind.DeferredCounters)(
        _new(), "views", key=["id"], measures=["views"], purpose="x", flush_every=300
    ),
    "'usage': retention=300": lambda: _any(usage.Usage)(
        _new(), measures=["words"], purpose="x", retention=300
    ),
    "'answers:{id}': sweep_every=300": lambda: _any(semantic_cache.SemanticCache)(
        _new(), "answers:{id}", Card, scope=Card, lifetime=fixed(hours=1), sweep_every=300, purpose="x"
    ),
    "'c:{job_id}': lease=300": lambda: _any(jobs.Jobs)(_new(), "c:{job_id}", queues=["q"], lease=300),
    "'Plan': every=300": lambda: _any(planner.Plan)(
        novelty=1, every=300, active_within=MINUTE, cooldown=MINUTE
    ),
    "'planner': window=300": lambda: _any(planner.Planner)(_new(), sa.MetaData(), plans={}, window=300),
    "'KeyRing': overlap=300": lambda: _any(tokens.KeyRing)([], 300),
    "'Tokens': leeway=300": lambda: _any(tokens.Tokens)({}, "issuer", "audience", leeway=300),
    "'Qdrant': timeout=300": lambda: _any(Qdrant)(timeout=300),
    "'m': timeout=300": lambda: _any(OpenAICompatible)("http://localhost", model="m", timeout=300),
}


@pytest.mark.parametrize("says", DURATIONS)
def test_a_number_in_place_of_a_duration_is_named(says: str) -> None:
    """Whatever is declared, the error names it and the parameter, and says what to write."""
    with pytest.raises(InvalidDeclaration) as caught:
        DURATIONS[says]()
    assert str(caught.value) == f"{says} is not a duration; use timedelta(seconds=300)"


def test_lifetimes_name_their_parameters_too() -> None:
    """A window's length and the bound of an instant are durations; a text is none either."""
    wrongs: list[tuple[Callable[[], object], str]] = [
        (lambda: _any(keyspace.windowed)(every=60, keep=120), r"windowed\(...\): every=60 .*seconds=60\)"),
        (lambda: _any(keyspace.windowed)(every=MINUTE, keep="2m"), r"keep='2m' .*seconds=300\)"),
        (lambda: _any(keyspace.until)(at_most=2592000), r"until\(...\): at_most=2592000 .*=2592000\)"),
    ]
    for wrong, says in wrongs:
        with pytest.raises(errors.InvalidLifetime, match=says):
            wrong()


PATTERNS: dict[str, Callable[[Any, Any], object]] = {
    "Cache": lambda first, second: cache.Cache(first, second, Card, fresh=MINUTE, purpose="x"),
    "Locks": lambda first, second: locks.Locks(first, second, lease=MINUTE, purpose="x"),
    "RateLimits": lambda first, second: rate_limits.RateLimits(
        first, second, rate_limits.sliding_window("search", 5, per=MINUTE)
    ),
    "Events": lambda first, second: events.Events(first, second, Card, purpose="x"),
    "Sessions": lambda first, second: sessions.Sessions(
        first, second, Card, user="user_id", lifetime=fixed(hours=1)
    ),
    "Preferences": lambda first, second: preferences.Preferences(first, second, Card),
    "Entitlements": lambda first, second: entitlements.Entitlements(
        first, second, Card, lifetime=fixed(hours=1)
    ),
    "Fanout": lambda first, second: fanout.Fanout(first, second, Card, channel="all"),
    "Progress": lambda first, second: progress.Progress(first, second, Card, wake="wake", terminal=Card),
    "DeferredRecords": lambda first, second: write_behind.DeferredRecords(first, second, Card, purpose="x"),
    "Usage": lambda first, second: usage.Usage(first, second, measures=["words"], purpose="x"),
    "HttpCache": lambda first, second: http_cache.HttpCache(first, second),
    "SemanticCache": lambda first, second: _any(semantic_cache.SemanticCache)(
        first, second, Card, scope=Card, lifetime=fixed(hours=1), purpose="x"
    ),
    "Jobs": lambda first, second: jobs.Jobs(first, second, queues=["q"]),
    "GraphCheckpoints": lambda first, second: langgraph.GraphCheckpoints(
        first, second, lifetime=fixed(days=1)
    ),
    "Windows": lambda first, second: windows.Windows(first, second, _any(print)),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_that_is_given_no_catalogue_says_so(name: str) -> None:
    """Swapped arguments name the parameter; so does a catalogue with nothing after it that names keys."""
    with pytest.raises(
        InvalidDeclaration, match=r"'keys:\{id\}': the first parameter is the catalogue.*str;"
    ):
        PATTERNS[name]("keys:{id}", _new())
    with pytest.raises(
        InvalidDeclaration, match=r"'mistakes': the second parameter is the key pattern, not NoneType"
    ):
        PATTERNS[name](_new(), None)


def test_limits_without_rules_are_refused_with_advice() -> None:
    """The advice fits the problem: a rule where there is none, a name where two share one."""
    with pytest.raises(InvalidDeclaration, match=r"it has no rules; give it at least one: RateLimits\("):
        rate_limits.RateLimits(_new(), "limits")
    twice = [rate_limits.sliding_window("search", 5, per=MINUTE) for _ in range(2)]
    with pytest.raises(InvalidDeclaration, match="have the same name; give each rule a name of its own"):
        rate_limits.RateLimits(_new(), "limits", *twice)
