"""Requests to URLs that users chose: which addresses are called, and how."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ephemera_services.runtime import OutboundRequests, outbound_requests
from tests.services.scripted_model import Endpoint, Reply


@pytest.fixture
async def requests() -> AsyncIterator[OutboundRequests]:
    """Requests to public addresses only."""
    opened = OutboundRequests(anywhere=False)
    yield opened
    await opened.aclose()


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "2130706433", "0x7f.1", "0.0.0.0", "10.0.0.1"),
        *("169.254.169.254", "100.64.0.1", "192.168.1.1", "224.0.0.1", "255.255.255.255"),
        *("[::1]", "[::]", "[fe80::1]", "[fd00::1]", "[fec0::1]", "[ff02::1]"),
        *("[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::10.0.0.1]", "[64:ff9b::169.254.169.254]"),
        *("[2002:7f00:1::1]", "[2002:a00:1::1]", "[2001::1]", "[2001:db8::1]"),
        "no-such-name.invalid",
    ],
)
async def test_no_address_of_the_own_network_is_called(requests: OutboundRequests, host: str) -> None:
    """However it is written, and where the network translates IPv6; an unknown name gets the same error."""
    with pytest.raises(ValueError, match="has no public address"):
        await requests.resolve(f"https://{host}/x")


@pytest.mark.parametrize(
    ("host", "called"),
    [
        ("93.184.216.34", "93.184.216.34:443"),
        ("[2606:4700::1111]:8443", "[2606:4700::1111]:8443"),
        ("[64:ff9b::93.184.216.34]", "[64:ff9b::5db8:d822]:443"),
    ],
)
async def test_public_addresses_are_called(requests: OutboundRequests, host: str, called: str) -> None:
    """Also on a network that reaches IPv4 by translation."""
    assert await requests.resolve(f"https://{host}/x?y=1") == f"https://{called}/x?y=1"


async def test_no_request_uses_the_connection_of_another() -> None:
    """It may have been verified for another name; each names its own host, and follows no redirect."""
    endpoint = Endpoint("HTTP/1.1")
    sender = OutboundRequests(anywhere=True)
    try:
        urls = [endpoint.url, endpoint.url.replace("127.0.0.1", "127.1"), endpoint.url]
        moved = Reply(302, None, {"location": endpoint.url})
        endpoint.replies += [Reply(200, None), moved, Reply(200, None)]
        assert [await sender.post(url, b"{}", {}) for url in urls] == [200, 302, 200]
        assert [headers["host"] for _, headers, _ in endpoint.seen] == [url[7:] for url in urls]
        assert len(set(endpoint.clients)) == len(urls)
    finally:
        await sender.aclose()
        endpoint.close()


async def test_names_that_resolve_slowly_stop_nothing_else(
    requests: OutboundRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They end after a time, and other names are resolved in the meantime: those of our own servers, too."""
    answer, resolve = threading.Event(), socket.getaddrinfo

    def slow(host: Any, *rest: Any, **more: Any) -> Any:
        if host == "slow.example":
            answer.wait()
        return resolve("127.0.0.1" if host == "slow.example" else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    monkeypatch.setattr(outbound_requests, "_TIMEOUT", 0.05)
    try:
        found = await asyncio.gather(
            *(requests.resolve("https://slow.example/") for _ in range(40)), return_exceptions=True
        )
        assert {type(each) for each in found} == {TimeoutError}
        async with asyncio.timeout(30):
            assert await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80)
    finally:
        answer.set()
