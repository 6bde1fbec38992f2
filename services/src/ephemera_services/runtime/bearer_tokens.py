"""Static bearer tokens from a setting, for clients that are programs: a scraper, other services."""

from __future__ import annotations

import hashlib
import hmac

from ephemera_services.runtime.settings import InvalidSettings, Secret

_MIN_LENGTH = 16  # characters


class BearerTokens:
    """The tokens of a setting: one, or several with commas while one replaces another."""

    def __init__(self, variable: str, tokens: Secret) -> None:
        texts = [text.strip() for text in tokens.reveal().split(",")]
        shortest = min(map(len, texts))
        if shortest < _MIN_LENGTH:
            problem = f"it has {shortest} characters; use at least {_MIN_LENGTH} random ones"
            raise InvalidSettings([f"{variable}: {problem}"])
        self._digests = [_digest(text) for text in texts]

    def accepts(self, token: str) -> bool:
        """Whether it is one of the tokens, in constant time."""
        # Digests have a fixed length, so that not even the token's length can be measured.
        sent = _digest(token)
        return sum(hmac.compare_digest(sent, digest) for digest in self._digests) > 0

    def accepts_header(self, authorization: str) -> bool:
        """Whether an `Authorization` header has one of the tokens."""
        scheme, _, token = authorization.partition(" ")
        return scheme.lower() == "bearer" and self.accepts(token.strip())


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
