from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from ephemera.errors import InvalidDeclaration, OverlappingPatterns
from ephemera.keyspace import Catalogue, Keyspace, fixed, permanent, sliding, until, windowed


class Session(msgspec.Struct):
    user: str


DAY = fixed(days=1)


def test_a_declaration_can_be_read_back() -> None:
    """Everything declared is available to documentation, audit and ACLs."""
    catalogue = Catalogue("slides")
    session = catalogue.hash(
        "session:{session_id}",
        Session,
        lifetime=sliding(hours=24),
        purpose="Who is signed in",
        saves="a SQL read on every request",
        invalidated_by=("logout", "role change"),
        if_lost="users sign in again",
        owner="auth",
        sensitive=True,
        hash_tag="session_id",
    )
    assert (session.pattern, session.kind, session.redis_type) == ("session:{session_id}", "hash", "hash")
    assert (session.role, str(session.lifetime), session.sensitive) == ("cache", "24 h sliding", True)
    assert session.invalidated_by == ("logout", "role change")
    assert session.key(session_id="a") == "session:{a}"
    assert session.parse(b"session:{a}") == {"session_id": "a"}
    assert catalogue["session:{session_id}"] is session
    assert list(catalogue) == [session]
    assert repr(session) == "<hash 'session:{session_id}' of slides>"
    unchecked: Any = session
    with pytest.raises(AttributeError):
        unchecked.role = "queue"


def test_keys_are_classified() -> None:
    """A key belongs to the keyspace that rendered it, even one declared later."""
    catalogue = Catalogue("x")
    flag = catalogue.flag("a:{x}", lifetime=DAY, purpose="x")
    channel = catalogue.channel("b:{x}", str, purpose="x")
    assert catalogue.classify(b"a:1") is flag
    assert catalogue.classify(b"b:1") is None
    value = catalogue.value("b:{y}", str, lifetime=DAY, purpose="x")
    assert catalogue.classify(b"b:1") is value
    assert channel.kind == "channel"


def test_each_kind_names_its_type_on_the_server() -> None:
    """The audit compares these with the replies of TYPE."""
    catalogue = Catalogue("x")
    spaces: list[Keyspace[Any]] = [
        catalogue.hash("a:{x}", Session, lifetime=DAY, purpose="x"),
        catalogue.mapping("b:{x}", int, lifetime=DAY, purpose="x"),
        catalogue.value("c:{x}", str, lifetime=DAY, purpose="x"),
        catalogue.counter("d:{x}", lifetime=DAY, purpose="x"),
        catalogue.set("e:{x}", str, lifetime=DAY, purpose="x"),
        catalogue.sorted_set("f:{x}", str, lifetime=DAY, purpose="x"),
        catalogue.list("g:{x}", str, lifetime=DAY, purpose="x"),
        catalogue.stream("h:{x}", Session, lifetime=DAY, purpose="x"),
        catalogue.flag("i:{x}", lifetime=DAY, purpose="x"),
    ]
    types = ["hash", "hash", "string", "string", "set", "zset", "list", "stream", "string"]
    assert [space.redis_type for space in spaces] == types


@pytest.mark.parametrize(
    ("about", "problem", "advice"),
    [
        ({"purpose": "x"}, "has no lifetime", "lifetime=fixed"),
        ({"purpose": "x", "lifetime": 300}, "has no lifetime, but 300", "lifetime=fixed(seconds=300)"),
        (
            {"purpose": "x", "lifetime": timedelta(hours=1)},
            "no lifetime, but",
            "lifetime=fixed(seconds=3600)",
        ),
        ({"purpose": "x", "lifetime": "1 h"}, "has no lifetime, but '1 h'", "lifetime=fixed(...)"),
        ({"lifetime": DAY}, "has no purpose", "add purpose="),
        ({"lifetime": DAY, "purpose": ""}, "has no purpose", "add purpose="),
        (
            {"lifetime": DAY, "purpose": "x", "ttl": 5},
            "option ttl is unknown",
            "if_lost, invalidated_by, lifetime",
        ),
        ({"lifetime": DAY, "purpose": "x", "role": "disk"}, "role 'disk' is unknown", "'cache' or 'queue'"),
        ({"lifetime": DAY, "purpose": "x", "invalidated_by": "logout"}, "one string", "tuple of events"),
        ({"lifetime": DAY, "purpose": "x", "hash_tag": "y"}, "tag 'y'", "name of a field"),
        ({"lifetime": until(lambda _: 0), "purpose": "x"}, "cannot derive", "until= with each write"),
        ({"lifetime": DAY, "purpose": "x", "role": "queue"}, "must not vanish", "outlives"),
        ({"lifetime": sliding(hours=1), "purpose": "x", "role": "queue"}, "must not vanish", "permanent"),
    ],
)
def test_declarations_that_cannot_be_right_are_refused(about: Any, problem: str, advice: str) -> None:
    """The error names the pattern, what is wrong and what to do."""
    with pytest.raises(InvalidDeclaration) as caught:
        Catalogue("x").counter("count:{x}", **about)
    assert caught.value.pattern == "count:{x}"
    assert problem in caught.value.problem
    assert advice in caught.value.advice
    assert "'count:{x}'" in str(caught.value)


@pytest.mark.parametrize(
    "lifetime",
    [
        permanent(reason="synced every minute, then deleted"),
        fixed(days=90, outlives="the flush every 15 minutes"),
        sliding(hours=2, outlives="the longest job"),
        windowed(every=timedelta(hours=1), keep=timedelta(days=1), outlives="the hourly flush"),
    ],
)
def test_a_queue_must_outlive_its_use(lifetime: Any) -> None:
    """Role queue accepts lifetimes that are permanent or say what they outlive."""
    space = Catalogue("x").counter("usage:{x}", lifetime=lifetime, role="queue", purpose="x")
    assert space.role == "queue"


@pytest.mark.parametrize("bad", ["{x}", "a:{x}{y}", "a:{x}b", "a*:{x}"])
def test_bad_patterns_are_refused(bad: str) -> None:
    """A catalogue refuses what a template refuses."""
    with pytest.raises(InvalidDeclaration):
        Catalogue("x").flag(bad, lifetime=DAY, purpose="x")


def test_overlapping_patterns_are_refused() -> None:
    """Two patterns that could render the same key cannot be declared, and the error shows such a key."""
    catalogue = Catalogue("x")
    catalogue.counter("rate:{subject}:{endpoint}", lifetime=DAY, purpose="x")
    with pytest.raises(OverlappingPatterns, match="start one of them with another literal") as caught:
        catalogue.counter("rate:user:{id}", lifetime=DAY, purpose="x")
    assert (caught.value.pattern, caught.value.other) == ("rate:user:{id}", "rate:{subject}:{endpoint}")
    assert caught.value.example == "rate:user:a"
    assert len(catalogue) == 1


def test_types_that_do_not_fit_their_kind_are_refused() -> None:
    """A hash of no Struct, a set of Structs and a value that msgspec cannot decode fail when declared."""
    catalogue: Any = Catalogue("x")
    with pytest.raises(InvalidDeclaration, match=r"'a:\{x\}': dict has no named fields; .* use value\(\)"):
        catalogue.hash("a:{x}", dict, lifetime=DAY, purpose="x")
    with pytest.raises(
        InvalidDeclaration, match=r"'a:\{x\}': Session cannot be a member of a set; .* use str"
    ):
        catalogue.set("a:{x}", Session, lifetime=DAY, purpose="x")
    with pytest.raises(
        InvalidDeclaration, match=r"'a:\{x\}': complex cannot be stored: .*; use a msgspec.Struct"
    ):
        catalogue.value("a:{x}", complex, lifetime=DAY, purpose="x")
    with pytest.raises(InvalidDeclaration, match=r"'a:\{x\}': there is no codec 'pickle'; use 'json'"):
        catalogue.value("a:{x}", Session, codec="pickle", lifetime=DAY, purpose="x")
    with pytest.raises(InvalidDeclaration, match=r"'a:\{x\}': a plain str .*; add codec='msgpack'"):
        catalogue.value("a:{x}", str, compress_over=100, lifetime=DAY, purpose="x")
    with pytest.raises(InvalidDeclaration, match=r"'a:\{x\}': max_length=0 holds nothing"):
        catalogue.list("a:{x}", str, max_length=0, lifetime=DAY, purpose="x")


def test_the_five_systems_can_be_declared() -> None:
    """Patterns that the systems use side by side are declared in one catalogue without overlap."""
    catalogue = Catalogue("all")
    patterns = """
        session:{user_id}:{sid} blacklist:access:{jti} blacklist:refresh:{jti} cache:profile:{user_id}
        rate:{subject}:{endpoint}:{hour} session:{session_id} user_sessions:{user_id} gen_checkpoint:{job_id}
        gen_progress:{job_id} semantic_cache:{hash} ratelimit:{api_key_id}:{minute}
        ratelimit:user:{user_id}:{minute} plan_limits:{organization_id} usage:{organization_id}:{period}
        celery_queue:generation celery_queue:ingestion ws_connections:{user_id} gl:passage:{passage_id}
        gl:passage:{passage_id}:{suffix} gl:chapter:{book_id}.{chapter}:{translation} gl:topic:{topic_id}
        gl:entitlements:{plan_id}:{feature} gl:ai:cache:{prompt_hash} gl:session:{user_id}:prefs
        gl:ratelimit:{subject}:{endpoint}:{window_start} gl:events:users gl:lock:ingest:{schema} ch:{c}
        hwm:{u} us:{u} dirty:channels lock:user:{u} enq:user:{u} league:table md:{match_id}:meta
        md:{match_id}:live etag:md:{match_id} predictions:active:{range} predictions:user:{user_id}
        public:club:{id}:matches
        cache:match-window:v1 __v:{key} __lock:{key}
    """
    for pattern in patterns.split():
        catalogue.flag(pattern, lifetime=DAY, purpose="x")
    assert len(catalogue) == len(patterns.split())


def test_a_pattern_is_declared_once_whatever_its_hash_tag() -> None:
    """The same pattern with another hash tag renders other keys but has the same name: refused."""
    catalogue = Catalogue("jobs")
    catalogue.counter("steps:{job_id}", lifetime=DAY, purpose="x")
    with pytest.raises(InvalidDeclaration, match="declared twice"):
        catalogue.counter("steps:{job_id}", lifetime=DAY, purpose="x", hash_tag="job_id")
