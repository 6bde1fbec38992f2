"""Fences: a value that was loaded before a change is never stored after it.

Who finds nothing in the cache plants a fence, a random mark with a short life, in the very key that the
value will have; then it loads; then it stores the value only if its fence still stands. A change removes
the key, whatever is in it. So there is no order of events in which an old value comes back (trap I4):

- load, change, store: the change has removed the fence, and the store is refused;
- change, plant, load, store: what was loaded is what the change made.

The fence is in the key itself, and not beside it, for three reasons. Anybody's DEL is a change, also an
operator's with a command line. One key is one cluster slot. And nothing has to outlive anything: a fence
that expires or is evicted only means that a value is not cached this time. Those who load at the same time
share the fence; the first stores.

In a hash the fence is the field `_fence`, in a value it is the text; both read as a miss by any other
accessor. Where values are plain text or bytes, a fence would be one of them: `codec_of` says that those must
be declared as JSON.
Lifetimes: a fence lives as long as a load may take, a value as its space says. Atomic: planting and filling
are one script each. Down or hung: `ConnectionFailed`, and the caller loads without a cache.
"""

from __future__ import annotations

import secrets
from typing import Any, Generic, NamedTuple, TypeVar, cast

from msgspec import inspect

from ephemera.keyspace import Codec, CodecName, Keyspace, RecordCodec, choose_codec
from ephemera.wire import Arg, Client, Script

V = TypeVar("V")

PLANT = Script.load("ephemera.patterns", "fences_plant")
FILL = Script.load("ephemera.patterns", "fences_fill")

_MARK = b"\x00fence "  # no codec of a fenced space writes a text that begins so, and none reads it


def codec_of(pattern: str, value_type: Any) -> CodecName | None:
    """The codec to declare a fenced value with: None, the usual one, unless that would read a fence."""
    if choose_codec(pattern, value_type).name != "plain":
        return None
    node = inspect.type_info(value_type)
    while isinstance(node, inspect.Metadata):
        node = node.type
    return "json" if isinstance(node, (inspect.StrType, inspect.BytesType)) else None


class Seen(NamedTuple, Generic[V]):
    """A cached value, or the fence that stands in its place."""

    value: V | None
    fence: bytes = b""


class Fences(Generic[V]):
    """Fenced fills of the keys of one space, a hash or a value."""

    def __init__(self, space: Keyspace[Any], client: Client, *, longest_load: int) -> None:
        """`longest_load` is in milliseconds: what takes longer is not cached."""
        self._call, self._run = client.call, client.run
        self._kind = "hash" if space.kind == "hash" else "value"
        self._read = "HGETALL" if space.kind == "hash" else "GET"
        self._codec = cast("Codec[V]", space.codec)
        self._life = space.lifetime.milliseconds or 0
        self._longest_load = longest_load

    async def look(self, key: str) -> Seen[V]:
        """The value of a key, or else a fence to load behind: one trip when there is something."""
        reply = await self._call(self._read, key)
        seen = self._seen(reply)
        if seen.value is None and not seen.fence:
            if reply:  # of another shape, so nobody's fence and no value of ours
                await self._call("UNLINK", key)
            fresh = _MARK + secrets.token_urlsafe(12).encode()
            held = await self._run(PLANT, (key,), (self._kind, fresh, self._longest_load))
            seen = self._seen(held) if held else Seen(None, fresh)
        return seen

    async def fill(self, key: str, fence: bytes, value: V) -> bool:
        """Store a value that was loaded behind a fence; False when it has changed since."""
        return bool(await self._run(FILL, (key,), (self._kind, fence, self._life, *self._write(value))))

    def _write(self, value: V) -> list[Arg]:
        if self._kind == "hash":
            return ["HSET", *cast("RecordCodec[Any]", self._codec).encode(cast("Any", value))]
        return ["SET", self._codec.encode(value)]

    def _seen(self, reply: Any) -> Seen[V]:
        if not reply:
            return Seen(None)
        if self._kind == "hash":
            stored = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
            fence = stored.get(b"_fence", b"")
            return Seen(None, fence) if fence else Seen(self._codec.decode(cast("Any", stored)))
        return Seen(None, reply) if reply.startswith(_MARK) else Seen(self._codec.decode(reply))
