"""Rolling deploys of a service for a while: new and old versions replace each other under load."""

from __future__ import annotations

import os

import pytest

from ephemera.embedded import Postgres, Valkey
from tests.defects.test_core18_rolling_deploy import roll


@pytest.mark.patient
@pytest.mark.standalone("its processes connect to one server")
async def test_many_rolling_deploys_lose_nothing(server: Valkey, postgres: Postgres) -> None:
    """Deploys forth and back, with more load in between, lose no session, preference, event or job."""
    deploys = 10 if os.environ.get("EPHEMERA_CAMPAIGN") == "full" else 2
    await roll(server, postgres.database("rolling_deploys"), ["new", "old"] * deploys, rounds=10)
