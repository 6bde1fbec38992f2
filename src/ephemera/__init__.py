"""Ephemera: the expendable data layer of a Python service, on Redis 7+ or Valkey.

Declare every key once in a `Catalogue`, open a `Store` with `connect`, and use what is declared through typed
accessors and patterns. Everything kept there may vanish without harm.
"""

from ephemera.errors import (
    CannotConnect,
    ConnectionFailed,
    CrossSlot,
    EphemeraError,
    OutcomeUnknown,
    ServerError,
    StoreClosed,
    Unavailable,
    UnsupportedCommand,
)
from ephemera.keyspace import (
    Catalogue,
    Keyspace,
    Store,
    connect,
    fixed,
    permanent,
    sliding,
    until,
    windowed,
)
from ephemera.wire import Message, Script

__all__ = [
    "CannotConnect",
    "Catalogue",
    "ConnectionFailed",
    "CrossSlot",
    "EphemeraError",
    "Keyspace",
    "Message",
    "OutcomeUnknown",
    "Script",
    "ServerError",
    "Store",
    "StoreClosed",
    "Unavailable",
    "UnsupportedCommand",
    "connect",
    "fixed",
    "permanent",
    "sliding",
    "until",
    "windowed",
]
