"""One server by itself: in any mode, with the version of RESP and the credentials that its user chose."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from ephemera.embedded import Cluster, Valkey
from ephemera.errors import ServerError
from ephemera.wire import Credentials, Target, node_client, parse_url

pytestmark = pytest.mark.standalone("it connects to servers one by one")


@pytest.mark.parametrize(("protocol", "reply"), [(2, [b"f", b"1"]), (3, {b"f": b"1"})])
async def test_replies_have_the_forms_of_the_protocol(
    server: Valkey, key: str, protocol: Literal[2, 3], reply: object
) -> None:
    """With RESP2 a hash is a list, with RESP3 a map."""
    client = node_client(replace(parse_url(server.url), protocol=protocol))
    await client.start()
    await client.call("HSET", key, "f", "1")
    assert await client.call("HGETALL", key) == reply
    await client.aclose()


async def test_a_node_of_a_cluster_by_itself_redirects_its_callers(cluster: Cluster) -> None:
    """A node is not an error, and a key of another node's is an error for the caller."""
    address = parse_url(cluster.url).addresses[0]
    client = node_client(Target("standalone", (address,), credentials=parse_url(cluster.url).credentials))
    await client.start()
    replies = [await _outcome(client.call("GET", f"key:{number}")) for number in range(20)]
    await client.aclose()
    assert set(replies) == {"None", "MOVED"}


async def test_credentials_come_from_a_provider(server: Valkey) -> None:
    """A provider replaces the credentials of the target."""
    target = parse_url(server.url)
    client = node_client(replace(target, credentials=Credentials()), lambda: target.credentials)
    await client.start()
    assert await client.call("PING") == b"PONG"
    await client.aclose()


async def _outcome(reply: object) -> str:
    try:
        return str(await reply)  # type: ignore[misc]
    except ServerError as error:
        return error.code
