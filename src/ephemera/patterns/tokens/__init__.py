"""Signed tokens (JWT, RS256) with key rotation; `revocation` revokes them by the ids they carry.

    ring = KeyRing.generate(overlap=timedelta(days=8))
    tokens = Tokens(ring, issuer="https://id.example", audience="api")
    text = tokens.sign(Claims(sub="u1", jti=new_id(), kind="access", iat=now, exp=now + 900))
    claims = tokens.verify(text, kind="access")             # InvalidToken has the reason
    ring.rotate(ahead=timedelta(minutes=10))                # and publish ring.jwks() as before

Needs the extra `tokens` (PyJWT and cryptography). Nothing here touches Redis.

*Validation.* RS256 is the only algorithm, whatever a token's header asks for. Issuer, audience, expiry,
`iat`, id and kind are required and checked. The key is chosen by `kid` alone, and an unknown one is refused.
Invalid input raises `InvalidToken`, never another exception.

*Rotation.* A new key is published at once and signs `ahead` later, when other services have fetched the key
set. The key before it keeps verifying for `overlap`, which must be longer than the longest lifetime of a
token.

*Secrets.* A private key appears in no repr, no error and no pickle; only `SigningKey.pem` reveals it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn

import msgspec

from ephemera.errors import InvalidToken, MissingExtra
from ephemera.keyspace import check_durations

try:
    import jwt
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from jwt.algorithms import RSAAlgorithm
except ModuleNotFoundError as missing:
    _package = str(missing.name).partition(".")[0]
    raise MissingExtra(f"tokens need {_package}", "tokens", missing.name) from None


__all__ = ["Claims", "KeyRing", "SigningKey", "Tokens"]

_ALGORITHM = "RS256"
_MAX_TOKEN_LENGTH = 8192  # characters
_REQUIRED = ["aud", "exp", "iat", "iss", "jti", "sub", "typ"]
_STANDARD = ("exp", "family", "iat", "jti", "sub", "typ")
_BITS = 2048
_FOREVER = float("inf")


class Claims(msgspec.Struct, frozen=True):
    """The claims of a token: its user, id, kind, and when it was issued and expires (seconds since 1970)."""

    sub: str
    jti: str
    kind: str
    iat: float
    exp: float
    family: str | None = None
    extra: dict[str, Any] = {}


class SigningKey:
    """A private key, named by the thumbprint of its public half (RFC 7638).

    `signs_from` is when it begins to sign, and `verifies_until` when its signatures are no longer accepted.
    """

    __slots__ = ("_private", "kid", "public", "signs_from", "verifies_until")

    def __init__(
        self, private: rsa.RSAPrivateKey, *, signs_from: float = 0.0, verifies_until: float = _FOREVER
    ) -> None:
        self._private = private
        self.public = _jwk(private.public_key())
        self.kid: str = self.public["kid"]
        self.signs_from = signs_from
        self.verifies_until = verifies_until

    @classmethod
    def from_pem(
        cls,
        pem: bytes,
        *,
        password: bytes | None = None,
        signs_from: float = 0.0,
        verifies_until: float = _FOREVER,
    ) -> SigningKey:
        """Load a key that `pem` returned.

        Args:
            pem: The key.
            password: What decrypts it; by default it is not encrypted.
            signs_from: When it begins to sign, in seconds since 1970.
            verifies_until: Until when its tokens are accepted, in seconds since 1970.

        """
        private = serialization.load_pem_private_key(pem, password)
        if not isinstance(private, rsa.RSAPrivateKey):
            raise TypeError("RS256 takes an RSA key")
        return cls(private, signs_from=signs_from, verifies_until=verifies_until)

    def pem(self, *, password: bytes | None = None) -> bytes:
        """Return the private key; store it as a secret.

        `password` encrypts it.
        """
        encryption = (
            serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        )
        return self._private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        )

    def sign(self, payload: dict[str, Any]) -> str:
        """Sign a payload."""
        return jwt.encode(payload, self._private, _ALGORITHM, headers={"kid": self.kid})

    def __repr__(self) -> str:
        return f"<SigningKey {self.kid}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key cannot be pickled; use pem() to export it")


@dataclass(repr=False)
class KeyRing:
    """The keys of an issuer, newest last; a key verifies for `overlap` after it has stopped signing."""

    keys: list[SigningKey]
    overlap: timedelta

    def __post_init__(self) -> None:
        check_durations("KeyRing", overlap=self.overlap)

    @classmethod
    def generate(cls, *, overlap: timedelta) -> KeyRing:
        """Create a ring with one new key, which takes some milliseconds.

        `overlap` is how long a key that was replaced still verifies.
        """
        return cls([SigningKey(_new_key())], overlap)

    def rotate(self, *, ahead: timedelta = timedelta(0)) -> SigningKey:
        """Add a key that signs after `ahead`, and remove keys that no longer verify anything."""
        check_durations("KeyRing.rotate", ahead=ahead)
        now = time.time()
        fresh = SigningKey(_new_key(), signs_from=now + ahead.total_seconds())
        for key in self.keys:
            key.verifies_until = min(key.verifies_until, fresh.signs_from + self.overlap.total_seconds())
        self.keys = [key for key in self.keys if key.verifies_until > now] + [fresh]
        return fresh

    @property
    def signer(self) -> SigningKey:
        """The newest key that may sign."""
        now = time.time()
        return [key for key in self.keys if key.signs_from <= now][-1]

    def jwks(self) -> dict[str, Any]:
        """The public keys that verify now or soon, as `/.well-known/jwks.json` serves them."""
        now = time.time()
        return {"keys": [key.public for key in self.keys if key.verifies_until > now]}

    def __repr__(self) -> str:
        return f"<KeyRing {', '.join(key.kid for key in self.keys)}>"


@dataclass
class Tokens:
    """Signs and verifies the tokens of one issuer.

    Args:
        keys: A `KeyRing`; with a key set (JWKS) instead it only verifies.
        issuer: The claim `iss`, which is required.
        audience: The claim `aud`, which is required.
        leeway: By how much clocks may differ, 5 seconds by default; `Revocation(leeway=...)` must not be
            shorter.

    """

    keys: KeyRing | Mapping[str, Any]
    issuer: str
    audience: str
    leeway: timedelta = timedelta(seconds=5)
    """By how much clocks may differ; `Revocation(leeway=...)` must not be shorter."""
    _parsed: dict[str, rsa.RSAPublicKey] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_durations("Tokens", leeway=self.leeway)

    def sign(self, claims: Claims) -> str:
        """Sign a token with these claims."""
        if not isinstance(self.keys, KeyRing):
            raise TypeError("tokens can only be verified here: there is no private key")
        payload = {**claims.extra, **msgspec.structs.asdict(claims), "iss": self.issuer, "aud": self.audience}
        del payload["extra"]
        payload["typ"] = payload.pop("kind")
        return self.keys.signer.sign({name: value for name, value in payload.items() if value is not None})

    def verify(self, token: str, *, kind: str) -> Claims:
        """Verify a token of this kind and return its claims; raise `InvalidToken` otherwise."""
        if len(token) > _MAX_TOKEN_LENGTH:
            raise InvalidToken(f"longer than {_MAX_TOKEN_LENGTH} characters")
        try:
            payload = jwt.decode(
                token,
                self._key(jwt.get_unverified_header(token).get("kid")),
                algorithms=[_ALGORITHM],
                audience=self.audience,
                issuer=self.issuer,
                leeway=self.leeway,
                options={"require": _REQUIRED},
            )
            known = {name: payload.pop(name) for name in _STANDARD if name in payload}
            extra = {name: claim for name, claim in payload.items() if name not in ("aud", "iss")}
            claims = msgspec.convert({**known, "kind": known["typ"], "extra": extra}, Claims)
        except (jwt.PyJWTError, msgspec.ValidationError, ValueError, TypeError, RecursionError) as problem:
            raise InvalidToken(str(problem) or type(problem).__name__) from None
        if claims.kind != kind:
            raise InvalidToken(f"it is of kind {claims.kind!r}, not {kind!r}")
        return claims

    def _key(self, kid: object) -> rsa.RSAPublicKey:
        """Find the public key of this name."""
        keys = self.keys.jwks() if isinstance(self.keys, KeyRing) else self.keys
        for jwk in keys["keys"]:
            if isinstance(kid, str) and jwk.get("kid") == kid and jwk.get("alg", _ALGORITHM) == _ALGORITHM:
                if kid not in self._parsed:
                    self._parsed[kid] = _public(jwk)
                return self._parsed[kid]
        raise InvalidToken("it names an unknown key")


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=_BITS)


def _public(jwk: Mapping[str, Any]) -> rsa.RSAPublicKey:
    key = RSAAlgorithm.from_jwk(dict(jwk))
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size < _BITS:
        raise InvalidToken(f"its key is not a public RSA key of {_BITS} bits or more")
    return key


def _jwk(public: rsa.RSAPublicKey) -> dict[str, Any]:
    numbers = public.public_numbers()
    members = {"e": _base64(numbers.e), "kty": "RSA", "n": _base64(numbers.n)}
    canonical = json.dumps(members, separators=(",", ":"), sort_keys=True).encode()
    thumbprint = base64.urlsafe_b64encode(hashlib.sha256(canonical).digest()).rstrip(b"=").decode()
    return {**members, "kid": thumbprint, "alg": _ALGORITHM, "use": "sig"}


def _base64(number: int) -> str:
    data = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
