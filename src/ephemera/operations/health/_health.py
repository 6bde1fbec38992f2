"""Whether a server is well, and what to do when it is not: `ephemera doctor`, and `/healthz` of a service.

Each check has its figure, its rule and, when the rule is broken, advice. Nothing is scanned and nothing is
written: a check-up is INFO, some PINGs one after the other, TIME, and SLOWLOG where the user may ask it. A
server that cannot be asked is itself the answer. What a server counts since it started, such as hits and
evictions, is judged as such; `since` tells how long that is.

The status is that of the worst check: `problem` when something is lost, refused or about to be, `warning`
when it will go wrong some day or a larger server would serve better.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from time import perf_counter, time
from typing import Any

import msgspec

from ephemera.errors import ConnectionFailed, EphemeraError, ServerError
from ephemera.keyspace import Catalogue, Keyspace, Role, read_identity
from ephemera.operations.health._checks import (
    Check,
    Latency,
    Status,
    Vitals,
    checks_of,
    problem,
    worst,
    worst_first,
)
from ephemera.operations.inspect._server_facts import facts_of, info
from ephemera.wire import Client, NodeClient, open_client

PROBES = 200
"""PINGs of a check-up, one after the other: enough for a p99 that is not the slowest alone."""
_PATIENCE = 5.0  # seconds that all of one server's answers may take


class ServerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One server and its checks, worst first."""

    name: str
    status: Status
    version: str = ""
    since: int = 0
    """Seconds that it runs."""
    used_memory: int = 0
    max_memory: int = 0
    keys: int = 0
    checks: list[Check]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """A check-up of all servers behind a URL."""

    status: Status
    servers: list[ServerHealth]

    @property
    def advice(self) -> list[Check]:
        """The checks that call for something to be done, worst first."""
        found = [check for server in self.servers for check in server.checks if check.status != "ok"]
        return worst_first(found)


async def check_up(
    url: str,
    catalogues: Iterable[Catalogue] = (),
    *,
    role: Role | None = None,
    identity: str | None = None,
    probes: int = PROBES,
) -> Health:
    """A check-up of the servers that a URL names, against the spaces that they should carry."""
    try:
        async with open_client(url) as client:
            return await examine(client, catalogues, role=role, identity=identity, probes=probes)
    except ConnectionFailed as error:
        return _unreachable(error.address, error)


async def examine(
    client: Client,
    catalogues: Iterable[Catalogue] = (),
    *,
    role: Role | None = None,
    identity: str | None = None,
    probes: int = PROBES,
) -> Health:
    """The same through an open client, such as `store.client("cache")`."""
    spaces = [
        space
        for catalogue in catalogues
        for space in catalogue
        if space.kind != "channel" and role in (None, space.role)
    ]
    nodes: Sequence[Any] = client.nodes()
    if not nodes:
        return _unreachable("the cluster", "no master is connected")
    mark = await _mark(client, identity)
    servers = await asyncio.gather(*(_server(node, spaces, mark, probes, role) for node in nodes))
    return Health(status=worst(server.status for server in servers), servers=list(servers))


async def _server(
    node: NodeClient, spaces: list[Keyspace[Any]], mark: Check | None, probes: int, role: Role | None
) -> ServerHealth:
    try:
        async with asyncio.timeout(_PATIENCE):
            latency = await _latency(node, probes)
            said = await info(node)
            offset = await _clock(node)
            slow = await _slow(node)
    except (ConnectionFailed, ServerError, TimeoutError) as error:
        return _unreachable(str(node.endpoint), error).servers[0]
    facts = facts_of(node, said)
    vitals = Vitals.of(said, latency, offset, slow)
    checks = [*([mark] if mark else []), *checks_of(facts, vitals, spaces, role)]
    return ServerHealth(
        name=facts.name,
        status=worst(check.status for check in checks),
        version=f"{facts.software} {facts.version}",
        since=vitals.uptime,
        used_memory=facts.used_memory,
        max_memory=facts.max_memory,
        keys=facts.keys,
        checks=worst_first(checks),
    )


async def _mark(client: Client, identity: str | None) -> Check | None:
    try:
        found = await read_identity(client)
    except EphemeraError as error:
        if identity is None:
            return None
        return problem("identity", f"the mark cannot be read ({error})", "the mark is the expected one", "")
    figure = "no mark" if found is None else f"marked as {found!r}"
    if identity is None or found == identity:
        return Check(name="identity", status="ok", figure=figure, rule="the mark is the expected one")
    return problem(
        "identity",
        figure,
        f"it must be marked as {identity!r}",
        f"correct the URL, or if it is the right server: ephemera mark --url URL --name {identity}",
    )


async def _latency(node: NodeClient, probes: int) -> Latency:
    taken = []
    for _ in range(max(1, probes)):
        began = perf_counter()
        await node.call("PING")
        taken.append(perf_counter() - began)
    return Latency.of(taken)


async def _clock(node: NodeClient) -> float:
    """Seconds that the server's clock is ahead of ours; the trip is shared between there and back."""
    before = time()
    seconds, micros = await node.call("TIME")
    after = time()
    return int(seconds) + int(micros) / 1e6 - (before + after) / 2


async def _slow(node: NodeClient) -> int | None:
    """Entries of the slow log, or None when the user may not look."""
    try:
        return int(await node.call("SLOWLOG", "LEN"))
    except ServerError:
        return None


def _unreachable(name: str, error: object) -> Health:
    text = str(error) or type(error).__name__
    check = problem(
        "reachable", text, f"it answers within {_PATIENCE:g} s", "is it running, and is the URL right?"
    )
    return Health(status="problem", servers=[ServerHealth(name=name, status="problem", checks=[check])])
