"""The console of the demo: one process that shows all five services, each with databases of its own.

Its configuration is in its environment, because it contains the password. Actions are allowed, since all data
is synthetic.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from ephemera_services.demo.external_servers import SERVICES, service_database
from ephemera_services.demo.servers import Servers

USER = "demo"
_VARIABLE = "EPHEMERA_DEMO_CONSOLE"


class ConsoleConfiguration(msgspec.Struct):
    """What the console process needs to know."""

    urls: dict[str, str]
    password: str
    cache_url: str
    queue_url: str
    database_url: str


def console_environment(
    servers: Servers, urls: Mapping[str, str], password: str, metrics_token: str
) -> dict[str, str]:
    """Return the environment of the console process."""
    configuration = ConsoleConfiguration(
        urls=dict(urls),
        password=password,
        cache_url=servers.cache_url,
        queue_url=servers.queue_url,
        database_url=servers.database_url,
    )
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EPHEMERA_")}
    return {
        **inherited,
        "EPHEMERA_METRICS_TOKEN": metrics_token,
        _VARIABLE: msgspec.json.encode(configuration).decode(),
    }


def serve_console(environment: Mapping[str, str]) -> bool:
    """Run the console until it is stopped; whether it started."""
    from ephemera.cli import load_catalogue
    from ephemera.console import ConsoleService, ConsoleSettings, serve
    from ephemera_services.runtime import configure_logging

    configure_logging("info")
    # At info level uvicorn logs the URLs of WebSockets, which contain session ids.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    configuration = msgspec.json.decode(environment[_VARIABLE], type=ConsoleConfiguration)
    services = tuple(
        ConsoleService(
            catalogues=(load_catalogue(service),),
            url=service_database(configuration.cache_url, service),
            queue_url=service_database(configuration.queue_url, service),
            database_url=configuration.database_url,
            metrics_urls=(f"{configuration.urls[service]}/metrics",),
            name=service,
        )
        for service in SERVICES
    )
    port = urlsplit(configuration.urls["console"]).port or 0
    settings = ConsoleSettings(
        services, user=USER, password=configuration.password, port=port, allow_actions=True
    )
    return serve(settings)


if __name__ == "__main__":
    from ephemera_services.demo.child import exit_with_parent

    exit_with_parent()
    raise SystemExit(0 if serve_console(os.environ) else 1)
