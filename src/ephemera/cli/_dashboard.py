"""`ephemera dashboard`: a Grafana dashboard for a catalogue."""

from typing import Annotated

import typer

from ephemera.cli._command import CatalogueArgument, Command, flag
from ephemera.operations.metrics import dashboard_json


def dashboard(
    name: CatalogueArgument,
    http: Annotated[
        bool, flag("--http", "Add requests and SQL connections, as the built-in services measure them.")
    ] = False,
) -> None:
    """Print a Grafana dashboard for a service's metrics, as JSON for import.

    It has rows for what the catalogue declares. Choose the Prometheus data source and the scrape job at the
    top.
    """
    typer.echo(dashboard_json(name, http=http))


COMMAND = Command(
    "dashboard",
    dashboard,
    examples=(
        ("for your own service", "myservice.keys:catalogue > dashboard.json"),
        ("for a built-in service", "identity --http > dashboard.json"),
    ),
)
