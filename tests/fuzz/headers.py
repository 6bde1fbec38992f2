"""Headers: If-None-Match, Last-Event-ID, X-Forwarded-For, Forwarded, API keys; here and over sockets.

Of each there is a slow, plain reading here that ours is compared with. The league and slides are asked by raw
HTTP/1.1, so that bytes arrive that no client library would send.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hypothesis import strategies as st

from ephemera import embedded
from ephemera.keyspace import Store, connect
from ephemera.web import ClientAddress
from tests.fuzz.asgi_request import Answer, request
from tests.fuzz.services import Services
from tests.fuzz.trials import Area, Trial
from tests.patterns import limit_fixtures, progress_fixtures
from tests.patterns.league_site import League, Source
from tests.patterns.progress_fixtures import PROGRESS, Done, JobDatabase, SlideDone
from tests.services.services import Served
from tests.services.slides_users import Person
from tests.web import http_cache_app, limited_app, streaming_app

_TAG = re.compile(rb'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')
_ETAG = b"@ETAG"
_tags = st.lists(
    st.one_of(
        st.sampled_from(
            [
                _ETAG,
                b"W/" + _ETAG,
                b"*",
                b",",
                b", ",
                b'"',
                b"W/",
                b"w/",
                b'"x"',
                b'W/"y"',
                b" ",
                b"\t",
                b"\\",
            ]
        ),
        st.binary(max_size=5),
        st.sampled_from([b'"' * 50, b"," * 3000, b'"a",' * 2500, b" " * 5000 + b"x", b'W/"' * 800]),
    ),
    max_size=7,
).map(b"".join)
_addresses = st.sampled_from(
    ["10.0.0.1", "10.9.9.9", "198.51.100.7", "203.0.113.1:4711", "[2001:db8::1]:80", "::1", "fd00::1",
     "::ffff:10.0.0.2", "unknown", "_hidden", "", " ", "999.1.1.1", "127.1", "0x7f.1", "fe80::1%eth0", "[",
     "]", "1" * 5000, "10.0.0.1 x"]
)  # fmt: skip
_hops = st.lists(st.one_of(_addresses, st.text(max_size=8)), max_size=6).map(", ".join)
_forwarded = st.lists(
    st.one_of(
        _addresses.map(lambda text: f"for={text}"),
        _addresses.map(lambda text: f'For="{text}";proto=https'),
        st.sampled_from(["for=", "by=1;for=2", ";;", "for", 'for="', "proto=http", "for=a;for=b"]),
        st.text(max_size=8),
    ),
    max_size=5,
).map(",".join)
_LEAGUE_PATHS = ["/api/table", "/api/matches/32/live", "/api/me", "/", "/metrics", "/readyz"]
_SLIDES_PATHS = ["/jobs/x/events", "/auth/me", "/usage", "/presentations"]
_PROXIES = ["10.0.0.0/8", "fd00::/8"]
_ids = st.one_of(
    st.sampled_from(
        [
            "1-1",
            "0-0",
            "end",
            "-1-0",
            "1-",
            "9" * 400 + "-1",
            "1-1 ",
            "\u0661-\u0661",
            "\x00",
            "*",
            "$",
            ">",
            "",
        ]
    ),
    st.from_regex(r"[0-9]{1,25}-[0-9]{1,25}", fullmatch=True),
    st.text(max_size=12),
)
_names = st.sampled_from(
    [
        *("if-none-match", "last-event-id", "x-forwarded-for", "forwarded", "cookie", "authorization"),
        *("accept-encoding", "content-type", "x-prewarm-token", "x-request-id", "traceparent", "range"),
        *("accept", "user-agent", "origin", "if-modified-since", "ratelimit", "x-api-key"),
        *("sec-websocket-key", "transfer-encoding", "content-length"),
    ]
)
_raw_values = st.one_of(
    st.binary(max_size=24).map(lambda data: data.translate(None, b"\r\n\x00")),
    _tags.map(lambda data: data.translate(None, b"\r\n\x00")[:6000]),
    _hops.map(lambda text: text.encode("utf-8", "replace").translate(None, b"\r\n\x00")[:6000]),
    st.sampled_from(
        [b"chunked", b"0", b"5", b"-1", b"gzip;q=0", b"*;q=0.000", b"bytes=0-99999999999", b"x" * 6000]
    ),
)


def _names_it(tags: bytes, etag: bytes) -> bool:
    """If-None-Match as RFC 9110 has it, letter by letter."""
    text = tags.strip(b" \t")
    if tags == etag or text == b"*":
        return True
    found, rest = [], text
    while rest:
        rest = rest.lstrip(b" \t,")
        tag = _TAG.match(rest)
        if tag is None:
            break
        found.append(tag[0])
        rest = rest[tag.end() :].lstrip(b" \t")
        if rest and not rest.startswith(b","):
            return False
    well_formed = not rest and len(tags) <= 8192
    return well_formed and any(each.removeprefix(b"W/") == etag.removeprefix(b"W/") for each in found)


class _Pages:
    def __init__(self, league: League, store: Store) -> None:
        self._app = http_cache_app.application(league, store)

    async def check(self, case: bytes) -> None:
        """304 exactly when the list names the page's tag, 200 with the page otherwise."""
        page = await request(self._app, "/table")
        etag = page.values(b"etag")[0]
        tags = case.replace(_ETAG, etag)
        for method in ("GET", "HEAD"):
            answer = await request(self._app, "/table", [(b"if-none-match", tags)], method)
            assert answer.status == (304 if _names_it(tags, etag) else 200), (answer.status, tags)
            assert answer.values(b"etag") == [etag], tags
        by_path = await request(self._app, "/live?match_id=1", [(b"if-none-match", tags)])
        assert by_path.status in (200, 304)


def _who(case: tuple[str, str, Any]) -> None:
    """The client is the last address from the right that no trusted proxy has."""
    peer, hops, header = case
    finder = ClientAddress(_PROXIES, header=header)
    value = hops.encode("utf-8", "replace")
    scope = {"type": "http", "client": (peer, 1), "headers": [(header.encode(), value)]}
    found = finder.address(scope)
    assert found
    finder.network(scope)
    networks = [ip_network(each) for each in _PROXIES]
    if not any(ip_address(peer) in network for network in networks):
        assert found == str(ip_address(peer)), "a stranger was believed"
    ip_address(found)


class _Limited:
    def __init__(self, store: Store) -> None:
        self._app = limited_app.application(store)
        self._store = store

    async def check(self, case: tuple[str, bytes | None]) -> None:
        """A request is counted or refused, and the fields that tell of it are well formed."""
        hops, api_key = case
        headers = [(b"x-forwarded-for", hops.encode("utf-8", "replace"))]
        if api_key is not None:
            headers.append((b"x-api-key", api_key))
        for path in ("/search", "/ask", "/free"):
            answer = await request(self._app, path, headers)
            assert answer.status in (200, 400, 429), answer
            for name in (b"ratelimit", b"ratelimit-policy"):
                for value in answer.values(name):
                    assert re.fullmatch(rb'"[a-z-]+"(;[a-z]+=\d+)+(, "[a-z-]+"(;[a-z]+=\d+)+)*', value), value
            for value in answer.values(b"retry-after"):
                assert int(value) >= 1


class _Events:
    def __init__(self, store: Store) -> None:
        self._app = streaming_app.application(store, JobDatabase())
        self._store = store

    async def check(self, case: tuple[str, bool]) -> None:
        """Any id resumes the stream, or is unknown: then the state is sent as a snapshot."""
        text, in_query = case
        raw = text.encode("utf-8", "replace")
        headers = [] if in_query else [(b"last-event-id", raw)]
        more: dict[str, Any] = {"query_string": b"last_event_id=" + raw} if in_query else {}
        answer = await request(self._app, "/jobs/fuzz/events", headers, **more)
        _well_formed(answer)

    async def begin(self) -> None:
        """A job that has ended."""
        await self._store[PROGRESS].append(SlideDone(1), job_id="fuzz")
        await self._store[PROGRESS].append(Done(1), job_id="fuzz")


def _well_formed(answer: Answer) -> None:
    assert answer.status in (200, 204), answer
    for event in answer.body.split(b"\n\n"):
        for line in event.splitlines():
            assert re.match(rb"(id|data|event|retry): .|:$", line), answer.body


class _Raw:
    """A service over a socket."""

    def __init__(self, served: Callable[[], Served], paths: list[str], cookie: Callable[[], str]) -> None:
        self._served, self._cookie = served, cookie
        self._paths = paths

    async def check(self, case: tuple[int, str, list[tuple[str, bytes]]]) -> None:
        """A request with these headers is answered, and not with a server error."""
        which, method, headers = case
        lines = [
            f"{method} {self._paths[which % len(self._paths)]} HTTP/1.1".encode(),
            b"host: localhost",
            b"connection: close",
        ]
        if cookie := self._cookie():
            lines.append(b"cookie: " + cookie.encode())
        lines += [name.encode() + b": " + value for name, value in headers]
        place = urlsplit(self._served().url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(b"\r\n".join(lines) + b"\r\n\r\n")
        if any(name in ("content-length", "transfer-encoding") for name, _ in headers):
            writer.write_eof()  # a body that was promised does not come
        try:
            status = await reader.readline()
            parts = status.split(b" ")
            # Nothing at all: a request that the server's parser gave up on before it was one.
            assert not status or (parts[0].startswith(b"HTTP/1.") and int(parts[1]) < 500), status
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[list[Trial]]:
    league = League("fuzz-headers")
    catalogues = (
        league.catalogue,
        limit_fixtures.CATALOGUE,
        progress_fixtures.CATALOGUE,
        *streaming_app.CATALOGUES[1:],
    )
    with embedded.valkey() as server, Services(folder) as services:
        async with connect(server.url, *catalogues, resources=league.resources(Source(1))) as store:
            events = _Events(store)
            await events.begin()
            pages = _Raw(lambda: services.league, _LEAGUE_PATHS, lambda: "")
            anna = cache(lambda: Person(services.slides).cookie)
            jobs = _Raw(lambda: services.slides, _SLIDES_PATHS, anna)
            raw = st.tuples(
                st.integers(0, 10),
                st.sampled_from(["GET", "HEAD", "GET", "POST", "OPTIONS"]),
                st.lists(st.tuples(_names, _raw_values), max_size=5),
            )
            yield [
                Trial(
                    "If-None-Match",
                    "304 comes exactly when the list names the page's tag, by a plain reading of RFC 9110.",
                    _tags,
                    _Pages(league, store).check,
                ),
                Trial(
                    "X-Forwarded-For",
                    "Only trusted proxies are believed, and the client is always an address.",
                    st.tuples(
                        st.sampled_from(["10.0.0.1", "198.51.100.9", "fd00::1", "2001:db8::2"]),
                        st.one_of(_hops, _forwarded),
                        st.sampled_from(["x-forwarded-for", "forwarded"]),
                    ),
                    _who,
                    batch=300,
                ),
                Trial(
                    "RateLimit",
                    "A request is counted, or refused by 400 or 429; the fields that tell of it are "
                    "well formed.",
                    st.tuples(_hops, st.one_of(st.none(), st.binary(max_size=30))),
                    _Limited(store).check,
                ),
                Trial(
                    "Last-Event-ID",
                    "Any id gives well-formed events: those that follow, or a snapshot.",
                    st.tuples(_ids, st.booleans()),
                    events.check,
                ),
                Trial(
                    "the league over a socket",
                    "No bytes in a header make the league answer 5xx.",
                    raw,
                    pages.check,
                    batch=50,
                    needs_services=True,
                ),
                Trial(
                    "slides over a socket",
                    "No bytes in a header make slides answer 5xx.",
                    raw,
                    jobs.check,
                    batch=50,
                    needs_services=True,
                ),
            ]


HEADERS = Area("headers", _opened)
