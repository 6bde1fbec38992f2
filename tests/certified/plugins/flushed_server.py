"""A pytest plugin: the server is empty when a test begins."""

from __future__ import annotations

import os

import pytest
import redis


@pytest.fixture(autouse=True)
def flushed_server() -> None:
    """Remove what the test before it has left."""
    redis.Redis(port=int(os.environ["CERTIFIED_PORT"])).flushall()
