"""The web console: shows what services keep on their servers, and lets operators act on it.

    serve(ConsoleSettings(services=(ConsoleService((catalogue,), url),), user="operator", password=password))

`ephemera console` runs it as a separate process. The `README.md` next to this file explains how to add a
page; `docs/console.md` explains how to use it.

*What is read.* Servers are monitored in the background with INFO and PING; keys are counted and sampled only
while a page is open, within a time budget. Values of sensitive keyspaces are not read.

*When Redis is down.* Pages keep what they show, say which server is unavailable, and recover by themselves.
"""

import importlib.util

from ephemera.errors import MissingExtra

if importlib.util.find_spec("nicegui") is None:
    raise MissingExtra("the console needs NiceGUI", "console", "nicegui")

from ephemera.console._access import Account
from ephemera.console._connections import ConsoleService
from ephemera.console._console import ConsoleSettings
from ephemera.console._server import serve

__all__ = ["Account", "ConsoleService", "ConsoleSettings", "serve"]
