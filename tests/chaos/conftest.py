"""Fixtures of the chaos tests: servers of their own, which they may stop, kill and restart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.wire import _url as url
from tests.timeouts import DEFAULTS
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors"]


@pytest.fixture(autouse=True)
def production_timeouts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients give up a server that does not answer as early as in a service, not as late as in other tests.

    Except where a test is marked `patient`: it is about something else, and allows no call to fail.
    """
    if request.node.get_closest_marker("patient") is None:
        monkeypatch.setattr(url, "TIMEOUT", DEFAULTS[0])


@pytest.fixture
def victim() -> Iterator[Valkey]:
    """A server for one test alone."""
    with embedded.valkey() as running:
        yield running
        running.resume()
