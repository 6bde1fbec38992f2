"""Fixtures of the wire's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.wire.clients import single
from tests.wire.unhandled import no_unhandled_errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ephemera.embedded import Valkey
    from ephemera.wire.client import Single

__all__ = ["no_unhandled_errors"]


@pytest.fixture
async def client(server: Valkey) -> AsyncIterator[Single]:
    """A client of the shared server."""
    async with single(server.url) as connected:
        yield connected
