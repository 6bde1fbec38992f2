"""The channel layer: queues of messages, groups of channels, and what is connected to their servers.

Redis holds a message as 12 random bytes, and MessagePack or JSON, encrypted if the settings say so. It is the
format of channels_redis, so that processes with either layer share a server. The random bytes make equal
messages different members of a sorted set.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import uuid
import weakref
from binascii import crc32
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import cycle
from time import monotonic
from typing import Any, Literal

import msgspec
from channels.exceptions import ChannelFull
from channels.layers import BaseChannelLayer

from ephemera._futures import cancel_all
from ephemera.adapters._servers import LoopClients, delete_keys, escaped
from ephemera.adapters.channels._receiver import ReceiveBuffer, keep_receiving, logger, take
from ephemera.errors import MissingExtra
from ephemera.wire import Client, Script, parse_url

_RANDOM = 12  # bytes
_CLOCK_SKEW = 10  # seconds that an encrypted message may be older than its expiry

Format = Literal["msgpack", "json"]

_SEND = Script.load("ephemera.adapters.channels", "send")
_JOIN = Script.load("ephemera.adapters.channels", "join")
_MEMBERS = Script.load("ephemera.adapters.channels", "members")
_ADDRESSEES = "__asgi_channel__"  # the key of a message that names its channels

_layers: weakref.WeakSet[RedisChannelLayer] = weakref.WeakSet()


class MessageCodec:
    """Encodes and decodes the messages of a layer."""

    def __init__(self, form: Format, keys: Sequence[str | bytes], expiry: float) -> None:
        if form not in ("msgpack", "json"):
            raise ValueError(f"serializer_format is 'msgpack' or 'json', not {form!r}")
        if isinstance(keys, (str, bytes)):
            raise TypeError("symmetric_encryption_keys is a list of keys, the first one to encrypt with")
        packer: Any = msgspec.msgpack if form == "msgpack" else msgspec.json
        self._encode = packer.Encoder().encode
        self._decode = packer.Decoder(dict[str, Any]).decode
        self._crypter: Any = _crypter(keys) if keys else None
        self._max_age = int(expiry) + _CLOCK_SKEW

    def encode(self, message: dict[str, Any]) -> bytes:
        """The stored form of a message."""
        encoded: bytes = self._encode(message)
        return os.urandom(_RANDOM) + (self._crypter.encrypt(encoded) if self._crypter else encoded)

    def decode(self, stored: bytes) -> dict[str, Any] | None:
        """A stored message; None for one that no layer with these settings has sent."""
        encoded = stored[_RANDOM:]
        try:
            if self._crypter:
                encoded = self._crypter.decrypt(encoded, self._max_age)
            message: dict[str, Any] = self._decode(encoded)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        except Exception as problem:
            if type(problem).__name__ != "InvalidToken":
                raise
            return None
        return message


def _crypter(keys: Sequence[str | bytes]) -> Any:
    try:
        fernet = import_module("cryptography.fernet")
    except ImportError:
        raise MissingExtra("symmetric_encryption_keys needs cryptography", "tokens", "cryptography") from None
    texts = [key.encode() if isinstance(key, str) else key for key in keys]
    derived = [base64.urlsafe_b64encode(hashlib.sha256(text).digest()) for text in texts]
    return fernet.MultiFernet([fernet.Fernet(key) for key in derived])


class RedisChannelLayer(BaseChannelLayer):
    """A layer of Django Channels: `"BACKEND": "ephemera.adapters.channels.RedisChannelLayer"`.

    Args:
        hosts: URLs of servers, as `redis://host:6379/0`, or pairs of a host and a port. Several of them share
            the channels and groups by their names; a cluster or Sentinels are one URL.
        prefix: What all keys begin with.
        expiry: The seconds after which a message that waits is dropped by the next that is sent.
        group_expiry: The seconds that a channel stays in a group.
        capacity: The messages that wait in a channel at most.
        channel_capacity: Other capacities, by a pattern of the channel's name.
        symmetric_encryption_keys: Secrets to encrypt messages with: the first encrypts, all decrypt.
        serializer_format: "msgpack" or "json".

    """

    extensions = ("groups", "flush")

    def __init__(
        self,
        hosts: Sequence[Any] | None = None,
        prefix: str = "asgi",
        expiry: int = 60,
        group_expiry: int = 86400,
        capacity: int = 100,
        channel_capacity: dict[Any, int] | None = None,
        symmetric_encryption_keys: Sequence[str | bytes] = (),
        serializer_format: Format = "msgpack",
    ) -> None:
        super().__init__(expiry, capacity)
        self.channel_capacity: Any = self.compile_capacities(channel_capacity or {})
        self.prefix = prefix
        self.group_expiry = group_expiry
        self._codec = MessageCodec(serializer_format, symmetric_encryption_keys or (), expiry)
        self._servers = [LoopClients(_checked_url(host)) for host in _checked_hosts(hosts)]
        self._next_sent = cycle(range(len(self._servers)))
        self._next_received = cycle(range(len(self._servers)))
        self.receive_buffer: dict[str, ReceiveBuffer] = defaultdict(partial(ReceiveBuffer, capacity))
        self._awaited: Counter[str] = Counter()  # consumers that wait, by queue
        self._receivers: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Task[None]] = {}
        self._swept_at = monotonic()
        self._start_afresh()
        _layers.add(self)

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        """Send a message to a channel; `ChannelFull` when too many wait there."""
        _check_message(message)
        self.require_valid_channel_name(channel)
        name = self.non_local_name(channel)
        if name is not channel:
            message = {**message, _ADDRESSEES: channel}
        index = next(self._next_sent) if name is channel else self._index(name)
        if not await self._push(await self._servers[index].get(), name, channel, message):
            raise ChannelFull

    async def receive(self, channel: str) -> dict[str, Any]:
        """The next message of a channel; waits for it, even while the server is down."""
        self.require_valid_channel_name(channel)
        if "!" not in channel:
            return await self._receive_shared(channel)
        name = self.non_local_name(channel)
        if not name.endswith(f"{self.client_prefix}!"):
            raise AssertionError(f"{channel!r} is a channel of another process; receive it there")
        buffer = self.receive_buffer[channel]
        self._awaited[name] += 1
        try:
            message: dict[str, Any] = await buffer.get(partial(self._ensure_received, name))
        finally:
            self._awaited[name] -= 1
            if buffer.empty() and not buffer.is_awaited:
                self.receive_buffer.pop(channel, None)
        return message

    async def new_channel(self, prefix: str = "specific") -> str:
        """A name for a channel that this process alone receives."""
        return f"{prefix}.{self.client_prefix}!{uuid.uuid4().hex}"

    async def group_add(self, group: str, channel: str) -> None:
        """Add a channel to a group, or renew its time there."""
        self.require_valid_group_name(group)
        self.require_valid_channel_name(channel)
        client = await self._servers[self._index(group)].get()
        await client.run(_JOIN, (self._group_key(group),), (channel, self.group_expiry))

    async def group_discard(self, group: str, channel: str) -> None:
        """Remove a channel from a group, if it is there."""
        self.require_valid_group_name(group)
        self.require_valid_channel_name(channel)
        client = await self._servers[self._index(group)].get()
        await client.call("ZREM", self._group_key(group), channel)

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        """Send a message to all channels of a group, except those in which too many wait."""
        self.require_valid_group_name(group)
        _check_message(message)
        client = await self._servers[self._index(group)].get()
        members = await client.run(_MEMBERS, (self._group_key(group),), (self.group_expiry,))
        by_queue: dict[str, list[str]] = {}
        for channel in (each.decode("utf-8", "replace") for each in members):
            by_queue.setdefault(self.non_local_name(channel), []).append(channel)
        clients = [await self._servers[self._index(name)].get() for name in by_queue]
        sent = await asyncio.gather(
            *[
                self._push(client, name, channels[0], {**message, _ADDRESSEES: channels})
                for client, (name, channels) in zip(clients, by_queue.items(), strict=True)
            ]
        )
        if full := sent.count(False):
            logger.info("%s of %s channels over capacity in group %s", full, len(members), group)

    async def flush(self) -> None:
        """Delete all messages and groups, and disconnect."""
        for server in self._servers:
            await delete_keys(await server.get(), f"{escaped(self.prefix)}*")
        await self.close_pools()

    async def close_pools(self) -> None:
        """Disconnect what the running loop uses; its next call connects again."""
        loop = asyncio.get_running_loop()
        mine = [self._receivers.pop(key) for key in list(self._receivers) if key[0] is loop]
        await cancel_all(mine)
        for server in self._servers:
            await server.aclose()

    async def _push(self, client: Client, name: str, channel: str, message: dict[str, Any]) -> bool:
        arguments = (self._codec.encode(message), self.get_capacity(channel), self.expiry)
        return bool(await client.run(_SEND, (self.prefix + name,), arguments))

    async def _receive_shared(self, channel: str) -> dict[str, Any]:
        """The next message of a channel that any process may receive."""
        while True:
            server = self._servers[next(self._next_received)]
            for stored in await take(server, self.prefix + channel, 1):
                message = self._decoded(stored)
                if message is not None:
                    message.pop(_ADDRESSEES, None)
                    return message

    def _ensure_received(self, name: str) -> None:
        """Have a task on the running loop receive the queue of this process."""
        key = asyncio.get_running_loop(), name
        if key not in self._receivers or self._receivers[key].done():
            self._receivers = {each: task for each, task in self._receivers.items() if not task.done()}
            server = self._servers[self._index(name)]
            receiving = keep_receiving(
                server, self.prefix + name, self._deliver, lambda: self._awaited[name] > 0
            )
            self._receivers[key] = key[0].create_task(receiving)

    def _decoded(self, stored: bytes) -> dict[str, Any] | None:
        message = self._codec.decode(stored)
        if message is None:
            logger.warning("a message that no layer with these settings has sent was dropped")
        return message

    def _deliver(self, stored: bytes) -> None:
        message = self._decoded(stored)
        if message is None:
            return
        addressees = message.pop(_ADDRESSEES, None)
        for channel in addressees if isinstance(addressees, list) else [addressees]:
            if isinstance(channel, str):
                self.receive_buffer[channel].put_nowait(dict(message))
        self._sweep()

    def _sweep(self) -> None:
        """Drop the messages of consumers that are gone, from time to time."""
        now = monotonic()
        if now - self._swept_at > self.expiry:
            self._swept_at = now
            for channel, buffer in list(self.receive_buffer.items()):
                if not buffer.is_awaited and now - buffer.used_at > self.expiry:
                    self.receive_buffer.pop(channel, None)

    def _index(self, name: str) -> int:
        """The server that has a queue or a group; the same as with channels_redis."""
        many = len(self._servers)
        return 0 if many == 1 else (crc32(name.encode()) & 0xFFF) * many // 4096

    def _group_key(self, group: str) -> bytes:
        return f"{self.prefix}:group:{group}".encode()

    def _start_afresh(self) -> None:
        """Name this process, and forget what a parent process had received."""
        self.client_prefix = uuid.uuid4().hex
        self.receive_buffer.clear()
        self._awaited.clear()
        self._receivers.clear()


def _check_message(message: Any) -> None:
    if not isinstance(message, dict):
        raise TypeError(f"a message is a dict with a type, not a {type(message).__name__}")
    if _ADDRESSEES in message:
        raise ValueError(f"a message cannot have the key {_ADDRESSEES!r}, which the layer uses itself")


def _checked_hosts(hosts: Sequence[Any] | None) -> Sequence[Any]:
    if isinstance(hosts, (str, bytes)):
        raise TypeError(f"hosts is a list, even of one server: [{hosts!r}]")
    return hosts or ["redis://localhost:6379"]


def _checked_url(host: Any) -> str:
    if isinstance(host, Mapping) and host.keys() == {"address"}:
        host = host["address"]
    if isinstance(host, (tuple, list)) and len(host) == 2:
        host = f"redis://{host[0]}:{host[1]}"
    if not isinstance(host, str):
        raise TypeError(f"each of hosts is a URL, or a pair of host and port, not {type(host).__name__}")
    parse_url(host)
    return host


def _after_fork() -> None:
    for layer in list(_layers):
        layer._start_afresh()


os.register_at_fork(after_in_child=_after_fork)
