"""Configuration that a catalogue implies: access rules, server settings, and marks that identify a server.

    rules = access_rules(catalogue, "slides")          # rules.line() is one line of an ACL file
    text = server_config("cache", memory="2gb")        # a complete configuration file
    await mark_server(url, "slides-cache")             # connect(identity="slides-cache") then checks it

Access rules and server configuration are computed from declarations and need no server. `mark_server` writes
one key, and raises `ConnectionFailed` when the server is down.
"""

from ephemera.operations.configuration._acl import PURPOSES, AccessRules, access_rules, has_local_caches
from ephemera.operations.configuration._server_config import (
    DEFAULT_MEMORY,
    Setting,
    server_config,
    server_settings,
)
from ephemera.operations.configuration._server_mark import ServerMark, loaded_modules, mark_server

__all__ = [
    "DEFAULT_MEMORY",
    "PURPOSES",
    "AccessRules",
    "ServerMark",
    "Setting",
    "access_rules",
    "has_local_caches",
    "loaded_modules",
    "mark_server",
    "server_config",
    "server_settings",
]
