"""The wire: commands to a Redis or Valkey server over one multiplexed connection."""

from ephemera.wire._client import Client, Invalidations, NodeClient
from ephemera.wire._cluster import ClusterClient
from ephemera.wire._commands import Arg, as_text, command_name, first_key
from ephemera.wire._connection import ReplyHandler, unpack_command
from ephemera.wire._latency import LATENCY_BOUNDS
from ephemera.wire._open_client import open_client
from ephemera.wire._packed_commands import PreparedScript, ScriptPrefix, pack_argument, packed_read_parts
from ephemera.wire._scripts import Script
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
    "key_slot",
    "open_client",
    "pack_argument",
    "packed_read_parts",
    "parse_url",
    "unpack_command",
]
