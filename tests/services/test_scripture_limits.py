"""Limits of scripture by plan, by user where there is one, by address otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from ephemera.embedded import Valkey
from tests.services.scripture_readers import Reader, administrator, reading, subscriber
from tests.services.services import Served

PROXY = {"EPHEMERA_TRUSTED_PROXIES": "127.0.0.1"}


@pytest.fixture(scope="module")
def scripture(
    places: dict[str, str], valkey: Valkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A service with the limits of the design, behind a proxy that it trusts."""
    with reading(places, valkey, tmp_path_factory.mktemp("logs"), **PROXY) as running:
        yield running


@pytest.mark.parametrize(
    ("path", "per_minute"), [("/search?q=light", 20), ("/passages/john.3.16", 60), ("/lexicon/g26", 40)]
)
def test_anonymous_requests_have_the_free_limits_by_address(
    scripture: Served, path: str, per_minute: int
) -> None:
    """A full bucket and what flows in meanwhile, then 429 with Retry-After; another address has its own."""

    def ask(address: str = "203.0.113.7") -> httpx.Response:
        return scripture.client.get(path, headers={"x-forwarded-for": address})

    _drained(ask, per_minute, 60)
    assert ask("203.0.113.8").status_code == 200


def test_a_limit_is_checked_before_any_work(scripture: Served, places: dict[str, str]) -> None:
    """While a search cannot read SQL, one beyond the limit is refused at once, and one within it waits."""
    number = iter(range(10_000))

    def ask(address: str = "203.0.113.9", **more: Any) -> httpx.Response:
        path = f"/search?q=light+{next(number)}"  # no two searches share an answer
        return scripture.client.get(path, headers={"x-forwarded-for": address}, **more)

    _drained(ask, 20, 60)
    with psycopg.connect(places["EPHEMERA_DATABASE_URL"]) as sql:
        sql.execute("LOCK TABLE scripture.texts, scripture.passages IN ACCESS EXCLUSIVE MODE")
        assert any(_refused(ask) for _ in range(5))
        with pytest.raises(httpx.ReadTimeout):
            ask("203.0.113.10", timeout=2)
    assert ask("203.0.113.11").status_code == 200


def _refused(ask: Callable[..., httpx.Response]) -> bool:
    """Whether an answer came at once; none does to a request that a refilled bucket has admitted."""
    try:
        return ask(timeout=2).status_code == 429
    except httpx.ReadTimeout:
        return False


def test_a_user_is_counted_as_such_wherever_they_come_from(scripture: Served) -> None:
    """Other addresses do not give a user more, and other users of one address lose nothing."""
    ann, bob = subscriber(scripture, "free"), subscriber(scripture, "free")
    addresses = iter(range(10_000))

    def ask(reader: Reader) -> httpx.Response:
        address = f"198.51.100.{next(addresses) % 250}"
        return reader.ask("GET", "/search?q=light", headers={"x-forwarded-for": address})

    _drained(lambda: ask(ann), 20, 60)
    assert ask(bob).status_code == 200


def test_requests_for_own_settings_are_limited_by_user(scripture: Served) -> None:
    """On every plan, all of them together, since each asks or changes a database; others lose nothing."""
    ann, bob = subscriber(scripture, "paid"), subscriber(scripture, "free")
    paths = cycle(("/me/preferences", "/me/notifications"))
    _drained(lambda: ann.ask("GET", next(paths)), 60, 60)
    assert ann.ask("POST", "/me/push-subscriptions", json={}).status_code == 429
    assert bob.ask("GET", "/me/preferences").status_code == 200


@pytest.mark.parametrize(
    ("plan", "search", "passages", "lexicon", "ai"),
    [("free", 20, 60, 40, 5), ("paid", 200, 600, 400, 50), ("ai", 200, 600, 400, 200)],
)
def test_each_plan_has_its_limits(
    scripture: Served, plan: str, search: int, passages: int, lexicon: int, ai: int
) -> None:
    """The response names them: per minute for search, passages and the lexicon, per hour for answers."""
    reader = subscriber(scripture, plan)
    for path, name, limit in (
        ("/search?q=light", "search", search),
        ("/passages/john.3.16", "passages", passages),
        ("/lexicon/g26", "lexicon", lexicon),
    ):
        found = reader.ask("GET", path)
        assert found.headers["ratelimit-policy"] == f'"{name}";q={limit};w=60'
    answer = reader.ask("POST", "/ai/ask", json={"question": "What is light?"})
    assert answer.headers["ratelimit-policy"] == f'"ai";q={ai};w=3600'


def test_an_upgrade_holds_at_once_and_what_was_used_stays_used(scripture: Served) -> None:
    """Five answers on the free plan and no sixth; on the paid one the next comes ten times as soon."""
    ann = subscriber(scripture, "free")

    def ask() -> httpx.Response:
        return ann.ask("POST", "/ai/ask", json={"question": "What is light?"})

    _drained(ask, 5, 3600)
    administrator(scripture).ask("PUT", f"/users/{ann.id}/plan", json={"plan": "paid"})
    answer = ask()
    # A bucket carries over how full it is: empty as it was, it fills ten times as fast.
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) <= 3600 / 50 + 1
    assert answer.headers["ratelimit-policy"] == '"ai";q=50;w=3600'


def test_a_forged_header_is_no_other_client(places: dict[str, str], valkey: Valkey, tmp_path: Path) -> None:
    """Without trusted proxies X-Forwarded-For can be forged, so the peer's address is counted."""
    with reading(places, valkey, tmp_path) as plain:
        addresses = iter(range(10_000))

        def ask() -> httpx.Response:
            address = f"192.0.2.{next(addresses) % 250}"
            return plain.client.get("/search?q=light", headers={"x-forwarded-for": address})

        _drained(ask, 20, 60)


def _drained(ask: Callable[[], httpx.Response], limit: int, window: int) -> None:
    """Ask until it is refused; that is after the limit and what came back meanwhile."""
    began, admitted = time.monotonic(), 0
    while (answer := ask()).status_code == 200:
        admitted += 1
        assert admitted <= limit + (time.monotonic() - began) * limit / window + 1
    assert admitted >= limit
    assert answer.status_code == 429
    assert 1 <= int(answer.headers["retry-after"]) <= window / limit + 1
    assert answer.headers["content-type"] == "application/problem+json"
