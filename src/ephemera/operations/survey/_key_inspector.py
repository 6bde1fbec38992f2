"""What sampled keys are: type, TTL, size and, on request, their contents.

Commands go out in pipelines of at most 100, so no other client of the server waits longer than for those.
Nothing is changed, not even a key's last access time where the server has `CLIENT NO-TOUCH` (Redis 7.2,
Valkey); without it, reading a key's contents counts as an access. Every command but MEMORY USAGE raises the
server's `keyspace_hits` by one (or `keyspace_misses`, if the key is gone by then); `lookups` counts them.

Reading is bounded: all of a small value, a few members of a large collection, nothing of a large string.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from ephemera.errors import ConnectionFailed, ServerError, StoreClosed
from ephemera.wire import Arg, Client, NodeClient

Command = tuple[Arg, ...]
ContentReader = Callable[["SampledKey", Any], Any]
"""Turns the server's reply with a key's contents into `SampledKey.content`."""

PIPELINE = 100
"""Commands in one write."""

READ_LIMIT = 32 * 1024
"""Bytes of a key that may be read, by the server's own estimate."""

_KEYS_AT_ONCE = PIPELINE // 3  # the first request for a key takes three commands
_FEW_MEMBERS = 10  # of a large collection
_NO_TOUCH = ("CLIENT", "NO-TOUCH", "ON")
_LENGTH_COMMANDS = {"hash": "HLEN", "set": "SCARD", "zset": "ZCARD", "list": "LLEN", "stream": "XLEN"}


class ConsumerGroup(msgspec.Struct, frozen=True):
    """A consumer group of a stream; `lag` is None when the server does not know it."""

    name: str
    consumers: int
    pending: int
    lag: int | None


@dataclass(slots=True)
class SampledKey:
    """A sampled key and what the server reported; without `read_content` its contents are not read."""

    key: bytes
    read_content: ContentReader | None = None
    wants_content: Callable[[bytes, str], bool] | None = None  # given key and type; None: always
    type: str = "none"
    ttl: int = -2  # milliseconds; -1: no TTL, -2: the key is gone
    size: int | None = None  # bytes; None when the server does not report it
    members: int = 0
    groups: list[ConsumerGroup] = field(default_factory=list)
    content: Any = None
    compression_saves: int | None = None  # bytes of its value, if a reader tried
    too_large: bool = False  # the contents were wanted, but are too large to read

    @property
    def is_wanted(self) -> bool:
        """Whether its contents are to be read."""
        wants = self.wants_content
        return self.read_content is not None and self.exists and (wants is None or wants(self.key, self.type))

    @property
    def exists(self) -> bool:
        """Whether the key still existed when it was read."""
        return self.type != "none" and self.ttl != -2


class KeyInspector:
    """Reads keys of one server, and counts the effect on the server's statistics."""

    def __init__(self, node: NodeClient, *, no_touch: bool) -> None:
        self.node = node
        self.no_touch = no_touch
        self.lookups = 0
        self.contents_read = 0  # keys whose members or contents were requested
        self.failures: dict[str, str] = {}  # failed commands and the server's error
        self.lost: str | None = None  # why the connection was lost

    @classmethod
    async def create(cls, node: NodeClient) -> KeyInspector:
        """An inspector that leaves access times unchanged, if the server supports it."""
        try:
            await node.add_setup(*_NO_TOUCH)
        except ServerError:
            return cls(node, no_touch=False)
        return cls(node, no_touch=True)

    async def inspect(
        self, keys: Sequence[SampledKey], deadline: float, on_progress: Callable[[int], None]
    ) -> None:
        """Read these keys until the deadline (`time.monotonic`); report each batch's size as progress."""
        try:
            for start in range(0, len(keys), _KEYS_AT_ONCE):
                if time.monotonic() >= deadline:
                    break
                batch = keys[start : start + _KEYS_AT_ONCE]
                await self.read(batch)
                on_progress(len(batch))
        except (ConnectionFailed, StoreClosed) as error:
            self.lost = str(error)

    async def read(self, keys: Sequence[SampledKey]) -> None:
        """Read these keys, which are few."""
        await self._request(keys, _metadata_commands, _store_metadata)
        readable = [key for key in keys if key.is_wanted]
        self.contents_read += len(readable)
        await self._request(readable, _length_commands, _store_length)
        await self._request(readable, _content_commands, _store_content)

    async def _request(
        self,
        keys: Sequence[SampledKey],
        commands_of: Callable[[SampledKey], list[Command]],
        store: Callable[[SampledKey, list[Any]], None],
    ) -> None:
        """Send commands for all keys together, then store each key's replies."""
        commands = [commands_of(key) for key in keys]
        replies = iter(await self._replies([command for batch in commands for command in batch]))
        for key, batch in zip(keys, commands, strict=True):
            store(key, [next(replies) for _ in batch])

    async def _replies(self, commands: list[Command]) -> list[Any]:
        """The replies, None for a refused command."""
        replies: list[Any] = []
        for batch in _pipelines(commands):
            sent = [asyncio.ensure_future(self.node.call(*command)) for command in batch]
            self.lookups += sum(command[0] != "MEMORY" for command in batch)
            replies += map(self._reply, batch, await asyncio.gather(*sent, return_exceptions=True))
        return replies

    def _reply(self, command: Command, reply: Any) -> Any:
        if isinstance(reply, ServerError):
            # The key may have been replaced or deleted since the last request.
            if reply.code != "WRONGTYPE" and "no such key" not in reply.message:
                self.failures.setdefault(str(command[0]), reply.message)
            return None
        if isinstance(reply, BaseException):
            raise reply
        return reply


async def inspect_keys(client: Client, keys: Sequence[SampledKey]) -> None:
    """Read a few keys, wherever a client's servers have them; reading contents counts as an access."""
    # A client sends each command to the server of its key, so it serves as the node of all of them.
    inspector = KeyInspector(cast("NodeClient", client), no_touch=False)
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        await inspector.read(keys[start : start + _KEYS_AT_ONCE])


def _pipelines(commands: Sequence[Command]) -> Iterator[Sequence[Command]]:
    for start in range(0, len(commands), PIPELINE):
        yield commands[start : start + PIPELINE]


def _metadata_commands(key: SampledKey) -> list[Command]:
    return [("TYPE", key.key), ("PTTL", key.key), ("MEMORY", "USAGE", key.key)]


def _store_metadata(key: SampledKey, replies: list[Any]) -> None:
    kind, ttl, key.size = replies
    if kind is not None and ttl is not None:
        key.type, key.ttl = kind.decode() if isinstance(kind, bytes) else kind, ttl


def _length_commands(key: SampledKey) -> list[Command]:
    """Commands for the number of members, and a stream's groups; none for a string."""
    if key.type not in _LENGTH_COMMANDS:
        return []
    groups: list[Command] = [("XINFO", "GROUPS", key.key)] if key.type == "stream" else []
    return [(_LENGTH_COMMANDS[key.type], key.key), *groups]


def _store_length(key: SampledKey, replies: list[Any]) -> None:
    if replies and replies[0] is not None:
        key.members = replies[0]
        key.groups = _groups(replies[1] or ()) if len(replies) > 1 else []


def _content_commands(key: SampledKey) -> list[Command]:
    command = None if key.size is None else _read_command(key.type, key.key, key.size, key.members)
    key.too_large = command is None
    return [] if command is None else [command]


def _store_content(key: SampledKey, replies: list[Any]) -> None:
    if replies and replies[0] is not None and key.read_content is not None:
        key.content = key.read_content(key, replies[0])


def _read_command(kind: str, key: bytes, size: int, members: int) -> Command | None:
    """The command that reads all of a key, or a few members; None when even that is too much."""
    if size <= READ_LIMIT:
        count = members
    elif size * _FEW_MEMBERS <= READ_LIMIT * max(members, 1):
        count = _FEW_MEMBERS
    else:
        return None
    if kind == "hash" and count < members:
        return ("HRANDFIELD", key, count, "WITHVALUES")
    commands: dict[str, Command] = {
        "string": ("GET", key),
        "hash": ("HGETALL", key),
        "set": ("SRANDMEMBER", key, _FEW_MEMBERS),
        "zset": ("ZRANDMEMBER", key, _FEW_MEMBERS),
        "list": ("LRANGE", key, 0, _FEW_MEMBERS - 1),
        "stream": ("XREVRANGE", key, "+", "-", "COUNT", _FEW_MEMBERS),
    }
    return commands.get(kind)


def _groups(reply: Any) -> list[ConsumerGroup]:
    """The consumer groups in a reply to XINFO GROUPS."""
    return [
        ConsumerGroup(
            group[b"name"].decode("utf-8", "backslashreplace"),
            group[b"consumers"],
            group[b"pending"],
            group.get(b"lag"),
        )
        for group in reply
    ]
