"""OPS4: the dashboard added up the age of samples over all processes, so ten healthy ones looked stale."""

from __future__ import annotations

import json

from ephemera.cli import load_catalogue
from tests.cli.commands import ephemera


def test_ops4_the_age_of_samples_is_that_of_the_worst_process() -> None:
    """Ages are compared, not added: the panel shows the highest."""
    assert load_catalogue("identity")
    dashboard = json.loads(ephemera("dashboard", "identity").out)
    ages = [
        target["expr"]
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
        if "sample_age_seconds" in target["expr"]
    ]
    assert ages
    assert [each for each in ages if not each.startswith("max by")] == []
