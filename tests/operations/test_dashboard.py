"""The dashboard: valid for Grafana, limited to the catalogue, with metrics that a scrape contains."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from ephemera import Catalogue, fixed
from ephemera.cli import create_app
from ephemera.embedded import Postgres, Valkey
from ephemera.errors import InvalidValue
from ephemera.operations.metrics import METRICS, dashboard, dashboard_json, dashboard_sections
from ephemera.operations.metrics import _families as f
from ephemera.operations.metrics._dashboard_panels import PANELS, level
from ephemera.web import MetricsEndpoint
from tests.operations.metrics_fixtures import catalogue, parsed, service

_METRIC = re.compile(r"ephemera_[a-z_]+")
_BY = re.compile(r"by \(([^)]*)\) \(+(?:rate\()?(ephemera_[a-z_]+)")


def expressions(model: dict[str, Any]) -> list[str]:
    """Every query of a dashboard and its variables."""
    queries = [target["expr"] for panel in model["panels"] for target in panel.get("targets", ())]
    variables = [each["query"] for each in model["templating"]["list"] if each["type"] == "query"]
    return [*queries, *(each["query"] for each in variables)]


@pytest.mark.standalone("Celery's queues cannot be on a cluster")
async def test_every_metric_of_the_dashboard_is_in_a_scrape(
    server: Valkey, postgres: Postgres, key: str
) -> None:
    """In a scrape of a service that used everything, each query finds its metric and labels."""
    async with service(server.url, postgres) as working:
        await working.use_everything(key)
        await working.metrics.sample()
        endpoint: Any = MetricsEndpoint(lambda _: working.metrics)
        transport = httpx.ASGITransport(endpoint)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            shown = parsed((await client.get("/metrics")).text)
    labels_of: dict[str, set[str]] = {}
    for name, *labels in shown:
        labels_of.setdefault(name, set()).update(label.partition("=")[0] for label in labels)
    asked = expressions(dashboard(catalogue))
    named = {name for expression in asked for name in _METRIC.findall(expression)}
    assert len(named) > 40
    assert named <= labels_of.keys()
    for by, name in (found for expression in asked for found in _BY.findall(expression)):
        assert set(by.split(", ")) <= labels_of[name], name
    assert {metric.name for metric in METRICS if metric.kind != "histogram"} <= labels_of.keys()


def test_every_metric_has_a_panel() -> None:
    """Every metric is on the dashboard, except those that other panels imply."""
    drawn = {
        name for panel in PANELS for query in panel.queries for name in _METRIC.findall(query.expression)
    }
    missing = {m.name for m in METRICS} - drawn - {name.removesuffix("_bucket") for name in drawn}
    assert missing == {
        f.STREAM_CONSUMERS.name,
        f.PLANNER_MISSED.name,
        f.PLANNER_DURATION.name,
        f.PLANNER_LAST.name,
        f.SERVER_UPTIME.name,
    }


def test_a_dashboard_has_rows_for_what_is_declared_and_no_others() -> None:
    """A catalogue of one keyspace has no row for locks or jobs; one that declares everything has all rows."""
    small = Catalogue("small")
    small.value("greeting:{name}", str, lifetime=fixed(hours=1), purpose="What to say")
    rows = [panel["title"] for panel in dashboard(small)["panels"] if panel["type"] == "row"]
    assert rows == ["Keyspaces", "Connections", "Servers", "Samples"]
    assert dashboard_sections(catalogue) == {panel.section for panel in PANELS}


def test_panels_do_not_overlap_and_queries_are_balanced() -> None:
    """Ids are unique, panels do not overlap, and brackets in expressions match."""
    model = json.loads(dashboard_json(catalogue))
    places = [panel["gridPos"] for panel in model["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in model["panels"]}) == len(places)
    for expression in expressions(model):
        for left, right in ("()", "{}", "[]"):
            assert expression.count(left) == expression.count(right), expression
    assert model["uid"] == "ephemera-measured"
    spaces = next(each for each in model["templating"]["list"] if each["name"] == "keyspace")
    assert [option["value"] for option in spaces["options"]] == [space.pattern for space in catalogue]


def test_the_command_prints_what_grafana_imports() -> None:
    """`ephemera dashboard NAME` prints the JSON of that catalogue and nothing else."""
    done = CliRunner().invoke(create_app(), ["dashboard", "tests.operations.metrics_fixtures:catalogue"])
    assert done.exit_code == 0
    assert json.loads(done.stdout) == dashboard(catalogue)


def test_a_label_that_a_metric_does_not_have_is_refused() -> None:
    """A panel cannot group by a label that its metric does not have."""
    with pytest.raises(InvalidValue, match="labels among server"):
        level(f.CONNECTION_UP, "keyspace")
