"""Where the master is: the Sentinels' answer, by majority, asked anew for each connection.

A fail-over ends the old master's connections (Sentinel sees to it), or it stops answering, or it answers
READONLY. Each of these makes the link connect again, and so ask again. An address counts only when the server
there calls itself a master; until one does, calls fail as `Unavailable`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from ephemera.errors import CannotConnect, EphemeraError
from ephemera.wire.commands import as_text
from ephemera.wire.dedicated import Settler
from ephemera.wire.handshake import Endpoint, open_connection
from ephemera.wire.url import Address

if TYPE_CHECKING:
    from ephemera.wire.url import Target


def endpoint(target: Target) -> Endpoint:
    """The endpoint that is wherever the Sentinels say the master is."""
    sentinels = ",".join(map(str, target.addresses))
    name = f"{target.master} (by Sentinel {sentinels})"

    async def locate() -> Address:
        return await _master(target, name)

    return Endpoint(target, target.credentials, locate, name, must_be_master=True)


async def _master(target: Target, name: str) -> Address:
    """The address most Sentinels give, as soon as a majority agrees."""
    asked = [asyncio.ensure_future(_ask(target, address)) for address in target.addresses]
    votes: Counter[Address] = Counter()
    problems = []
    try:
        for answer in asyncio.as_completed(asked, timeout=target.connect_timeout / 2):
            try:
                votes[await answer] += 1
            except (EphemeraError, TimeoutError) as problem:
                problems.append(str(problem))
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
    async def here() -> Address:
        return sentinel

    place = Endpoint(
        replace(target, kind="standalone", database=0),
        target.sentinel_credentials,
        here,
        str(sentinel),
        mode="sentinel",
    )
    connection = await open_connection(place, Settler(place))
    try:
        reply = await connection.send("SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.master)
    finally:
        connection.abort("answered")
        await connection.lost
    if reply is None:
        raise CannotConnect(str(sentinel), f"it watches no master {target.master!r}", "Check the name")
    return Address(as_text(reply[0]), int(reply[1]))
