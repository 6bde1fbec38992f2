"""The model of the scale: it agrees with what was measured, grows as it says, and gives the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import scale, scale_model
from benchmarks.scale_costs import Cost, Costs
from benchmarks.scale_model import Assumptions, client_at, limits, plan, server_at, spread

COSTS = Costs(
    busy=Cost(client=250, server=30, batch=20),
    usual=Cost(client=300, server=40, batch=2),
    commands=3,
    bytes_in=500,
    bytes_out=500,
    user_bytes=800,
    data_busy=Cost(client=50, server=30, batch=20),
    data_quiet=Cost(client=130, server=75, batch=1),
    read_busy=Cost(client=8, server=3, batch=16),
    read_quiet=Cost(client=25, server=10, batch=1),
    push=Cost(client=7, server=2, batch=1),
    push_bytes=45,
    message=Cost(client=9, server=2, batch=1),
)


def test_the_page_is_made_from_the_figures(tmp_path: Path) -> None:
    """docs/proof/scale.md is what benchmarks/scale.json gives; otherwise: make scale ARGS=--page."""
    scale.write(tmp_path / "scale.md")
    assert scale.PAGE.read_text(encoding="utf-8") == (tmp_path / "scale.md").read_text(encoding="utf-8")
    assert "{{" not in scale.PAGE.read_text(encoding="utf-8")


def test_the_costs_that_were_measured_are_met() -> None:
    """At the measured sizes of a write the fitted cost is the measured one, and in between it falls."""
    for at in (COSTS.data_busy, COSTS.data_quiet):
        assert client_at(COSTS.data_busy, COSTS.data_quiet, at.batch) == pytest.approx(at.client)
        assert server_at(COSTS.data_busy, COSTS.data_quiet, at.batch) == pytest.approx(at.server)
    costs = [server_at(COSTS.data_busy, COSTS.data_quiet, batch) for batch in (1, 2, 5, 20)]
    assert costs == sorted(costs, reverse=True)


def test_more_masters_share_fewer_writes() -> None:
    """Commands to one master share a write; spread over many, each has its own."""
    assert spread(8, 1) == 8
    assert spread(8, 6) == pytest.approx(8 / (6 * (1 - (5 / 6) ** 8)))
    assert spread(8, 100_000) == pytest.approx(1, abs=0.001)
    assert spread(1, 6) == 1


def test_machines_grow_with_the_rate_and_announcements_with_its_square() -> None:
    """Ten times the requests need ten times the machines, and a hundred times the announcements."""
    small, large = plan(100_000, COSTS), plan(1_000_000, COSTS)
    assert large.processes == pytest.approx(10 * small.processes, rel=0.2)
    assert large.memory == pytest.approx(10 * small.memory)
    assert large.network == pytest.approx(10 * small.network)
    assert large.announce_use == pytest.approx(100 * small.announce_use, rel=0.2)
    assert large.local_use < large.hot_use


def test_a_plan_stays_within_its_budgets() -> None:
    """No process, master, memory or network is used for more than was assumed."""
    given = Assumptions()
    for rate in scale_model.RATES:
        at = plan(rate, COSTS)
        assert rate * at.process_cost / 1e6 <= at.processes * given.process_use
        assert rate * at.server_cost / 1e6 <= at.masters * given.master_use
        assert at.memory <= at.masters * given.master_memory
        assert at.network <= at.masters * given.network


def test_each_limit_is_the_rate_of_a_full_resource() -> None:
    """One process is full at its rate; a cheaper one is full later; the list begins with the first."""
    found = limits(COSTS)
    assert [limit.rate for limit in found] == sorted(limit.rate for limit in found)
    process = next(limit for limit in found if limit.name == "one web process")
    assert plan(process.rate * 0.99, COSTS).processes == 1
    assert plan(process.rate * 1.01, COSTS).processes == 2
    cheaper = replace(COSTS, usual=replace(COSTS.usual, client=150))
    assert next(each for each in limits(cheaper) if each.name == process.name).rate > 1.9 * process.rate
