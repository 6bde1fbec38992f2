"""Commands that a node of a cluster cannot run, and where they go instead.

- MOVED and ASK are followed on behalf of the caller. Nodes that do not agree yet send a command back and
  forth; from the fifth redirection on there is a pause before each, which gives them about a timeout to
  agree.
- TRYAGAIN (some keys of a command have moved, some have not) is retried after the same pause.
- A redirected command was not executed, so a caller whose command is given up gets `Unavailable`.
- CROSSSLOT becomes an error that names the keys and their slots.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ephemera.errors import CrossSlot, EphemeraError, ServerError, Unavailable
from ephemera.wire._cluster_nodes import ClusterNodes
from ephemera.wire._commands import Arg, all_keys, as_text, command_name
from ephemera.wire._connection import Entry
from ephemera.wire._slots import key_slot, parse_redirection
from ephemera.wire._url import Address

_MOST = 16  # redirections of one command
_WITHOUT_PAUSE = 4
_PAUSE = 0.02  # seconds
_IS_MOVING = "its slot is moving from one node to another"


class Redirections:
    """The commands of one cluster that are in transit from one node to another."""

    def __init__(self, nodes: ClusterNodes) -> None:
        self._nodes = nodes
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, entry: Entry, error: ServerError) -> bool:
        """Send a refused command where it belongs, or fail it; False when the error is for the caller."""
        if entry.reply.done():
            return True
        address = self._redirected_to(error)
        if address is not None or error.code == "TRYAGAIN":
            self._resend(entry, address, asking=error.code == "ASK")
            return True
        final = self._final_error(error, entry.args)
        if final is error:
            return False
        entry.reply.set_exception(final)
        return True

    async def block(self, args: tuple[Arg, ...]) -> Any:
        """Run a blocking command on the node of its key; when the slot moves, start over at its new node."""
        node, asking = self._nodes.node_for(args), False
        for attempt in range(_MOST):
            try:
                return await node.block(args, asking=asking)
            except ServerError as error:
                refusal = error
            address, asking = self._redirected_to(refusal), refusal.code == "ASK"
            if address is None and refusal.code != "TRYAGAIN":
                raise self._final_error(refusal, args)
            if address is None or attempt >= _WITHOUT_PAUSE:
                await asyncio.sleep(_PAUSE)
                node, asking = self._nodes.node_for(args), False
            else:
                node = await self._nodes.node(address)
        raise self._nodes.unavailable(_IS_MOVING)

    async def finished(self) -> None:
        """Wait for the commands that are in transit."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _redirected_to(self, error: ServerError) -> Address | None:
        """Where an error redirects to; MOVED, which is for good, makes the slot map stale."""
        address = parse_redirection(error.message, self._nodes.target.addresses[0])
        if error.code == "MOVED":
            self._nodes.refresh_soon(address)
        return address

    def _final_error(self, error: ServerError, args: tuple[Arg, ...]) -> EphemeraError:
        """The error for the caller of a command that cannot be redirected."""
        if error.code in ("CLUSTERDOWN", "MASTERDOWN"):
            self._nodes.refresh_soon()
            return Unavailable(self._nodes.name, error.message)
        return _cross_slot(args) if error.code == "CROSSSLOT" else error

    def _resend(self, entry: Entry, address: Address | None, *, asking: bool) -> None:
        if entry.attempts >= _MOST:
            entry.reply.set_exception(self._nodes.unavailable(_IS_MOVING))
        elif address is None or entry.attempts >= _WITHOUT_PAUSE:
            self._start(entry, self._resend_after_pause(entry))
        elif (node := self._nodes.connected(address)) is not None:
            node.link.resend(entry, asking=asking)
        else:
            self._start(entry, self._resend_to_new_node(entry, address, asking=asking))

    async def _resend_after_pause(self, entry: Entry) -> None:
        await asyncio.sleep(_PAUSE)
        self._nodes.node_for(entry.args).link.resend(entry)

    async def _resend_to_new_node(self, entry: Entry, address: Address, *, asking: bool) -> None:
        node = await self._nodes.node(address)
        node.link.resend(entry, asking=asking)

    def _start(self, entry: Entry, resending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(_or_fail(entry, resending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _or_fail(entry: Entry, resending: Coroutine[Any, Any, None]) -> None:
    try:
        await resending
    except EphemeraError as error:
        if not entry.reply.done():
            entry.reply.set_exception(error)


def _cross_slot(args: tuple[Arg, ...]) -> CrossSlot:
    name = command_name(args)
    keys = all_keys(name, args)
    listed = ", ".join(f"{as_text(key)!r} in slot {key_slot(key)}" for key in keys[:4])
    more = f" and {len(keys) - 4} more" if len(keys) > 4 else ""
    return CrossSlot(
        f"CROSSSLOT its keys are in different slots of the cluster: {listed}{more}. "
        "Give them a common hash tag (declare the pattern with hash_tag=...), or use one call per key",
        name,
    )
