"""The checkpointer that LangGraph's conformance tests take as a fixture: its own in memory, or ours."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from ephemera import Catalogue, connect, fixed
from ephemera.adapters.langgraph import GraphCheckpoints

CATALOGUE = Catalogue("certified")
THREADS = GraphCheckpoints(CATALOGUE, "graph:{thread_id}", lifetime=fixed(hours=1))


@pytest.fixture
async def saver(request: pytest.FixtureRequest) -> AsyncIterator[BaseCheckpointSaver[str]]:
    """A checkpointer."""
    if not request.config.pluginmanager.has_plugin("certified_langgraph"):
        yield InMemorySaver()
        return
    async with connect(os.environ["CERTIFIED_URL"], CATALOGUE) as store:
        yield store[THREADS]
