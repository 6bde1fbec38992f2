"""Measure the servers behind a URL or a client, and check them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from time import perf_counter, time
from typing import Any

import msgspec

from ephemera.errors import ConnectionFailed, EphemeraError, ServerError
from ephemera.keyspace import Catalogue, Keyspace, Role, read_identity
from ephemera.operations.audit import KeyUse
from ephemera.operations.health._checks import (
    Check,
    Latency,
    Status,
    Vitals,
    checks_of,
    failed_check,
    sort_worst_first,
    worst_status,
)
from ephemera.operations.survey import parse_server_info, read_info
from ephemera.wire import Client, NodeClient, open_client

PROBES = 200
"""PINGs of a health check, in sequence: enough for a p99 that is not just the slowest."""
_TIMEOUT = 5.0  # seconds for all replies of one server


class ServerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One server and its checks, worst first."""

    name: str
    status: Status
    version: str = ""
    since: int = 0
    """Uptime in seconds."""
    used_memory: int = 0
    max_memory: int = 0
    keys: int = 0
    checks: list[Check]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The health of all servers behind a URL."""

    status: Status
    servers: list[ServerHealth]

    @property
    def advice(self) -> list[Check]:
        """The checks with advice, worst first."""
        found = [check for server in self.servers for check in server.checks if check.status != "ok"]
        return sort_worst_first(found)


async def check_server(
    url: str,
    catalogues: Iterable[Catalogue] = (),
    *,
    role: Role | None = None,
    identity: str | None = None,
    probes: int = PROBES,
    undeclared: Sequence[KeyUse] | None = None,
) -> Health:
    """Check the servers at a URL against the keyspaces that they should carry.

    `undeclared` are their other keys, as a survey found them (`undeclared_uses`). Without it the settings
    are judged by the declared keys alone, and no eviction policy is recommended.
    """
    try:
        async with open_client(url) as client:
            return await check_client(
                client, catalogues, role=role, identity=identity, probes=probes, undeclared=undeclared
            )
    except ConnectionFailed as error:
        return _unreachable(error.address, error)


async def check_client(
    client: Client,
    catalogues: Iterable[Catalogue] = (),
    *,
    role: Role | None = None,
    identity: str | None = None,
    probes: int = PROBES,
    undeclared: Sequence[KeyUse] | None = None,
) -> Health:
    """Check servers through an open client, such as `store.client("cache")`."""
    keyspaces = [
        keyspace
        for catalogue in catalogues
        for keyspace in catalogue
        if keyspace.kind != "channel" and role in (None, keyspace.role)
    ]
    nodes: Sequence[Any] = client.nodes()
    if not nodes:
        return _unreachable("the cluster", "no master is connected")
    mark = await _mark(client, identity)
    servers = await asyncio.gather(
        *(_server(node, keyspaces, mark, probes, role, undeclared) for node in nodes)
    )
    return Health(status=worst_status(server.status for server in servers), servers=list(servers))


async def _server(
    node: NodeClient,
    keyspaces: list[Keyspace[Any]],
    mark: Check | None,
    probes: int,
    role: Role | None,
    undeclared: Sequence[KeyUse] | None,
) -> ServerHealth:
    try:
        async with asyncio.timeout(_TIMEOUT):
            latency = await _latency(node, probes)
            info = await read_info(node)
            offset = await _clock(node)
            slow = await _slow(node)
    except (ConnectionFailed, ServerError, TimeoutError) as error:
        return _unreachable(str(node.endpoint), error).servers[0]
    server = parse_server_info(node, info)
    vitals = Vitals.of(info, latency, offset, slow)
    checks = [*([mark] if mark else []), *checks_of(server, vitals, keyspaces, role, undeclared)]
    return ServerHealth(
        name=server.name,
        status=worst_status(check.status for check in checks),
        version=f"{server.software} {server.version}",
        since=vitals.uptime,
        used_memory=server.used_memory,
        max_memory=server.max_memory,
        keys=server.keys,
        checks=sort_worst_first(checks),
    )


async def _mark(client: Client, identity: str | None) -> Check | None:
    try:
        found = await read_identity(client)
    except EphemeraError as error:
        if identity is None:
            return None
        return failed_check(
            "identity", f"the mark cannot be read ({error})", "the mark is the expected one", ""
        )
    figure = "no mark" if found is None else f"marked as {found!r}"
    if identity is None or found == identity:
        return Check(name="identity", status="ok", figure=figure, rule="the mark is the expected one")
    return failed_check(
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
    """Seconds that the server's clock is ahead of ours, assuming equal latency both ways."""
    before = time()
    seconds, micros = await node.call("TIME")
    after = time()
    return int(seconds) + int(micros) / 1e6 - (before + after) / 2


async def _slow(node: NodeClient) -> int | None:
    """Number of slow log entries; None when the user may not read it."""
    try:
        return int(await node.call("SLOWLOG", "LEN"))
    except ServerError:
        return None


def _unreachable(name: str, error: object) -> Health:
    text = str(error) or type(error).__name__
    check = failed_check(
        "reachable",
        text,
        f"the server answers within {_TIMEOUT:g} s",
        "is the server running, and is the URL right?",
    )
    return Health(status="problem", servers=[ServerHealth(name=name, status="problem", checks=[check])])
