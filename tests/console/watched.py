"""A console over several places: `python -m tests.console.watched --port N --places JSON [--allow-actions]`.

The places are a list of objects with `name`, `catalogue` (module:object), `url` and perhaps `queue_url` and
`database_url`. The command line of the console knows one place; `ephemera demo` has several, as this has.
"""

from __future__ import annotations

import argparse
import importlib
import os
from typing import Any

import msgspec

from ephemera.console.console import Settings
from ephemera.console.places import PlaceSettings
from ephemera.console.serving import serve
from ephemera.systems.logs import configure


def place(told: dict[str, Any]) -> PlaceSettings:
    """A place out of what was told of it."""
    module, _, name = told.pop("catalogue").partition(":")
    return PlaceSettings((getattr(importlib.import_module(module), name),), **told)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--places")
    parser.add_argument("--url", help="not used: each place has its own")
    parser.add_argument("--allow-actions", action="store_true")
    given = parser.parse_args()
    configure("info")
    places = tuple(map(place, msgspec.json.decode(given.places)))
    password = os.environ["EPHEMERA_CONSOLE_PASSWORD"]
    serve(Settings(places, "operator", password, port=given.port, allow_actions=given.allow_actions))
