"""`ephemera dashboard`: a Grafana dashboard for a catalogue."""

import typer

from ephemera.cli._command import CatalogueArgument, Command
from ephemera.operations.metrics import dashboard_json


def dashboard(name: CatalogueArgument) -> None:
    """Print a Grafana dashboard for a service's metrics, as JSON for import.

    It has rows for what the catalogue declares. Choose the Prometheus data source and the scrape job at the
    top.
    """
    typer.echo(dashboard_json(name))


COMMAND = Command(
    "dashboard",
    dashboard,
    examples=(
        ("for your own service", "myservice.keys:catalogue > dashboard.json"),
        ("for a registered catalogue", "identity > dashboard.json"),
    ),
)
