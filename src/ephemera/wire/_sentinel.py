"""Where the master is: the Sentinels' answer, by majority, asked anew for each connection.

An address counts only when the server there calls itself a master; until one does, calls fail as
`Unavailable`. A master that was replaced need not say so soon: after a fail-over by hand it stays a master
for ten seconds, and what is written to it then is lost. So each Sentinel is listened to as well, and as soon
as one names another master, the client asks them all again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ephemera.errors import CannotConnect, EphemeraError
from ephemera.wire._commands import as_text
from ephemera.wire._dedicated import Settler
from ephemera.wire._handshake import Endpoint, open_connection
from ephemera.wire._link import Link
from ephemera.wire._url import Address, Target

_SWITCH = "+switch-master"


class Sentinels:
    """The Sentinels of one master: where it is, and word of every switch."""

    def __init__(self, target: Target, on_switch: Callable[[], bool]) -> None:
        name = f"{target.master} (by Sentinel {','.join(map(str, target.addresses))})"
        self.endpoint = Endpoint(target, target.credentials, self._locate, name, must_be_master=True)
        self._target = target
        self._on_switch = on_switch
        self._master: Address | None = None
        self._named: Address | None = None
        self._links = [self._link(address) for address in target.addresses]

    def listen(self) -> None:
        """Hear of switches from now on, and of those before from each Sentinel as it is reached."""
        for link in self._links:
            link.start_later()

    async def aclose(self) -> None:
        """Listen no more."""
        await asyncio.gather(*(link.aclose() for link in self._links))

    async def _locate(self) -> Address:
        self._master = await _master(self._target, self.endpoint.name)
        return self._master

    def _link(self, address: Address) -> Link:
        def ask(up: bool) -> None:
            if up:
                link.send(*_question(self._target)).add_done_callback(self._answered)

        link = Link(_place(self._target, address), listener=self._heard, on_state=ask)
        link.setup.append(("SUBSCRIBE", _SWITCH))
        return link

    def _heard(self, push: list[Any]) -> None:
        """Take `mymaster old-host old-port new-host new-port`."""
        if push[0] == b"message":
            words = as_text(push[2]).split(" ")
            if len(words) == 5 and words[0] == self._target.master:
                self._told(_address(words[3:]))

    def _answered(self, answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            self._told(_address(answer.result()))

    def _told(self, master: Address | None) -> None:
        if master is not None:
            self._named = master
            self.compare()

    def compare(self) -> None:
        """Have the master left, once, when a Sentinel names another than the one last connected to."""
        if self._named not in (None, self._master) and self._on_switch():
            self._named = None


async def _master(target: Target, name: str) -> Address:
    """The address most Sentinels give, as soon as a majority agrees."""
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
                break
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    if not votes:
        raise CannotConnect(name, "; ".join(problems), "Are the Sentinels up and the name right?")
    return votes.most_common(1)[0][0]


async def _ask(target: Target, sentinel: Address) -> Address:
    place = _place(target, sentinel)
    connection = await open_connection(place, Settler(place))
    try:
        reply = await connection.send(*_question(target))
    finally:
        connection.abort("answered")
        await connection.lost
    if reply is None:
        raise CannotConnect(str(sentinel), f"it watches no master {target.master!r}", "Check the name")
    address = _address(reply)
    if address is None:
        raise CannotConnect(str(sentinel), "it names a master without an address", "Is it a Sentinel?")
    return address


def _place(target: Target, sentinel: Address) -> Endpoint:
    async def here() -> Address:
        return sentinel

    plain = replace(target, kind="standalone", database=0)
    return Endpoint(plain, target.sentinel_credentials, here, str(sentinel), mode="sentinel")


def _question(target: Target) -> tuple[str, str, str]:
    return "SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.master


def _address(told: Any) -> Address | None:
    """The host and port that a Sentinel tells; None when it tells none."""
    try:
        host, port = told
        return Address(as_text(host), int(port))
    except (TypeError, ValueError, OverflowError):
        return None
