"""USE4: at 80 columns the histogram of an audit wrapped: keys without a TTL seemed to end within a minute."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ephemera import embedded
from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue, fixed, permanent
from ephemera.operations.audit import NO_TTL, TTL_BUCKETS
from tests.cli.commands import ephemera

catalogue = Catalogue("wide")
KEPT = catalogue.counter(
    "organization:{organization_id}:department:{department_id}:employee:{employee_id}:holidays",
    lifetime=permanent(reason="x"),
    purpose="x",
)
SHORT = catalogue.value("price:{product_id}", str, lifetime=fixed(seconds=59), purpose="x")


@pytest.fixture(scope="module")
def wide() -> Iterator[Valkey]:
    """A server with long and short names, with and without a TTL, declared and undeclared."""
    with embedded.valkey() as server:
        for number in range(1234):
            server.ask("SET", f"organization:7:department:{number}:employee:{number}:holidays", 1)
            server.ask("SET", f"price:{number}", "1", "EX", 59)
            server.ask("SET", f"undeclared-keys-of-another-service:{number}:with-a-long-name", 1)
        yield server


@pytest.mark.parametrize("width", [80, 120])
def test_use4_figures_are_never_broken(wide: Valkey, width: int) -> None:
    """Whatever the names, each histogram, count and policy is whole, on lines that fit the terminal."""
    words = ("audit", "--url", wide.url, "--catalogue", f"{__name__}:catalogue")
    shown = ephemera(*words, env={"COLUMNS": str(width)}).out
    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    assert TTL_BUCKETS[-1] == NO_TTL
    histograms = {"│ █        │", "│        █ │"}
    assert {whole for whole in histograms if whole[1:] in shown} == histograms
    assert shown.count(" 1,234 │") == 3
    assert any("noeviction" in line and "│ off │" in line for line in lines)
