"""`ephemera dashboard`: a Grafana dashboard for a catalogue."""

import typer

from ephemera.cli._command import CatalogueArgument, Command
from ephemera.operations.metrics import dashboard_json


def dashboard(name: CatalogueArgument) -> None:
    """Print a Grafana dashboard for a service's metrics, as JSON to be imported.

    It has rows for what the catalogue declares and no others, and names only metrics that there are. Choose
    the Prometheus data source and the scrape job at its top.
    """
    typer.echo(dashboard_json(name))


COMMAND = Command(
    "dashboard",
    dashboard,
    examples=(
        ("for a service of yours", "myservice.keys:catalogue > dashboard.json"),
        ("for a built-in one", "identity > dashboard.json"),
    ),
)
