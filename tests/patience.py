"""How long tests wait for a server.

Few of them are about time, and on a machine with too much to do a server may be off its core for longer than
a service should wait for it. Those that are (tests/chaos) wait as long as a service does.

Programs of tests that a test starts are patient because the package `tests` is; services and workers, which
know nothing of tests, by their URLs.
"""

from __future__ import annotations

from ephemera.wire import _url as url

AS_DELIVERED = (url.TIMEOUT, url.CONNECT_TIMEOUT)
"""What a service has whose URL says nothing else."""


_SECONDS, _CONNECT_SECONDS = 2.0, 10.0


def patient(server_url: str) -> str:
    """The URL of a server for a program that is to wait longer than a service would, unless it says."""
    if "timeout=" in server_url:
        return server_url
    mark = "&" if "?" in server_url else "?"
    return f"{server_url}{mark}timeout={_SECONDS:g}&connect_timeout={_CONNECT_SECONDS:g}"


def be_patient() -> None:
    """Let clients of this process wait longer than a service would."""
    url.TIMEOUT, url.CONNECT_TIMEOUT = _SECONDS, _CONNECT_SECONDS
