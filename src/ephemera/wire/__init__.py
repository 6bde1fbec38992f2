"""The wire: commands to a Redis or Valkey server over one multiplexed connection."""

from ephemera.wire._blocking_connection import BlockingConnection, DetachedSocket, is_read, limit_blocking
from ephemera.wire._client import Client, open_client
from ephemera.wire._cluster import ClusterClient
from ephemera.wire._commands import Arg, as_text, command_name, first_key, is_multiplexed
from ephemera.wire._connection import LATENCY_BOUNDS, ReplyHandler
from ephemera.wire._credentials import CredentialProvider
from ephemera.wire._deadline import deadline, seconds_left, within
from ephemera.wire._latency_sample import LatencySample
from ephemera.wire._node_client import Invalidations, NodeClient, node_client
from ephemera.wire._observed_client import ObservedClient, Observer
from ephemera.wire._packed_commands import pack_argument, pack_command, pack_here, packed_read_parts
from ephemera.wire._prompt_socket import prompt_calls
from ephemera.wire._scripts import PreparedScript, Script, ScriptPrefix
from ephemera.wire._slots import SLOT_COUNT, hash_tag_for_slot, key_slot
from ephemera.wire._subscriptions import ChannelKind, Message, Subscription
from ephemera.wire._url import Address, Credentials, Target, TlsFiles, parse_url

__all__ = [
    "LATENCY_BOUNDS",
    "SLOT_COUNT",
    "Address",
    "Arg",
    "BlockingConnection",
    "ChannelKind",
    "Client",
    "ClusterClient",
    "CredentialProvider",
    "Credentials",
    "DetachedSocket",
    "Invalidations",
    "LatencySample",
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
    "TlsFiles",
    "as_text",
    "command_name",
    "deadline",
    "first_key",
    "hash_tag_for_slot",
    "is_multiplexed",
    "is_read",
    "key_slot",
    "limit_blocking",
    "node_client",
    "open_client",
    "pack_argument",
    "pack_command",
    "pack_here",
    "packed_read_parts",
    "parse_url",
    "prompt_calls",
    "seconds_left",
    "within",
]
