"""Tokens: a token that was not signed here for this purpose is refused with a proper error.

In this process every text goes to `Tokens.verify`; then the identity service is asked over HTTP as a process.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from hypothesis import strategies as st

from ephemera.errors import InvalidToken
from ephemera.patterns.tokens import Claims, KeyRing, Tokens
from tests.fuzz.services import Services
from tests.fuzz.trials import Area, Trial
from tests.services.identity_users import Person, newcomer

_RING = KeyRing.generate(overlap=timedelta(days=1))
_STRANGERS = KeyRing.generate(overlap=timedelta(days=1))
_TOKENS = Tokens(_RING, "fuzz", "fuzz")
_json = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=10),
        st.sampled_from(
            [1e400, -1e400, 10**400, "RS256", "fuzz", "access", time.time() + 600, str(time.time() + 600)]
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=4,
)
_headers = st.dictionaries(
    st.sampled_from(["alg", "kid", "typ", "jku", "jwk", "x5c", "x5u", "crit", "b64", "zip", "cty"]),
    st.one_of(
        _json,
        st.sampled_from(
            ["RS256", "none", "None", "HS256", "RS512", "PS256", "ES256", "@KID", ["b64"], "../../etc", False]
        ),
    ),
    max_size=4,
)
_claims = st.dictionaries(
    st.sampled_from(["sub", "jti", "typ", "iat", "exp", "nbf", "iss", "aud", "family", "role", "extra"]),
    _json,
    max_size=4,
)
_signed_by = st.sampled_from(["us", "a stranger", "no key", "our public key as a secret", "something"])
_raw = st.one_of(
    st.binary(max_size=80).map(lambda data: data.decode("latin-1")),
    st.lists(st.binary(max_size=40).map(lambda data: _base64(data)), min_size=1, max_size=5).map(".".join),
    st.text(max_size=40),
    st.sampled_from(["", ".", "..", "...", "a" * 9000, "e30.e30.", "bnVsbA.bnVsbA.bnVsbA", "W10.W10.W10"]),
)
_edits = st.lists(
    st.tuples(st.integers(0, 800), st.binary(max_size=3), st.integers(0, 3)), min_size=1, max_size=3
)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _good() -> dict[str, Any]:
    now = time.time()
    return {
        "sub": "ann",
        "jti": "1",
        "typ": "access",
        "iat": now,
        "exp": now + 600,
        "iss": "fuzz",
        "aud": "fuzz",
    }


def _made(case: tuple[dict[str, Any], dict[str, Any], str]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return a token with these headers and claims instead of valid ones, by some signer."""
    changes, claims, by = case
    kid = _RING.signer.kid
    header = {
        "alg": "RS256",
        "kid": kid,
        **{name: kid if value == "@KID" else value for name, value in changes.items()},
    }
    payload = {**_good(), **claims}
    signed = f"{_base64(json.dumps(header).encode())}.{_base64(json.dumps(payload).encode())}"
    if by == "no key":
        signature = b""
    elif by == "something":
        signature = b"x" * 256
    elif by == "our public key as a secret":
        signature = hmac.new(_RING.signer.public["n"].encode(), signed.encode(), hashlib.sha256).digest()
    else:
        ring = _RING if by == "us" else _STRANGERS
        signature = _rsa(ring, signed.encode())
    return f"{signed}.{_base64(signature)}", header, payload


def _rsa(ring: KeyRing, data: bytes) -> bytes:
    return ring.signer._private.sign(data, padding.PKCS1v15(), hashes.SHA256())


def _verifies_or_not(case: tuple[dict[str, Any], dict[str, Any], str]) -> None:
    token, header, payload = _made(case)
    try:
        claims = _TOKENS.verify(token, kind="access")
    except InvalidToken:
        return
    assert case[2] == "us", "only we can sign"
    assert header["alg"] == "RS256"
    assert header["kid"] == _RING.signer.kid
    assert payload["iss"] == "fuzz"
    assert payload["aud"] == "fuzz" or "fuzz" in payload["aud"]
    assert claims.kind == "access"
    assert claims.exp > time.time() - 60
    assert isinstance(claims.sub, str)
    assert isinstance(claims.jti, str)


def _is_no_token(case: str) -> None:
    for kind in ("access", "refresh"):
        try:
            _TOKENS.verify(case, kind=kind)
        except InvalidToken as refused:
            assert len(str(refused)) < 10_000
        else:
            raise AssertionError("it was taken")


def _altered(token: str, edits: list[tuple[int, bytes, int]]) -> str:
    for at, more, dropped in edits:
        place = at % (len(token) + 1)
        token = token[:place] + more.decode("latin-1") + token[place + dropped :]
    return token


def _says_the_same(token: str, original: str) -> bool:
    """Whether a token differs in nothing that is signed: base64 has unused bits."""
    return token.strip().rpartition(".")[0] == original.rpartition(".")[0]


def _alterations(case: list[tuple[int, bytes, int]]) -> None:
    now = time.time()
    original = _TOKENS.sign(Claims("ann", "1", "access", now, now + 600))
    token = _altered(original, case)
    if not _says_the_same(token, original):
        _is_no_token(token)


class _Service:
    def __init__(self, services: Services) -> None:
        self._services = services

    @cached_property
    def _ann(self) -> Person:
        """A signed-in user."""
        return newcomer(self._services.identity)

    @property
    def _client(self) -> httpx.Client:
        return self._services.identity.client

    def _send(self, **more: Any) -> list[httpx.Response]:
        """Ask for what is the bearer's, and for a new token."""
        return [
            self._client.get("/auth/sessions", **more),
            self._client.get(f"/api/profiles/{self._ann.id}", **more),
            self._client.get("/admin/redis", **more),
        ]

    def bearer(self, case: bytes) -> None:
        """Any bytes that HTTP can carry, as an Authorization header."""
        kept = bytes(byte for byte in case if byte >= 0x20 and byte != 0x7F).strip()
        for answer in self._send(headers={b"authorization": kept}):
            _refused(answer)

    def forged(self, case: tuple[dict[str, Any], dict[str, Any], str]) -> None:
        """A well-made token of another issuer, which may name the service's own key."""
        kid = self._client.get("/.well-known/jwks.json").json()["keys"][0]["kid"]
        changes = {name: kid if value == "@KID" else value for name, value in case[0].items()}
        token, _, _ = _made(
            ({"kid": kid, **changes}, {"iss": "ephemera-identity", "aud": "ephemera", **case[1]}, case[2])
        )
        if len(token) < 16_000:
            for answer in self._send(headers={"authorization": f"Bearer {token}"}):
                _refused(answer)
        _refused(self._client.post("/auth/refresh", json={"refresh_token": token}))

    def altered(self, case: tuple[str, list[tuple[int, bytes, int]]]) -> None:
        """A real token, altered, or of the other kind."""
        original = self._ann.tokens[case[0]]
        token = _altered(original, case[1])
        if _says_the_same(token, original):
            return
        kept = bytes(byte for byte in token.encode("latin-1") if byte >= 0x20 and byte != 0x7F)
        # A header takes no control characters, and without them the token may be whole again.
        if not _says_the_same(kept.decode("latin-1"), original):
            for answer in self._send(headers={b"authorization": b"Bearer " + kept}):
                _refused(answer)
        _refused(self._client.post("/auth/refresh", json={"refresh_token": token}))

    def bodies(self, case: tuple[str, Any]) -> None:
        """Send anything as a refresh token or as credentials."""
        path, body = case
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = self._client.post(path, content=content, headers={"content-type": "application/json"})
        _refused(answer)


def _refused(answer: httpx.Response) -> None:
    assert answer.status_code in (400, 401, 403, 404, 422), (answer.status_code, answer.text[:300])
    assert answer.headers["content-type"] == "application/problem+json", answer.headers


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[list[Trial]]:
    with Services(folder) as services:
        service = _Service(services)
        made = st.tuples(_headers, _claims, _signed_by)
        yield [
            Trial(
                "made up",
                "A token verifies only when our key signed it with RS256, for us, of this kind, alive.",
                made,
                _verifies_or_not,
            ),
            Trial("no token", "Any text is refused as InvalidToken and nothing else.", _raw, _is_no_token),
            Trial("altered", "A token that was altered does not verify.", _edits, _alterations),
            Trial(
                "bearer",
                "The identity service answers anything in place of a bearer's token with 401, as a "
                "problem document.",
                st.one_of(
                    st.binary(max_size=60),
                    st.binary(max_size=60).map(lambda data: b"Bearer " + data),
                    _raw.map(lambda text: b"bearer " + text.encode("utf-8", "replace")),
                ),
                service.bearer,
                batch=30,
                needs_services=True,
            ),
            Trial(
                "forged",
                "No key but the service's own opens it, whatever the token's header names.",
                st.tuples(_headers, _claims, st.sampled_from(["a stranger", "no key", "something", "us"])),
                service.forged,
                batch=20,
                needs_services=True,
            ),
            Trial(
                "altered at the service",
                "An altered access or refresh token opens nothing there.",
                st.tuples(st.sampled_from(["access_token", "refresh_token"]), _edits),
                service.altered,
                batch=20,
                needs_services=True,
            ),
            Trial(
                "bodies",
                "Whatever is posted to sign in or to refresh is refused, never a server error.",
                st.tuples(
                    st.sampled_from(["/auth/refresh", "/auth/login"]),
                    st.one_of(
                        st.binary(max_size=60),
                        _json,
                        st.dictionaries(st.sampled_from(["refresh_token", "email", "password"]), _json),
                    ),
                ),
                service.bodies,
                batch=30,
                needs_services=True,
            ),
        ]


TOKENS = Area("tokens", _opened)
