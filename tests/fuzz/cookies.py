"""Cookies: only the issued token opens a session, whatever else a header contains."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from ephemera import embedded
from ephemera.keyspace import Store, connect
from ephemera.web import Cookie
from tests.fuzz.asgi_request import request
from tests.fuzz.trials import Area, Trial
from tests.patterns.session_fixtures import CATALOGUE, SLIDING, Session
from tests.web.session_app import application

_NAME = b"__Host-session"
_TOKEN = b"@TOKEN"
"""Stands for a token that is valid when the case is tried."""
_words = st.one_of(
    st.sampled_from(
        [
            _NAME,
            b"=",
            b";",
            b"; ",
            b",",
            b'"',
            b" ",
            b"\t",
            b"a",
            b"=a",
            b"__Host-session2",
            b"$Version=1",
            _TOKEN,
        ]
    ),
    st.sampled_from(
        [_NAME + b"=" + _TOKEN, _NAME.upper() + b"=", b"x=y; ", b"\x00", b"\xff", b"%3D", b"\r\n", b"."]
    ),
    st.binary(max_size=8),
)
_lines = st.lists(st.lists(_words, max_size=8).map(b"".join), min_size=1, max_size=3)
_edits = st.lists(
    st.tuples(st.integers(0, 60), st.binary(max_size=2), st.integers(0, 2)), min_size=1, max_size=3
)


def _named(lines: list[bytes]) -> set[bytes]:
    """All values that these headers could give the cookie: what is behind its name, up to a `;`."""
    pairs = [pair.strip(b" \t") for line in lines for pair in line.split(b";")]
    return {pair[len(_NAME) + 1 :].strip(b" \t") for pair in pairs if pair.startswith(_NAME + b"=")}


class _Sessions:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._app = application(store)

    async def lines(self, case: list[bytes]) -> None:
        """Ask with these headers: signed in means that one of their cookies is the token."""
        token = (await self._store[SLIDING].create(Session("ann"))).encode()
        lines = [line.replace(_TOKEN, token) for line in case]
        headers = [(b"cookie", line) for line in lines]
        opened = await request(self._app, "/open", headers)
        assert opened.status == 200, opened
        signed_in = json.loads(opened.body)["signed_in"]
        if signed_in:
            assert token in _named(lines), "a request without the token was admitted"
        if _named(lines) == {token}:
            assert signed_in, "the token was there, and alone"
        assert (await request(self._app, "/me", headers)).status == (200 if signed_in else 401)
        for path in ("/login/bob", "/promote", "/logout"):
            answer = await request(self._app, path, headers, "POST")
            assert answer.status in (200, 401), answer
            for name, value in answer.pairs:
                assert not set(value) & set(b"\r\n\x00"), (name, value)
        await self._store[SLIDING].end_all("ann")

    async def altered(self, case: list[tuple[int, bytes, int]]) -> None:
        """Ask with a token that was altered: it opens nothing."""
        token = (await self._store[SLIDING].create(Session("ann"))).encode()
        altered = token
        for at, more, dropped in case:
            place = at % (len(altered) + 1)
            altered = altered[:place] + more + altered[place + dropped :]
        live: Any = self._store[SLIDING]
        for text in (altered.decode("latin-1"), altered.decode("latin-1").strip()):
            if text.encode("latin-1") != token:
                assert await live.get(text) is None, f"{text!r} opens the session of {token!r}"
                assert not await live.update(text, role="admin")
                assert await live.rotate(text) is None
                await live.end(text)
        assert (await live.get(token.decode())).role == "viewer"
        await live.end_all("ann")


def _attributes(case: tuple[str, Any, str | None, str, bool]) -> None:
    """A cookie is declared in a form that browsers take, or refused."""
    name, same_site, domain, path, secure = case
    try:
        cookie = Cookie(name, same_site, domain, path, secure)
        line = cookie.set("token", 1000)
    except ValueError:
        return
    assert not set(line) & set(b"\r\n\x00"), line
    assert line.startswith(name.encode() + b"=token;")
    assert line.count(b";") == 3 + secure + (domain is not None and domain != ""), line


@asynccontextmanager
async def _opened(_: Path) -> AsyncIterator[list[Trial]]:
    with embedded.valkey() as server:
        async with connect(server.url, CATALOGUE) as store:
            sessions = _Sessions(store)
            yield [
                Trial(
                    "headers",
                    "Only who sends the token is signed in; nothing is a server error; no header is split.",
                    _lines,
                    sessions.lines,
                    batch=60,
                ),
                Trial(
                    "altered tokens",
                    "A token that differs in one bit reads, changes, renews and ends nothing.",
                    _edits,
                    sessions.altered,
                    batch=60,
                ),
                Trial(
                    "attributes",
                    "A declared cookie is one header line with its attributes, or is refused.",
                    st.tuples(
                        st.one_of(st.text(max_size=8), st.sampled_from(["__Host-a", "__Secure-a", "a"])),
                        st.one_of(st.sampled_from(["lax", "strict", "none"]), st.text(max_size=4)),
                        st.one_of(st.none(), st.text(max_size=10)),
                        st.one_of(st.just("/"), st.text(max_size=10)),
                        st.booleans(),
                    ),
                    _attributes,
                    batch=300,
                ),
            ]


COOKIES = Area("cookies", _opened)
