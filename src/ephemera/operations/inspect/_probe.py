"""What the sampled keys are: type, time to live, size, and a look at what they hold.

Commands go out in pipelines of at most 100, so that whoever else uses the server waits for no more than
that. No command changes a key, nor when it was last used, where the server has `CLIENT NO-TOUCH` (Redis 7.2,
Valkey); where it has not, looking at what a key holds counts as a use of it. All of them but MEMORY USAGE
raise the server's `keyspace_hits` by one (`keyspace_misses`, if the key has gone meanwhile): `lookups`
counts how often that was.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ephemera.errors import ConnectionFailed, ServerError, StoreClosed
from ephemera.operations.inspect._contents import Group, groups_of, reading, sizing
from ephemera.wire import Arg, NodeClient

Command = tuple[Arg, ...]
Look = Callable[["Probe", Any], Any]
"""What to make of a key's content, given the server's reply."""

PIPELINE = 100
"""Commands in one write."""

_TOGETHER = PIPELINE // 3  # keys: the first look at each takes three commands
_NO_TOUCH = ("CLIENT", "NO-TOUCH", "ON")


@dataclass(slots=True)
class Probe:
    """A key to look at, and what was found out about it; without `look` its content is left alone."""

    key: bytes
    look: Look | None = None
    type: str = "none"
    ttl: int = -2  # milliseconds; -1: no end, -2: it is gone
    size: int | None = None  # bytes, or None when the server does not tell
    members: int = 0
    groups: list[Group] = field(default_factory=list)
    content: Any = None
    unread: bool = False  # `look` wanted the content, but it is too large

    @property
    def there(self) -> bool:
        """Whether the key was still there."""
        return self.type != "none" and self.ttl != -2


class Prober:
    """Looks at keys of one server, and counts what that did to the server's statistics."""

    def __init__(self, node: NodeClient, *, no_touch: bool) -> None:
        self.node = node
        self.no_touch = no_touch
        self.lookups = 0
        self.looked_into = 0  # keys whose members or content were asked for
        self.refused: dict[str, str] = {}  # commands that failed, and what the server said

    @classmethod
    async def of(cls, node: NodeClient) -> Prober:
        """A prober that leaves it alone when a key was last used, if the server can."""
        try:
            await node.set_up(*_NO_TOUCH)
        except ServerError:
            return cls(node, no_touch=False)
        return cls(node, no_touch=True)

    async def probe(self, probes: Sequence[Probe], deadline: float, tell: Callable[[int], None]) -> None:
        """Find out about these keys, telling how many more are done, until the deadline (`monotonic`)."""
        try:
            for start in range(0, len(probes), _TOGETHER):
                if time.monotonic() >= deadline:
                    break
                some = probes[start : start + _TOGETHER]
                await self._probe(some)
                tell(len(some))
        except (ConnectionFailed, StoreClosed) as problem:
            self.refused["TYPE"] = str(problem)

    async def _probe(self, probes: Sequence[Probe]) -> None:
        await self._step(probes, _first_look, _first_seen)
        looked_into = [probe for probe in probes if probe.look is not None and probe.there]
        self.looked_into += len(looked_into)
        await self._step(looked_into, lambda probe: sizing(probe.type, probe.key), _sized)
        await self._step(looked_into, _reading, _read)

    async def _step(
        self,
        probes: Sequence[Probe],
        ask: Callable[[Probe], list[Command]],
        take: Callable[[Probe, list[Any]], None],
    ) -> None:
        """Ask something about all keys together, then let each take its replies."""
        commands = [ask(probe) for probe in probes]
        replies = iter(await self._replies([command for some in commands for command in some]))
        for probe, some in zip(probes, commands, strict=True):
            take(probe, [next(replies) for _ in some])

    async def _replies(self, commands: list[Command]) -> list[Any]:
        """The replies, None for what was refused."""
        replies: list[Any] = []
        for some in _pipelines(commands):
            sent = [asyncio.ensure_future(self.node.call(*command)) for command in some]
            self.lookups += sum(command[0] != "MEMORY" for command in some)
            settled = await asyncio.gather(*sent, return_exceptions=True)
            replies += map(self._reply, some, settled)
        return replies

    def _reply(self, command: Command, reply: Any) -> Any:
        if isinstance(reply, ServerError):
            if reply.code != "WRONGTYPE" and "no such key" not in reply.message:  # it has changed meanwhile
                self.refused.setdefault(str(command[0]), reply.message)
            return None
        if isinstance(reply, BaseException):
            raise reply
        return reply


def _first_look(probe: Probe) -> list[Command]:
    return [("TYPE", probe.key), ("PTTL", probe.key), ("MEMORY", "USAGE", probe.key)]


def _first_seen(probe: Probe, replies: list[Any]) -> None:
    kind, ttl, probe.size = replies
    if kind is not None and ttl is not None:
        probe.type, probe.ttl = kind.decode() if isinstance(kind, bytes) else kind, ttl


def _sized(probe: Probe, replies: list[Any]) -> None:
    if replies and replies[0] is not None:
        probe.members = replies[0]
        probe.groups = groups_of(replies[1] or ()) if len(replies) > 1 else []


def _reading(probe: Probe) -> list[Command]:
    command = None if probe.size is None else reading(probe.type, probe.key, probe.size, probe.members)
    probe.unread = command is None
    return [] if command is None else [command]


def _read(probe: Probe, replies: list[Any]) -> None:
    if replies and replies[0] is not None and probe.look is not None:
        probe.content = probe.look(probe, replies[0])


def _pipelines(commands: Sequence[Command]) -> Iterator[Sequence[Command]]:
    for start in range(0, len(commands), PIPELINE):
        yield commands[start : start + PIPELINE]
