"""Fixtures of the wire's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ephemera.embedded import Valkey
from ephemera.wire import NodeClient
from tests.wire.clients import node_client
from tests.wire.unhandled_errors import no_unhandled_errors

__all__ = ["no_unhandled_errors"]


@pytest.fixture
async def client(server: Valkey) -> AsyncIterator[NodeClient]:
    """A client of the shared server."""
    async with node_client(server.url) as connected:
        yield connected
