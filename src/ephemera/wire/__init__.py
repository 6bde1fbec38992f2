"""The wire: commands to a Redis or Valkey server over one multiplexed connection."""

from ephemera.wire.client import Client, Invalidations
from ephemera.wire.commands import Arg
from ephemera.wire.opening import open_client
from ephemera.wire.prepared import Prepared
from ephemera.wire.scripts import Script
from ephemera.wire.subscriptions import Message, Subscription

__all__ = ["Arg", "Client", "Invalidations", "Message", "Prepared", "Script", "Subscription", "open_client"]
