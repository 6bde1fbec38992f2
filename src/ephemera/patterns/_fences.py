"""Fenced fills: a value that was loaded before a change is never stored after it.

A reader that finds nothing in the cache writes a fence, a random token with a short TTL, into the key that
the value will have. Then it loads, and stores the value only if its fence is still there. A change deletes
the key, whatever it contains. So there is no order of events in which an old value returns (trap I4):

- load, change, store: the change has deleted the fence, and the store is refused;
- change, fence, load, store: what was loaded is what the change made.

The fence is in the key itself, and not beside it, for three reasons. Any DEL is a change, also one from a
command line. One key is one cluster slot. And nothing has to outlive anything: a fence that expires or is
evicted only means that a value is not cached this time. Concurrent loads share the fence; the first one
stores.

*Keys.* In a hash the fence is the field `_fence`, in a value it is the text; both read as a miss by any other
accessor. Where values are plain text or bytes, a fence would be a valid value: `fenced_codec` says that those
must be declared as JSON.

*Lifetimes.* A fence lives as long as a load may take, a value as its keyspace says.

*Atomicity.* Writing a fence and filling are one script each.

*When Redis is down*, calls raise `ConnectionFailed`, and the caller loads without a cache.
"""

from __future__ import annotations

import secrets
from typing import Any, Generic, NamedTuple, TypeVar, cast

from msgspec import inspect

from ephemera.keyspace import Codec, CodecName, Keyspace, RecordCodec, choose_codec
from ephemera.wire import Arg, Client, Script

V = TypeVar("V")

SET_FENCE = Script.load("ephemera.patterns", "set_fence")
FILL = Script.load("ephemera.patterns", "fill_behind_fence")

_FENCE = b"\x00fence "  # no codec of a fenced keyspace writes or reads a text that begins so


def fenced_codec(pattern: str, value_type: Any) -> CodecName | None:
    """Return the codec to declare a fenced value with; None for the usual one."""
    if choose_codec(pattern, value_type).name != "plain":
        return None
    node = inspect.type_info(value_type)
    while isinstance(node, inspect.Metadata):
        node = node.type
    return "json" if isinstance(node, (inspect.StrType, inspect.BytesType)) else None


class FencedRead(NamedTuple, Generic[V]):
    """A cached value, or the fence in its place."""

    value: V | None
    fence: bytes = b""


class Fences(Generic[V]):
    """Fenced fills of the keys of one keyspace, a hash or a value."""

    def __init__(self, keyspace: Keyspace[Any], client: Client, *, longest_load: int) -> None:
        """Take how long a load may take, in milliseconds; what takes longer is not cached."""
        self._call, self._run = client.call, client.run
        self._kind = "hash" if keyspace.kind == "hash" else "value"
        self._read_command = "HGETALL" if keyspace.kind == "hash" else "GET"
        self._codec = cast("Codec[V]", keyspace.codec)
        self._lifetime = keyspace.lifetime.milliseconds or 0
        self._longest_load = longest_load

    async def read_or_fence(self, key: str) -> FencedRead[V]:
        """Return the value of a key, or a fence to load behind: one round trip when there is something."""
        reply = await self._call(self._read_command, key)
        found = self._decoded(reply)
        if found.value is None and not found.fence:
            if reply:  # of another shape: neither a fence nor a value of ours
                await self._call("UNLINK", key)
            fresh = _FENCE + secrets.token_urlsafe(12).encode()
            held = await self._run(SET_FENCE, (key,), (self._kind, fresh, self._longest_load))
            found = self._decoded(held) if held else FencedRead(None, fresh)
        return found

    async def fill(self, key: str, fence: bytes, value: V) -> bool:
        """Store a value that was loaded behind a fence; False when the key has changed since."""
        return bool(
            await self._run(FILL, (key,), (self._kind, fence, self._lifetime, *self._write_command(value)))
        )

    def _write_command(self, value: V) -> list[Arg]:
        if self._kind == "hash":
            return ["HSET", *cast("RecordCodec[Any]", self._codec).encode(cast("Any", value))]
        return ["SET", self._codec.encode(value)]

    def _decoded(self, reply: Any) -> FencedRead[V]:
        if not reply:
            return FencedRead(None)
        if self._kind == "hash":
            stored = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
            fence = stored.get(b"_fence", b"")
            return FencedRead(None, fence) if fence else FencedRead(self._codec.decode(cast("Any", stored)))
        return FencedRead(None, reply) if reply.startswith(_FENCE) else FencedRead(self._codec.decode(reply))
