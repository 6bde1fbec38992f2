"""The timeouts of clients in tests.

Most tests are not about time, and on a busy machine a server may be off its core for longer than a service
should wait for it, so tests use longer timeouts. Tests of timeouts (tests/chaos) use the defaults.

Programs in the package `tests` get the longer timeouts by importing it; services and workers get them in
their URLs.
"""

from __future__ import annotations

from ephemera.wire import _url as url

DEFAULTS = (url.TIMEOUT, url.CONNECT_TIMEOUT)
"""The timeouts of a service whose URL names none, in seconds: for replies, and for connecting."""

_SECONDS, _CONNECT_SECONDS = 2.0, 10.0


def with_long_timeouts(server_url: str) -> str:
    """A server's URL with the longer timeouts, unless it names some."""
    if "timeout=" in server_url:
        return server_url
    separator = "&" if "?" in server_url else "?"
    return f"{server_url}{separator}timeout={_SECONDS:g}&connect_timeout={_CONNECT_SECONDS:g}"


def use_long_timeouts() -> None:
    """Give the clients of this process the longer timeouts."""
    url.TIMEOUT, url.CONNECT_TIMEOUT = _SECONDS, _CONNECT_SECONDS
