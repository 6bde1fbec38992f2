"""The base class of all accessors: render the key, make one round trip, apply the lifetime, count.

- A read is one command. With a sliding lifetime a PEXPIRE follows it in the same socket write.
- A write that must set a TTL is one run of `lua/write.lua`: the change and the TTL are one step, so a crash
  between them cannot leave a key without a TTL.
- A batch issues all its commands in one tick of the event loop, so they leave in one socket write, on a
  cluster in one per node. The batch is not atomic; the change of each key is.
- Errors of the server or the connection are counted and raised; nothing is retried here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Never, TypeVar

from ephemera._futures import discard
from ephemera.errors import ConnectionFailed, EphemeraError, InvalidLifetime, ServerError, WrongFields
from ephemera.keyspace._field_types import FieldValue
from ephemera.keyspace._keyspace import Keyspace, Stats
from ephemera.keyspace._lifetime import Instant, Sliding, Until, shorter
from ephemera.keyspace._template import Fields, unnamed_field
from ephemera.wire import Arg, Client, Script, packed_read_parts

Command = Sequence[Arg]
"""A command without its key: the name, then the arguments after the key."""

R = TypeVar("R")
T = TypeVar("T")

WRITE = Script.load("ephemera.keyspace", "write")
_UNABLE = frozenset(
    ("OOM", "READONLY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY")
)
"""Error codes of a server that is reachable but cannot write now."""

IF_ABSENT = "(absent)"
"""The guard of `write.lua` that leaves an existing key unchanged; no layout looks like this."""

_LONGEST_ID = 64  # characters of an id that is packed with its key; longer ones are packed separately
_MOST_ARGUMENTS = 4000  # of one command inside a script: the limit of Lua's stack is not much higher


def is_outage(problem: Exception) -> bool:
    """Whether an error means that the server cannot work now; any other error is a mistake in a program."""
    if isinstance(problem, ServerError):
        return problem.code in _UNABLE
    return isinstance(problem, ConnectionFailed)


class Accessor:
    """The operations that all kinds of keys share; the accessor of each kind adds its own."""

    __slots__ = ("_call", "_render", "_renewal", "_run", "_send", "keyspace", "stats")

    def __init__(self, keyspace: Keyspace[Any], client: Client) -> None:
        self.keyspace = keyspace
        self.stats = Stats()
        self._render: Callable[[Fields], str] = keyspace.template.render
        self._call = client.call
        self._run = client.run
        self._send = client.send
        lifetime = keyspace.lifetime
        self._renewal = lifetime.milliseconds if isinstance(lifetime, Sliding) else None

    def key(self, /, *positional: Never, **fields: FieldValue) -> str:
        """The key with these fields, for scripts of your own."""
        if positional:
            raise self._unnamed("key")
        return self._render(fields)

    async def expiry(self, until: Instant) -> int:
        """When a write with this `until` expires, in milliseconds since 1970, for scripts of your own."""
        return await self._end(until)

    async def exists(self, /, *positional: Never, **fields: FieldValue) -> bool:
        """Whether the key exists; this does not renew a sliding lifetime."""
        if positional:
            raise self._unnamed("exists")
        return bool(await self._ask("EXISTS", self._render(fields)))

    async def delete(self, /, *positional: Never, **fields: FieldValue) -> bool:
        """Delete the key; False when it did not exist."""
        if positional:
            raise self._unnamed("delete")
        return await self.delete_many([fields]) > 0

    async def delete_many(self, keys: Iterable[Fields], /) -> int:
        """Delete several keys in one round trip; returns how many of them existed."""
        rendered = self._render_all(keys)
        removed = await self._all(self._call("UNLINK", key) for key in rendered)
        self.stats.writes += len(removed)
        return sum(removed)

    def _unnamed(self, method: str) -> WrongFields:
        """The error for a field that was given without its name."""
        return unnamed_field(self.keyspace.template, method)

    # Batches: each key is given as a mapping of its fields.

    def _render_all(self, keys: Iterable[Fields]) -> list[str]:
        """The keys of several sets of fields."""
        try:
            return [self._render(fields) for fields in keys]
        except (AttributeError, TypeError) as problem:
            raise self._batch_error(problem, "[{%s}, ...]") from None

    def _render_pairs(self, items: Iterable[tuple[Fields, T]]) -> list[tuple[str, T]]:
        """The keys of several sets of fields, each with the item that came with it."""
        try:
            return [(self._render(fields), item) for fields, item in items]
        except (AttributeError, TypeError, ValueError) as problem:
            raise self._batch_error(problem, "[({%s}, ...), ...]") from None

    def _batch_error(self, problem: Exception, form: str) -> Exception:
        """The error for a batch that is not a sequence of mappings; other errors explain themselves."""
        if isinstance(problem, EphemeraError):
            return problem
        template = self.keyspace.template
        shown = form % ", ".join(f"{name!r}: ..." for name in template.fields)
        return WrongFields(template.pattern, template.fields, (f"a batch of another form than {shown}",))

    # The building blocks of all operations; each is one round trip.

    def _packing(self, name: str, *arguments: Arg) -> tuple[str, list[str], str, int] | None:
        """How a read command is packed while its key is rendered, if the pattern has one field.

        Returns that field, the parts from `packed_read_parts`, and the length of the longest id they are for.
        Most ids are letters and digits, which need no encoding: reading such a key is a tenth faster.
        """
        found = self.keyspace.template.one_field
        if found is None or found[3] < 1:
            return None
        field, before, after, longest = found
        longest = min(longest, _LONGEST_ID)
        words = [each.decode() if isinstance(each, bytes) else str(each) for each in arguments]
        return field, *packed_read_parts(name, before, after, longest, words), longest

    def _reader(
        self, send: Callable[[bytes], R], call: Callable[..., R], name: str, *arguments: Arg
    ) -> Callable[[Fields], R]:
        """A function that sends a read command for given fields; `ValueAccessor.get` inlines it."""
        render, packing = self._render, self._packing(name, *arguments)
        if packing is None:
            return lambda fields: call(name, render(fields), *arguments)
        field, heads, end, longest = packing

        def ask(fields: Fields) -> R:
            value: Any = fields.get(field)
            simple = value.__class__ is str and value.isalnum() and value.isascii()
            if simple and len(value) <= longest and len(fields) == 1:
                return send((heads[len(value)] + value + end).encode())
            return call(name, render(fields), *arguments)

        return ask

    async def _ask(self, *command: Arg) -> Any:
        """The reply to one command."""
        with self.stats.counting_errors:
            return await self._call(*command)

    async def _all(self, calls: Iterable[Awaitable[Any]]) -> list[Any]:
        """The replies to several calls, all issued before the first is awaited."""
        issued: list[Awaitable[Any]] = []
        with self.stats.counting_errors:
            try:
                issued.extend(calls)
                return [await each for each in issued]
            except BaseException:
                _abandon(issued)
                raise

    async def _read(self, name: str, key: str, *arguments: Arg) -> Any:
        """The reply to a read command, which renews a sliding lifetime."""
        if self._renewal is None:
            return await self._ask(name, key, *arguments)
        reply, _ = await self._all(self._send_read(name, key, arguments, self._renewal))
        return reply

    async def _read_all(self, name: str, keys: Iterable[str], *arguments: Arg) -> list[Any]:
        """The reply to a read command for each key, renewing as `_read` does."""
        ttl = self._renewal
        if ttl is None:
            return await self._all(self._call(name, key, *arguments) for key in keys)
        calls = (call for key in keys for call in self._send_read(name, key, arguments, ttl))
        return (await self._all(calls))[::2]

    def _send_read(
        self, name: str, key: str, arguments: Sequence[Arg], ttl: int
    ) -> tuple[Awaitable[Any], Awaitable[Any]]:
        return self._call(name, key, *arguments), self._call("PEXPIRE", key, ttl)

    async def _put(
        self,
        key: str,
        *writes: Command,
        until: Instant | None,
        lifetime: timedelta | None = None,
        value: object = None,
        guard: Arg = "",
    ) -> list[Any] | None:
        """Replace the value of the key; returns the replies, or None when nothing was written."""
        rule = self.keyspace.lifetime.on_put
        return await self._write(rule, key, writes, await self._end(until, value, lifetime), guard)

    async def _change(
        self, key: str, *writes: Command, until: Instant | None = None, guard: Arg = ""
    ) -> list[Any] | None:
        """Change part of the value of the key; returns the replies, or None when nothing was written."""
        rule = self.keyspace.lifetime.on_change
        return await self._write(rule, key, writes, await self._end(until), guard)

    async def _change_existing(
        self, key: str, *writes: Command, until: Instant | None = None, guard: Arg = ""
    ) -> list[Any] | None:
        """Like `_change`, for writes that never create the key: an `until` lifetime needs no instant."""
        if until is None and isinstance(self.keyspace.lifetime, Until):
            return await self._write("none", key, writes, 0, guard)
        return await self._change(key, *writes, until=until, guard=guard)

    async def _write(
        self, rule: str, key: str, writes: Sequence[Command], end: int, guard: Arg = ""
    ) -> list[Any] | None:
        with self.stats.counting_errors:
            replies: list[Any] | None
            if rule == "none" and not guard and len(writes) == 1:
                name, *arguments = writes[0]
                self.stats.bytes_written += payload_size(arguments)
                replies = [await self._call(name, key, *arguments)]
            else:
                replies = await self._send_write(rule, key, writes, end, guard)
        self.stats.writes += replies is not None
        return replies

    def _send_write(
        self, rule: str, key: str, writes: Iterable[Command], end: int, guard: Arg = ""
    ) -> Awaitable[list[Any] | None]:
        arguments: list[Arg] = [rule, end, guard]
        for write in writes:
            arguments.append(len(write) - 1)
            arguments.extend(write)
        self.stats.bytes_written += payload_size(arguments)
        return self._run(WRITE, (key,), arguments)

    async def _end(
        self, until: Instant | None, value: object = None, lifetime: timedelta | None = None
    ) -> int:
        """The lifetime as `write.lua` takes it: milliseconds, or the instant of an `until` lifetime."""
        declared = self.keyspace.lifetime
        try:
            if lifetime is not None:
                return shorter(declared, lifetime)
            if isinstance(declared, Until):
                return await self._instant(declared, until, value)
            if until is not None:
                raise InvalidLifetime(f"its lifetime is {declared}; until= is for until() lifetimes")
        except InvalidLifetime as problem:
            raise InvalidLifetime(f"{self.keyspace.pattern!r}: {problem}") from None
        return declared.milliseconds or 0

    async def _instant(self, lifetime: Until, until: Instant | None, value: object) -> int:
        end = lifetime.end(until, value)
        if lifetime.is_too_far(end):
            # This machine's clock may be behind; keys expire by the server's.
            seconds, _ = await self._ask("TIME")
            if lifetime.is_too_far(end, int(seconds)):
                raise InvalidLifetime(f"its lifetime is {lifetime}; until={end / 1000:.0f} is further ahead")
        return end


def payload_size(arguments: Iterable[Any]) -> int:
    """The total length of the `bytes` among some arguments, or among the parts of a reply."""
    return sum([len(each) for each in arguments if each.__class__ is bytes])


def in_chunks(name: str, arguments: Sequence[Arg]) -> list[Command]:
    """Split one write of many arguments into several that a script can run."""
    starts = range(0, len(arguments), _MOST_ARGUMENTS)
    return [(name, *arguments[start : start + _MOST_ARGUMENTS]) for start in starts]


def _abandon(issued: Iterable[Awaitable[Any]]) -> None:
    """Cancel calls whose replies no caller needs any more."""
    for each in issued:
        future: Any = each if hasattr(each, "cancel") else asyncio.ensure_future(each)
        future.cancel()
        if isinstance(future, asyncio.Future):
            discard(future)
