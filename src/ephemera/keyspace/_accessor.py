"""What every accessor does the same way: render the key, make one trip, count, and apply the lifetime.

- A read is one command. In a sliding space a PEXPIRE follows it in the same socket write.
- A write that must set a lifetime is one run of `lua/write.lua`: the change and the lifetime are one step,
  so a crash between them cannot leave a key that never ends.
- A batch issues all its commands in one tick of the event loop, so they leave in one socket write, on a
  cluster in one for each node. It is not atomic: each key's change is.
- Errors of the server or the connection are counted and raised as they are; nothing is retried here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from ephemera.errors import ConnectionFailed, EphemeraError, InvalidLifetime, ServerError, WrongFields
from ephemera.keyspace._field_values import FieldValue
from ephemera.keyspace._keyspace import REDIS_ERRORS, Keyspace, Stats
from ephemera.keyspace._lifetime import Instant, Sliding, Until
from ephemera.keyspace._template import Fields
from ephemera.wire import Arg, Client, Script, packed_read_parts

Command = Sequence[Arg]
"""A command without its key: the name, then what follows the key."""

T = TypeVar("T")

WRITE = Script.load("ephemera.keyspace", "write")
_UNABLE = frozenset(
    ("OOM", "READONLY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY")
)
"""Errors of a server that is there and cannot write now."""

IF_ABSENT = "(absent)"
"""The guard of `write.lua` that leaves an existing key alone; no shape looks like this."""

_LONGEST_ID = 64  # characters of an id that is packed with its key; longer ones take the longer way
_MOST_ARGUMENTS = 4000  # of one command inside a script: Lua's stack takes not many more


def is_outage(problem: Exception) -> bool:
    """Whether the server is away, or as good as away; any other error is somebody's mistake."""
    if isinstance(problem, ServerError):
        return problem.code in _UNABLE
    return isinstance(problem, ConnectionFailed)


class Accessor:
    """The operations that all kinds of keys share; a kind's accessor adds its own."""

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

    def key(self, /, **fields: FieldValue) -> str:
        """The key of these fields, for a script of one's own."""
        return self._render(fields)

    async def ending(self, until: Instant) -> int:
        """When a write with this `until` ends, in milliseconds since 1970, for a script of one's own."""
        return await self._end(until)

    async def exists(self, /, **fields: FieldValue) -> bool:
        """Whether the key is there; looking does not renew a sliding lifetime."""
        return bool(await self._ask("EXISTS", self._render(fields)))

    async def delete(self, /, **fields: FieldValue) -> bool:
        """Remove the key; False when it was not there."""
        return await self.delete_many([fields]) > 0

    async def delete_many(self, keys: Iterable[Fields], /) -> int:
        """Remove several keys in one trip; how many of them were there."""
        rendered = self._rendered(keys)
        removed = await self._all(self._call("UNLINK", key) for key in rendered)
        self.stats.writes += len(removed)
        return sum(removed)

    # Batches: each key by a mapping of its fields.

    def _rendered(self, keys: Iterable[Fields]) -> list[str]:
        """The keys of several sets of fields."""
        try:
            return [self._render(fields) for fields in keys]
        except (AttributeError, TypeError) as problem:
            raise self._explained(problem, "[{%s}, ...]") from None

    def _paired(self, items: Iterable[tuple[Fields, T]]) -> list[tuple[str, T]]:
        """The keys of several sets of fields, each with what it comes with."""
        try:
            return [(self._render(fields), item) for fields, item in items]
        except (AttributeError, TypeError, ValueError) as problem:
            raise self._explained(problem, "[({%s}, ...), ...]") from None

    def _explained(self, problem: Exception, form: str) -> Exception:
        """What is wrong with a batch that is no sequence of mappings; other errors say it themselves."""
        if isinstance(problem, EphemeraError):
            return problem
        template = self.keyspace.template
        shown = form % ", ".join(f"{name!r}: ..." for name in template.fields)
        return WrongFields(template.pattern, template.fields, (f"a batch of another form than {shown}",))

    # One trip each; what the kinds' own operations are made of.

    def _packing(self, name: str) -> tuple[str, list[str], str, int] | None:
        """How a reading command is packed while its key is rendered, if the pattern has one field.

        That field, then what `packed_read_parts` gives, and the length up to which it can. Most ids are
        letters and digits, which need no encoding: with such a one, a whole read is a tenth faster so.
        """
        found = self.keyspace.template.one_field
        if found is None or found[3] < 1:
            return None
        field, before, after, longest = found
        longest = min(longest, _LONGEST_ID)
        return field, *packed_read_parts(name, before, after, longest), longest

    def _asking(self, name: str) -> Callable[[Fields], Awaitable[Any]]:
        """What sends a reading command of one key, given its fields; `ValueAccessor.get` has a copy."""
        render, call, send, packing = self._render, self._call, self._send, self._packing(name)
        if packing is None:
            return lambda fields: call(name, render(fields))
        field, heads, end, longest = packing

        def ask(fields: Fields) -> Awaitable[Any]:
            value: Any = fields.get(field)
            simple = value.__class__ is str and value.isalnum() and value.isascii()
            if simple and len(value) <= longest and len(fields) == 1:
                return send((heads[len(value)] + value + end).encode())
            return call(name, render(fields))

        return ask

    async def _ask(self, *command: Arg) -> Any:
        """The reply to one command."""
        try:
            return await self._call(*command)
        except REDIS_ERRORS:
            self.stats.errors += 1
            raise

    async def _all(self, calls: Iterable[Awaitable[Any]]) -> list[Any]:
        """The replies to several calls, issued before the first is waited for."""
        issued: list[Awaitable[Any]] = []
        try:
            issued.extend(calls)
            return [await each for each in issued]
        except BaseException as problem:
            self._give_up(issued, problem)
            raise

    async def _read(self, name: str, key: str, *arguments: Arg) -> Any:
        """The reply to a reading command, which renews a sliding lifetime."""
        if self._renewal is None:
            return await self._ask(name, key, *arguments)
        issued: tuple[Awaitable[Any], ...] = ()
        try:
            issued = self._renewing(name, key, arguments, self._renewal)
            reply = await issued[0]
            await issued[1]
        except BaseException as problem:
            self._give_up(issued, problem)
            raise
        return reply

    async def _read_all(self, name: str, keys: Iterable[str]) -> list[Any]:
        """The reply to a reading command for each key, renewing as `_read` does."""
        life = self._renewal
        if life is None:
            return await self._all(self._call(name, key) for key in keys)
        calls = (call for key in keys for call in self._renewing(name, key, (), life))
        return (await self._all(calls))[::2]

    def _renewing(
        self, name: str, key: str, arguments: Sequence[Arg], life: int
    ) -> tuple[Awaitable[Any], Awaitable[Any]]:
        return self._call(name, key, *arguments), self._call("PEXPIRE", key, life)

    def _give_up(self, issued: Iterable[Awaitable[Any]], problem: BaseException) -> None:
        """Count what failed, and let the other replies go by."""
        self.stats.errors += isinstance(problem, REDIS_ERRORS)
        for each in issued:
            _let_go(asyncio.ensure_future(each))

    async def _put(
        self,
        key: str,
        *writes: Command,
        until: Instant | None,
        value: object = None,
        guard: Arg = "",
    ) -> list[Any] | None:
        """Replace what the key holds; the replies, or None when nothing was written."""
        rule = self.keyspace.lifetime.on_put
        return await self._write(rule, key, writes, await self._end(until, value), guard)

    async def _change(
        self, key: str, *writes: Command, until: Instant | None = None, guard: Arg = ""
    ) -> list[Any] | None:
        """Change part of what the key holds; the replies, or None when nothing was written."""
        rule = self.keyspace.lifetime.on_change
        return await self._write(rule, key, writes, await self._end(until), guard)

    async def _change_existing(
        self, key: str, *writes: Command, until: Instant | None = None, guard: Arg = ""
    ) -> list[Any] | None:
        """As `_change`, by writes that never create the key: an `until` space needs no instant."""
        if until is None and isinstance(self.keyspace.lifetime, Until):
            return await self._write("none", key, writes, 0, guard)
        return await self._change(key, *writes, until=until, guard=guard)

    async def _write(
        self, rule: str, key: str, writes: Sequence[Command], end: int, guard: Arg = ""
    ) -> list[Any] | None:
        try:
            replies: list[Any] | None
            if rule == "none" and not guard and len(writes) == 1:
                name, *arguments = writes[0]
                self.stats.bytes_written += payload_size(arguments)
                replies = [await self._call(name, key, *arguments)]
            else:
                replies = await self._writing(rule, key, writes, end, guard)
        except REDIS_ERRORS:
            self.stats.errors += 1
            raise
        self.stats.writes += replies is not None
        return replies

    def _writing(
        self, rule: str, key: str, writes: Iterable[Command], end: int, guard: Arg = ""
    ) -> Awaitable[list[Any] | None]:
        arguments: list[Arg] = [rule, end, guard]
        for write in writes:
            arguments.append(len(write) - 1)
            arguments.extend(write)
        self.stats.bytes_written += payload_size(arguments)
        return self._run(WRITE, (key,), arguments)

    async def _end(self, until: Instant | None, value: object = None) -> int:
        """What `write.lua` takes as the life: milliseconds, or the instant of an `until` space."""
        lifetime = self.keyspace.lifetime
        try:
            if isinstance(lifetime, Until):
                return await self._instant(lifetime, until, value)
            if until is not None:
                raise InvalidLifetime(f"its lifetime is {lifetime}; until= is for until() spaces")
        except InvalidLifetime as problem:
            raise InvalidLifetime(f"{self.keyspace.pattern!r}: {problem}") from None
        return lifetime.milliseconds or 0

    async def _instant(self, lifetime: Until, until: Instant | None, value: object) -> int:
        end = lifetime.end(until, value)
        if lifetime.is_too_far(end):
            # This machine's clock may be behind, and the server's is the one that keys live by.
            seconds, _ = await self._ask("TIME")
            if lifetime.is_too_far(end, int(seconds)):
                raise InvalidLifetime(f"its lifetime is {lifetime}; until={end / 1000:.0f} is further ahead")
        return end


def payload_size(arguments: Iterable[Any]) -> int:
    """How many bytes the encoded ones among some arguments, or the parts of a reply, have."""
    return sum([len(each) for each in arguments if each.__class__ is bytes])


def in_chunks(name: str, arguments: Sequence[Arg]) -> list[Command]:
    """One write of many arguments as several that a script can pass on."""
    starts = range(0, len(arguments), _MOST_ARGUMENTS)
    return [(name, *arguments[start : start + _MOST_ARGUMENTS]) for start in starts]


def _let_go(future: asyncio.Future[Any]) -> None:
    """Nobody waits for this reply any more, nor for its error."""
    if not future.cancel() and not future.cancelled():
        future.exception()
