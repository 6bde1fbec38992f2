"""Limits in front of an application: admission, refusal, headers, and no input is a 500."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from itertools import count
from random import getrandbits
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ephemera.embedded import Valkey
from ephemera.keyspace import connect
from ephemera.web import ASGIApp
from tests.patterns.limit_fixtures import BRIEF, CATALOGUE, LIMITS, WINDOW, new_subject
from tests.web.limited_app import application, exchange, get

_addresses = count(getrandbits(26) << 4)


def an_address() -> str:
    """An address in 172.16.0.0/12 that no other test and no proxy uses."""
    return str(IPv4Address("172.16.0.0") + next(_addresses) % (1 << 30))


@pytest.fixture
async def app(server: Valkey) -> AsyncIterator[ASGIApp]:
    """The service with its server."""
    async with connect(server.url, CATALOGUE) as store:
        yield application(store)


@pytest.fixture
async def lonely() -> AsyncIterator[ASGIApp]:
    """The service without a server."""
    async with connect("redis://127.0.0.1:1", CATALOGUE, required=False) as store:
        yield application(store)


async def test_an_admitted_request_reports_its_limits(app: ASGIApp) -> None:
    """Policy and state are lists of structured fields, an item for each rule."""
    key = (b"x-api-key", new_subject().encode())
    answer = await get(app, "/search", an_address(), headers=[key])
    assert answer.status == 200
    assert answer.body == b'"found"'
    assert answer.headers["ratelimit-policy"] == '"window";q=5;w=86400, "log";q=5;w=86400'
    state = re.fullmatch(r'"window";r=4;t=(\d+), "log";r=4;t=(\d+)', answer.headers["ratelimit"])
    assert state is not None
    assert 0 < int(state[1]) <= 86_400
    assert int(state[2]) in (86_400, 86_401)
    assert "retry-after" not in answer.headers


async def test_a_denied_request_never_reaches_the_application(app: ASGIApp) -> None:
    """It gets 429 as a problem document with the violated policies and Retry-After."""
    client, key = an_address(), (b"x-api-key", new_subject().encode())
    for _ in range(5):
        assert (await get(app, "/search", client)).status == 200
    for _ in range(3):
        answer = await get(app, "/search", client, headers=[key])
        assert answer.status == 429
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["cache-control"] == "no-store"
        document = json.loads(answer.body)
        assert document["type"] == "https://iana.org/assignments/http-problem-types#quota-exceeded"
        assert (document["title"], document["status"]) == ("Quota Exceeded", 429)
        assert document["violated-policies"] == ["window"]
        wait = int(answer.headers["retry-after"])
        assert 0 < wait <= 86_400
        assert document["detail"] == f"Too many requests: window allows 5 per 86400 s. Try again in {wait} s."
        assert f'"window";r=0;t={wait}' in answer.headers["ratelimit"]


async def test_a_request_without_claims_is_not_limited(app: ASGIApp) -> None:
    """Neither the middleware nor a dependency limits it or adds headers."""
    for path in ("/free", "/idle"):
        answer = await get(app, path, an_address())
        assert answer.status == 200
        assert "ratelimit" not in answer.headers


async def test_a_route_may_have_limits_of_its_own(app: ASGIApp) -> None:
    """A dependency checks them, returns the decision, sets the same headers and raises the same problem."""
    client = an_address()
    answer = await get(app, "/ask", client)
    assert (answer.status, answer.body) == (200, b"4")
    assert answer.headers["ratelimit-policy"] == '"bucket";q=5;w=86400, "brief";q=5;w=1'
    while (answer := await get(app, "/ask", client)).status == 200:
        pass
    assert answer.status == 429
    assert answer.headers["content-type"] == "application/problem+json"
    assert int(answer.headers["retry-after"]) >= 1
    assert set(json.loads(answer.body)["violated-policies"]) <= {"bucket", "brief"}


async def test_a_route_documents_its_refusals_in_openapi(app: ASGIApp) -> None:
    """The document of the application lists 429 and 503 for it."""
    document = json.loads((await get(app, "/openapi.json")).body)
    assert {"429", "503"} < document["paths"]["/ask"]["get"]["responses"].keys()


async def test_a_websocket_is_refused_before_it_is_accepted(app: ASGIApp) -> None:
    """Its handshake counts as a request; the close code is "try again later"."""
    client = an_address()
    for _ in range(5):
        accepted, *_ = await exchange(app, "websocket", "/ws", client)
        assert accepted["type"] == "websocket.accept"
        assert b"ratelimit" in dict(accepted["headers"])
    (closed,) = await exchange(app, "websocket", "/ws", client)
    assert (closed["type"], closed["code"]) == ("websocket.close", 1013)


async def test_policies_decide_without_a_server(lonely: ASGIApp) -> None:
    """An open rule admits without headers; a closed one is 503 with reduced capacity."""
    answer = await get(lonely, "/search", an_address())
    assert answer.status == 200
    assert "ratelimit" not in answer.headers
    answer = await get(lonely, "/closed", an_address())
    assert answer.status == 503
    assert answer.headers["retry-after"] == "1"
    document = json.loads(answer.body)
    assert document["type"] == "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
    assert document["violated-policies"] == ["closed"]


async def test_a_subject_that_no_key_can_be_made_of_is_a_bad_request(app: ASGIApp) -> None:
    """An API key of two thousand bytes is a 400."""
    answer = await get(app, "/search", an_address(), headers=[(b"x-api-key", b"k" * 2000)])
    assert answer.status == 400
    document = json.loads(answer.body)
    assert document["detail"] == "This request cannot be counted: its subject is not usable."


async def test_the_limits_are_those_of_the_application(server: Valkey) -> None:
    """Units that the middleware took count for the rest of the service, under the client's address."""
    async with connect(server.url, CATALOGUE) as store:
        client = an_address()
        await get(application(store), "/search", client)
        assert (await store[LIMITS].peek(WINDOW.on(client))).remaining == 4
        assert BRIEF.on(client).id != WINDOW.on(client).id


raw = st.binary(max_size=80)
lists = st.lists(
    st.one_of(
        st.ip_addresses().map(str),
        st.ip_addresses(v=4).map(lambda address: f"{address}:80"),
        st.ip_addresses(v=6).map(lambda address: f'"[{address}]:80"'),
        st.sampled_from(
            ["unknown", "", "_hidden", "[", "]", "for=", "::ffff:10.0.0.1", "fe80::1%eth0", "::1]"]
        ),
    ),
    max_size=6,
).map(lambda hops: ", ".join(hops).encode())
headers = st.lists(
    st.tuples(st.sampled_from([b"x-forwarded-for", b"forwarded", b"x-api-key"]), st.one_of(raw, lists)),
    max_size=4,
)


@contextmanager
def _asking(url: str) -> Iterator[Callable[..., int]]:
    """A function that sends requests from synchronous code and returns their status."""
    with asyncio.Runner() as runner:
        opened = connect(url, CATALOGUE)
        app = application(runner.run(opened.__aenter__()))

        def ask(*arguments: Any, **options: Any) -> int:
            return runner.run(get(app, *arguments, **options)).status

        try:
            yield ask
        finally:
            runner.run(opened.__aexit__(None, None, None))


def test_fuzzed_headers_are_never_a_server_error(server: Valkey) -> None:
    """Whatever addresses and keys a request has, the response is never a server error."""
    with _asking(server.url) as ask:

        @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
        @given(headers, st.sampled_from(["10.0.0.9", "203.0.113.9", "fd00::1", "/run/socket", "", None]))
        def fuzz(brought: list[tuple[bytes, bytes]], peer: str | None) -> None:
            for path in ("/search", "/ask"):
                assert ask(path, peer, headers=brought) in (200, 400, 429)

        fuzz()
