"""What a node of a cluster answers when it cannot run a command, and where the command goes then.

- MOVED and ASK are followed in the caller's place. Nodes that do not agree yet send a command to and fro;
  from the fifth time on there is a pause before each step, which gives them about a timeout to agree.
- TRYAGAIN (some keys of one command have moved, some have not) is tried again after the same pause.
- What was redirected was not executed, so whoever is given up on gets `Unavailable`.
- CROSSSLOT becomes an error that names the keys and their slots.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ephemera.errors import CrossSlot, EphemeraError, ServerError, Unavailable
from ephemera.wire._commands import Arg, all_keys, as_text, command_name
from ephemera.wire._connection import Entry
from ephemera.wire._slots import key_slot
from ephemera.wire._topology import redirection
from ephemera.wire._url import Address

if TYPE_CHECKING:
    from ephemera.wire._cluster import ClusterClient

_MOST = 16
_HASTY = 4
_PAUSE = 0.02
_ON_THE_MOVE = "its slot is on the move from one node to another"


class Redirections:
    """The commands of one cluster that are on their way from one node to another."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._under_way: set[asyncio.Task[None]] = set()

    def follow(self, entry: Entry, error: ServerError) -> bool:
        """Send a refused command where it belongs, or fail it; False when the error is the caller's."""
        if entry.reply.done():
            return True
        address = self._address(error)
        if address is not None or error.code == "TRYAGAIN":
            self._send_on(entry, address, asking=error.code == "ASK")
            return True
        final = self._final(error, entry.args)
        if final is error:
            return False
        entry.reply.set_exception(final)
        return True

    async def block(self, args: tuple[Arg, ...]) -> Any:
        """Run a blocking command where its key is; when the slot moves, wait anew where it went."""
        node, asking = self._cluster.node_for(args), False
        for attempt in range(_MOST):
            try:
                return await node.block(args, asking=asking)
            except ServerError as error:
                refusal = error
            address, asking = self._address(refusal), refusal.code == "ASK"
            if address is None and refusal.code != "TRYAGAIN":
                raise self._final(refusal, args)
            if address is None or attempt >= _HASTY:
                await asyncio.sleep(_PAUSE)
                node, asking = self._cluster.node_for(args), False
            else:
                node = await self._cluster.node(address)
        raise self._cluster.unavailable(_ON_THE_MOVE)

    async def settled(self) -> None:
        """Wait for those that are under way."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def _address(self, error: ServerError) -> Address | None:
        """Where the error says to go; a slot that has moved for good makes the map of slots stale."""
        address = redirection(error.message, self._cluster.target.addresses[0])
        if error.code == "MOVED":
            self._cluster.refresh_soon(address)
        return address

    def _final(self, error: ServerError, args: tuple[Arg, ...]) -> EphemeraError:
        """The error for the caller of a command that cannot be sent on."""
        if error.code in ("CLUSTERDOWN", "MASTERDOWN"):
            self._cluster.refresh_soon()
            return Unavailable(self._cluster.name, error.message)
        return _cross_slot(args) if error.code == "CROSSSLOT" else error

    def _send_on(self, entry: Entry, address: Address | None, *, asking: bool) -> None:
        if entry.attempts >= _MOST:
            entry.reply.set_exception(self._cluster.unavailable(_ON_THE_MOVE))
        elif address is None or entry.attempts >= _HASTY:
            self._later(entry, self._after_pause(entry))
        elif (node := self._cluster.known(address)) is not None and node.up:
            node.link.resend(entry, asking=asking)
        else:
            self._later(entry, self._at_new_node(entry, address, asking=asking))

    async def _after_pause(self, entry: Entry) -> None:
        await asyncio.sleep(_PAUSE)
        self._cluster.node_for(entry.args).link.resend(entry)

    async def _at_new_node(self, entry: Entry, address: Address, *, asking: bool) -> None:
        node = await self._cluster.node(address)
        node.link.resend(entry, asking=asking)

    def _later(self, entry: Entry, sending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(_or_fail(entry, sending))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)


async def _or_fail(entry: Entry, sending: Coroutine[Any, Any, None]) -> None:
    try:
        await sending
    except EphemeraError as error:
        if not entry.reply.done():
            entry.reply.set_exception(error)


def _cross_slot(args: tuple[Arg, ...]) -> CrossSlot:
    name = command_name(args)
    keys = all_keys(name, args)
    placed = ", ".join(f"{as_text(key)!r} in slot {key_slot(key)}" for key in keys[:4])
    more = f" and {len(keys) - 4} more" if len(keys) > 4 else ""
    return CrossSlot(
        f"CROSSSLOT its keys live in different slots of the cluster: {placed}{more}. "
        "Give them a common hash tag (declare the pattern with hash_tag=...), or use one call per key",
        name,
    )
