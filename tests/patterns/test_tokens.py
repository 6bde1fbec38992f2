"""Signed tokens: verification, key rotation, and secrets that stay secret."""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemera.errors import InvalidToken
from ephemera.patterns.tokens import Claims, KeyRing, SigningKey, Tokens

RING = KeyRing.generate(overlap=timedelta(days=8))
TOKENS = Tokens(RING, issuer="https://id.example", audience="api")
PEM = RING.signer.pem()


def claims(**changes: Any) -> Claims:
    """Claims that are valid now, with some changes."""
    now = time.time()
    usual = {"sub": "u1", "jti": "t1", "kind": "access", "iat": now, "exp": now + 900}
    return Claims(**{**usual, **changes})


def test_a_signed_token_verifies() -> None:
    """All claims are returned, including fractions of seconds and extra claims."""
    said = claims(family="f1", extra={"scope": ["read"], "n": 1})
    assert TOKENS.verify(TOKENS.sign(said), kind="access") == said


def test_the_key_set_is_enough_to_verify() -> None:
    """The published keys are enough to verify, and not to sign."""
    elsewhere = Tokens(json.loads(json.dumps(RING.jwks())), issuer="https://id.example", audience="api")
    said = claims()
    assert elsewhere.verify(TOKENS.sign(said), kind="access") == said
    with pytest.raises(TypeError, match="no private key"):
        elsewhere.sign(said)


def _forged(header: dict[str, Any], payload: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(payload).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def _payload(**changes: Any) -> dict[str, Any]:
    now = time.time()
    usual = {"sub": "u1", "jti": "t1", "typ": "access", "iat": now, "exp": now + 900}
    payload = {**usual, "iss": TOKENS.issuer, "aud": TOKENS.audience, **changes}
    return {name: value for name, value in payload.items() if value is not None}


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": time.time() - 60},
        {"iat": time.time() + 3600},
        {"nbf": time.time() + 3600},
        {"iss": "https://elsewhere.example"},
        {"aud": "other"},
        {"typ": "refresh"},
        {"sub": 5},
        *({name: None} for name in ("exp", "iat", "iss", "aud", "sub", "jti", "typ")),
        {"exp": "soon"},
        {"family": ["f"]},
        {"extra": 5},
    ],
)
def test_a_claim_that_is_wrong_or_missing_is_refused(changes: dict[str, Any]) -> None:
    """A token with a valid signature is refused if expired, for others, of another kind or incomplete."""
    token = RING.signer.sign(_payload(**changes))
    if changes == {"extra": 5}:  # a claim like any other
        assert TOKENS.verify(token, kind="access").extra == {"extra": 5}
        return
    with pytest.raises(InvalidToken):
        TOKENS.verify(token, kind="access")


def test_only_the_pinned_algorithm_is_accepted() -> None:
    """No signature, and the public key used as a shared secret, are refused: the two classic forgeries."""
    kid = RING.signer.kid
    public = base64.urlsafe_b64decode(RING.signer.public["n"] + "==")
    forged = [
        _forged({"alg": "none", "kid": kid}, _payload()),
        jwt.encode(_payload(), public, "HS256", headers={"kid": kid}),
        jwt.encode(_payload(), PEM, "RS512", headers={"kid": kid}),
        jwt.encode(_payload(), PEM, "PS256", headers={"kid": kid}),
    ]
    for token in forged:
        with pytest.raises(InvalidToken):
            TOKENS.verify(token, kind="access")


def test_the_key_is_chosen_by_its_name_alone() -> None:
    """A token without a known kid is refused, and a key inside the token is ignored."""
    other = SigningKey.from_pem(KeyRing.generate(overlap=timedelta(1)).signer.pem())
    forged = [
        other.sign(_payload()),
        jwt.encode(_payload(), PEM, "RS256"),
        jwt.encode(_payload(), other.pem(), "RS256", headers={"kid": RING.signer.kid}),
        jwt.encode(_payload(), other.pem(), "RS256", headers={"kid": other.kid, "jwk": other.public}),
    ]
    for token in forged:
        with pytest.raises(InvalidToken):
            TOKENS.verify(token, kind="access")


def test_a_rotation_overlaps() -> None:
    """The new key is published before it signs; the old one keeps verifying for the overlap."""
    ring = KeyRing.generate(overlap=timedelta(days=8))
    tokens = Tokens(ring, issuer="i", audience="a")
    old = ring.signer
    before = tokens.sign(claims())
    new = ring.rotate(ahead=timedelta(minutes=10))
    assert [key["kid"] for key in ring.jwks()["keys"]] == [old.kid, new.kid]
    assert ring.signer is old
    new.signs_from = time.time()
    assert ring.signer is new
    after = tokens.sign(claims())
    assert jwt.get_unverified_header(after)["kid"] == new.kid
    for token in (before, after):
        assert tokens.verify(token, kind="access").sub == "u1"
    old.verifies_until = time.time()
    assert [key["kid"] for key in ring.jwks()["keys"]] == [new.kid]
    with pytest.raises(InvalidToken, match="unknown key"):
        tokens.verify(before, kind="access")
    ring.rotate()
    assert old not in ring.keys


def test_a_key_is_loaded_from_its_pem() -> None:
    """A stored key, with or without a password, has the same name and verifies the same tokens."""
    key = RING.signer
    for password in (None, b"correct horse"):
        assert SigningKey.from_pem(key.pem(password=password), password=password).kid == key.kid
    with pytest.raises(TypeError, match="RSA"):
        SigningKey.from_pem(_elliptic_pem())


def _elliptic_pem() -> bytes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(*form)


def test_a_private_key_shows_nowhere() -> None:
    """Neither a repr nor the key set nor a pickle reveals a private key."""
    secret = f"{RING.signer._private.private_numbers().d}"
    shown = [repr(RING), repr(RING.signer), repr(TOKENS), json.dumps(RING.jwks())]
    assert all(secret[:20] not in text and "PRIVATE" not in text for text in shown)
    assert set(RING.jwks()["keys"][0]) == {"alg", "e", "kid", "kty", "n", "use"}
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(RING)


def test_a_weak_key_in_a_key_set_is_refused() -> None:
    """A key in a foreign key set that is too short is refused."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    weak = SigningKey(rsa.generate_private_key(public_exponent=65537, key_size=1024))
    tokens = Tokens({"keys": [weak.public]}, issuer=TOKENS.issuer, audience=TOKENS.audience)
    with pytest.raises(InvalidToken, match="2048"):
        tokens.verify(_forged({"alg": "RS256", "kid": weak.kid}, _payload(), b"x"), kind="access")


@given(st.text() | st.from_regex(r"[\w-]{0,40}\.[\w-]{0,40}\.[\w-]{0,40}"))
def test_any_text_is_refused_cleanly(text: str) -> None:
    """Any text instead of a token raises InvalidToken and no other error."""
    with pytest.raises(InvalidToken):
        TOKENS.verify(text, kind="access")


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda part: st.lists(part) | st.dictionaries(st.text(), part),
    ),
    st.dictionaries(
        st.sampled_from(["alg", "kid", "typ", "crit", "b64", "zip"]), st.none() | st.text() | st.integers()
    ),
)
def test_any_header_and_payload_are_refused_cleanly(payload: Any, header: dict[str, Any]) -> None:
    """Any structure instead of claims and headers raises InvalidToken."""
    with pytest.raises(InvalidToken):
        TOKENS.verify(
            _forged({"alg": "RS256", "kid": RING.signer.kid, **header}, payload, b"x"), kind="access"
        )


@pytest.mark.parametrize("missing", ["jwt", "cryptography"])
def test_without_its_packages_the_error_names_the_extra(missing: str) -> None:
    """Without its packages, the import error names the extra to install."""
    program = f"import sys; sys.modules[{missing!r}] = None\nimport ephemera.patterns.tokens"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert f"tokens need {missing}: pip install 'ephemera-data[tokens]'" in done.stderr
