"""URLs in messages."""

from __future__ import annotations

from urllib.parse import urlsplit


def redacted_url(url: str) -> str:
    """Return a URL as it may be shown: without user, password, query and fragment."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
