"""The wire: commands to a Redis or Valkey server over one multiplexed connection."""

from ephemera.wire._client import Client, Invalidations
from ephemera.wire._commands import Arg
from ephemera.wire._open_client import open_client
from ephemera.wire._packed_commands import Prepared
from ephemera.wire._scripts import Script
from ephemera.wire._subscriptions import Message, Subscription

__all__ = ["Arg", "Client", "Invalidations", "Message", "Prepared", "Script", "Subscription", "open_client"]
