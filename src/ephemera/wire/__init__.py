"""The wire: commands to a Redis or Valkey server over one multiplexed connection."""

from ephemera.wire._client import Client, open_client
from ephemera.wire._cluster import ClusterClient
from ephemera.wire._commands import Arg, as_text, command_name, first_key, is_multiplexed
from ephemera.wire._connection import LATENCY_BOUNDS, ReplyHandler
from ephemera.wire._node_client import Invalidations, NodeClient
from ephemera.wire._observed_client import ObservedClient, Observer
from ephemera.wire._packed_commands import pack_argument, pack_command, packed_read_parts
from ephemera.wire._scripts import PreparedScript, Script, ScriptPrefix
from ephemera.wire._slots import SLOT_COUNT, hash_tag_for_slot, key_slot
from ephemera.wire._subscriptions import Message, Subscription
from ephemera.wire._url import Address, Credentials, Target, parse_url

__all__ = [
    "LATENCY_BOUNDS",
    "SLOT_COUNT",
    "Address",
    "Arg",
    "Client",
    "ClusterClient",
    "Credentials",
    "Invalidations",
    "Message",
    "NodeClient",
    "ObservedClient",
    "Observer",
    "PreparedScript",
    "ReplyHandler",
    "Script",
    "ScriptPrefix",
    "Subscription",
    "Target",
    "as_text",
    "command_name",
    "first_key",
    "hash_tag_for_slot",
    "is_multiplexed",
    "key_slot",
    "open_client",
    "pack_argument",
    "pack_command",
    "packed_read_parts",
    "parse_url",
]
