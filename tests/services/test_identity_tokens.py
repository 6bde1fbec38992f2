"""Tokens that were made up, altered, mixed up or taken from elsewhere open nothing."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from tests.services.identity_users import Person, newcomer
from tests.services.services import Served


@pytest.fixture(scope="module")
def ann(identity: Served) -> Person:
    """A signed-in user."""
    return newcomer(identity)


def status(served: Served, token: str | bytes, path: str = "/auth/sessions") -> int:
    """What a token gets."""
    bearer = token if isinstance(token, bytes) else token.encode("latin-1", "replace")
    answer = served.client.get(path, headers={b"authorization": (b"Bearer " + bearer).strip()})
    assert answer.headers["content-type"].endswith("json")
    return answer.status_code


def test_every_made_up_token_is_refused(identity: Served, ann: Person) -> None:
    """No algorithm, another one, another key, another kind, issuer or audience, expired: 401."""
    token = ann.tokens["access_token"]
    head, body, signature = token.split(".")
    header, claims = _decoded(head), _decoded(body)
    public = identity.client.get("/.well-known/jwks.json").json()["keys"][0]
    ours = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    kid = {"kid": header["kid"]}
    forged = {
        "none": f"{_encoded({**header, 'alg': 'none'})}.{body}.",
        "none, with a signature": f"{_encoded({**header, 'alg': 'None'})}.{body}.{signature}",
        "public key as a secret": jwt.encode(claims, public["n"], "HS256", headers=kid),
        "a key of one's own": jwt.encode(claims, ours, "RS256", headers=kid),
        "an unknown key": jwt.encode(claims, ours, "RS256", headers={"kid": "mine"}),
        "a key in the header": jwt.encode(
            claims, ours, "RS256", headers={"jwk": {"kty": "RSA", "n": "AQAB", "e": "AQAB"}}
        ),
        "another role": f"{head}.{_encoded({**claims, 'role': 'admin'})}.{signature}",
        "later end": f"{head}.{_encoded({**claims, 'exp': time.time() + 9e9})}.{signature}",
        "the refresh token": ann.tokens["refresh_token"],
        "a part": token[:-10],
        "nothing": "",
        "long": token + "x" * 20_000,
    }
    assert {name: status(identity, each) for name, each in forged.items()} == dict.fromkeys(forged, 401)
    assert status(identity, token) == 200
    access = {"refresh_token": token}
    assert identity.client.post("/auth/refresh", json=access).status_code == 401


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=some.data())
def test_whatever_is_sent_as_a_token_is_refused_politely(identity: Served, ann: Person, data: Any) -> None:
    """Random bytes, random texts in three parts, and altered tokens get 401 and a problem document."""
    token = ann.tokens["access_token"].encode()
    kind = data.draw(some.sampled_from(["bytes", "parts", "altered"]))
    if kind == "bytes":
        made = data.draw(
            some.binary(max_size=300).map(lambda raw: bytes(b for b in raw if b >= 0x20 and b != 0x7F))
        )
    elif kind == "parts":
        part = some.binary(max_size=60).map(lambda raw: base64.urlsafe_b64encode(raw).rstrip(b"="))
        made = b".".join(data.draw(some.lists(part, min_size=1, max_size=5)))
    else:
        at = data.draw(some.integers(0, len(token) - 1))
        made = (
            token[:at] + data.draw(some.sampled_from(b"Aa0_-.").map(lambda b: bytes([b]))) + token[at + 1 :]
        )
    last = token.rpartition(b".")[2]
    if made.strip() == token or (made[:-1] == token[:-1] and len(made) == len(token) and last):
        return  # the last character of base64 has unused bits
    assert status(identity, made) == 401


def _decoded(part: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def _encoded(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
