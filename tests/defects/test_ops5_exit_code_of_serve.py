"""OPS5: `serve` ended by signal after an orderly SIGTERM, although its help lists the codes 0, 1 and 2."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from ephemera.embedded import Postgres, Valkey
from tests.services.services import serving


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ops5_an_orderly_stop_is_success(
    server: Valkey, postgres: Postgres, tmp_path: Path, number: signal.Signals
) -> None:
    """A service that was asked to stop, and did, exits with 0."""
    variables = {"EPHEMERA_URL": server.url, "EPHEMERA_DATABASE_URL": postgres.database("ops5")}
    with serving("identity", tmp_path, **variables) as served:
        assert served.client.get("/healthz").status_code == 200
        served.process.send_signal(number)
        assert served.process.wait(60) == 0
