"""The demonstration's console: one process that looks at all five services, each with databases of its own.

It is told by its environment, as its password is in it. Actions are allowed: everything here is made up.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from ephemera_services.demo.flag_errors import SYSTEMS, database_of
from ephemera_services.demo.servers import Servers

USER = "demo"
_VARIABLE = "EPHEMERA_DEMO_CONSOLE"


class Told(msgspec.Struct):
    """What the process is told."""

    urls: dict[str, str]
    password: str
    cache_url: str
    queue_url: str
    database_url: str


def console_environment(
    servers: Servers, urls: Mapping[str, str], password: str, metrics_token: str
) -> dict[str, str]:
    """The environment of a console that is at its place among these addresses."""
    told = Told(
        urls=dict(urls),
        password=password,
        cache_url=servers.cache_url,
        queue_url=servers.queue_url,
        database_url=servers.database_url,
    )
    usual = {name: value for name, value in os.environ.items() if not name.startswith("EPHEMERA_")}
    return {
        **usual,
        "EPHEMERA_METRICS_TOKEN": metrics_token,
        _VARIABLE: msgspec.json.encode(told).decode(),
    }


def serve_console(environment: Mapping[str, str]) -> bool:
    """Run the console until it is told to stop; whether it started."""
    from ephemera.cli import load_catalogue
    from ephemera.console._connections import PlaceSettings
    from ephemera.console._console import Settings
    from ephemera.console._server import serve
    from ephemera_services.runtime import configure_logging

    configure_logging("info")
    logging.getLogger("uvicorn.error").setLevel(
        logging.WARNING
    )  # it logs the URLs of sockets, with their ids
    told = msgspec.json.decode(environment[_VARIABLE], type=Told)
    places = tuple(
        PlaceSettings(
            catalogues=(load_catalogue(system),),
            url=database_of(told.cache_url, system),
            queue_url=database_of(told.queue_url, system),
            database_url=told.database_url,
            metrics_urls=(f"{told.urls[system]}/metrics",),
            name=system,
        )
        for system in SYSTEMS
    )
    port = urlsplit(told.urls["console"]).port or 0
    settings = Settings(places, user=USER, password=told.password, port=port, allow_actions=True)
    return serve(settings)


if __name__ == "__main__":
    from ephemera_services.demo.child import end_with_owner

    end_with_owner()
    raise SystemExit(0 if serve_console(os.environ) else 1)
