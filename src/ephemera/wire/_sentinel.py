"""The client of a master that Sentinels watch.

Each connection starts with asking the Sentinels for the master's address; only an address that a majority of
those in the URL names is taken: on the small side of a split network the answer may be old. An address
counts only when the server there says that it is a master; until one does, calls fail as `Unavailable`. A
master that was replaced may not say so for a while: after a manual fail-over it stays a master for ten
seconds, and what is written to it then is lost. So the client subscribes to every Sentinel as well, and asks
them all again as soon as one names another master.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ephemera._futures import cancel_all
from ephemera.errors import CannotConnect, EphemeraError, ServerError, Unavailable
from ephemera.wire._commands import as_text
from ephemera.wire._connection import Entry
from ephemera.wire._dedicated_connections import NonRecoveringOwner
from ephemera.wire._handshake import Endpoint, open_connection
from ephemera.wire._link import Link
from ephemera.wire._node_client import NodeClient
from ephemera.wire._url import Address, Target

_SWITCH = "+switch-master"


class SentinelClient(NodeClient):
    """The client of the server that its Sentinels name as the master."""

    def __init__(self, target: Target) -> None:
        self._sentinels = Sentinels(target, self._on_switch)
        super().__init__(self._sentinels.endpoint, redirect=self._on_readonly, on_state=self._on_up)

    async def start(self, *, required: bool = True) -> None:
        """Connect to the master, and subscribe to the Sentinels."""
        await super().start(required=required)
        self._sentinels.subscribe()

    async def aclose(self) -> None:
        """Disconnect everything."""
        await self._sentinels.aclose()
        await super().aclose()

    def _on_switch(self) -> bool:
        """Leave the former master; False when there is no connection to leave yet."""
        was_up = self.up
        self.relocate("its Sentinels name another master")
        return was_up

    def _on_up(self, up: bool) -> None:
        if up:
            self._sentinels.check_master()

    def _on_readonly(self, entry: Entry, error: ServerError) -> bool:
        """Leave a server that was demoted; False for any other error."""
        if error.code != "READONLY":
            return False
        self.relocate("it is a replica now")
        if not entry.reply.done():
            entry.reply.set_exception(Unavailable(self.endpoint.name, "it is a replica now"))
        return True


class Sentinels:
    """The Sentinels of one master: where it is, and a notification of every switch."""

    def __init__(self, target: Target, on_switch: Callable[[], bool]) -> None:
        name = f"{target.master} (by Sentinel {','.join(map(str, target.addresses))})"
        self.endpoint = Endpoint(
            target, target.credentials, self._locate, name, must_be_master=True, source=target.source
        )
        self._target = target
        self._on_switch = on_switch
        self._connected_to: Address | None = None
        self._announced: Address | None = None
        self._links = [self._link(address) for address in target.addresses]

    def subscribe(self) -> None:
        """Subscribe to every Sentinel; each is also asked as soon as it is reached, for earlier switches."""
        for link in self._links:
            link.start_later()

    async def aclose(self) -> None:
        """Disconnect from all of them."""
        await asyncio.gather(*(link.aclose() for link in self._links))

    def check_master(self) -> None:
        """Have the client leave its master, once, if a Sentinel has named another since it connected."""
        if self._announced not in (None, self._connected_to) and self._on_switch():
            self._announced = None

    async def _locate(self) -> Address:
        self._connected_to = await _elect_address(self._target, self.endpoint.name)
        return self._connected_to

    def _link(self, address: Address) -> Link:
        def ask(up: bool) -> None:
            if up:
                link.send_args(_master_query(self._target)).add_done_callback(self._on_answer)

        link = Link(_sentinel_endpoint(self._target, address), on_push=self._on_push, on_state=ask)
        link.setup.append(("SUBSCRIBE", _SWITCH))
        return link

    def _on_push(self, push: list[Any]) -> None:
        """Parse `mymaster old-host old-port new-host new-port`."""
        if push[0] == b"message":
            words = as_text(push[2]).split(" ")
            if len(words) == 5 and words[0] == self._target.master:
                self._on_master(_parse_address(words[3:]))

    def _on_answer(self, answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            self._on_master(_parse_address(answer.result()))

    def _on_master(self, master: Address | None) -> None:
        if master is not None:
            self._announced = master
            self.check_master()


async def _elect_address(target: Target, name: str) -> Address:
    """The address that a majority of the Sentinels names, as soon as it does."""
    asked = [asyncio.ensure_future(_ask(target, address)) for address in target.addresses]
    votes: Counter[Address] = Counter()
    problems = []
    try:
        for answer in asyncio.as_completed(asked, timeout=target.connect_timeout / 2):
            try:
                votes[await answer] += 1
            except EphemeraError as problem:
                problems.append(str(problem))
            except TimeoutError:
                problems.append("a Sentinel did not answer")
            if votes and max(votes.values()) > len(asked) // 2:
                return votes.most_common(1)[0][0]
    finally:
        await cancel_all(asked)
    problems += [f"{count} of {len(asked)} Sentinels name {address}" for address, count in votes.items()]
    advice = "A majority must name the same master: are the Sentinels up and the name right?"
    raise CannotConnect(name, "; ".join(problems), advice)


async def _ask(target: Target, sentinel: Address) -> Address:
    endpoint = _sentinel_endpoint(target, sentinel)
    connection = await open_connection(endpoint, NonRecoveringOwner(endpoint))
    try:
        reply = await connection.send_internal(*_master_query(target))
    finally:
        connection.abort("answered")
        await connection.lost
    if reply is None:
        raise CannotConnect(str(sentinel), f"it watches no master {target.master!r}", "Check the name")
    address = _parse_address(reply)
    if address is None:
        raise CannotConnect(str(sentinel), "it names a master without an address", "Is it a Sentinel?")
    return address


def _sentinel_endpoint(target: Target, sentinel: Address) -> Endpoint:
    return Endpoint.at(sentinel, replace(target, kind="standalone", database=0), mode="sentinel")


def _master_query(target: Target) -> tuple[str, str, str]:
    return "SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.master


def _parse_address(fields: Any) -> Address | None:
    """The host and port in a Sentinel's answer; None when there are none."""
    try:
        host, port = fields
        return Address(as_text(host), int(port))
    except (TypeError, ValueError, OverflowError):
        return None
