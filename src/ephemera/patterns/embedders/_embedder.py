"""What an embedder is to those who use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlsplit


class Embedder(Protocol):
    """Makes vectors of texts."""

    @property
    def model(self) -> str:
        """The name of what its vectors depend on; only vectors of one model are compared."""

    async def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """A vector for each text, in their order, all of one length."""


def without_secrets(url: str) -> str:
    """A URL as it may be shown: without user, password and query."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
