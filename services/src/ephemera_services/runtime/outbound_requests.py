"""POST requests to URLs that users chose: to public addresses only, over HTTPS.

A URL must not make the service call its own network. The name is resolved once and the request goes to that
address, so that no second lookup can differ; redirects are not followed, and the body of a response is not
read. Each request has a connection of its own: one that was verified for one name must not carry requests to
another one at the same address. Names are resolved in threads of their own, because a hostile name server
answers slowly. With `anywhere` plain HTTP and private networks are allowed, for development.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

import httpx

from ephemera_services.runtime.problem_documents import problem

_TIMEOUT = 10.0  # seconds without progress
_TOTAL = 30.0  # seconds
_THREADS = 8
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=0)
_NAT64 = IPv6Network("64:ff9b::/96")
_UNICAST = IPv6Network("2000::/3")


class OutboundFailed(Exception):
    """A request was not sent, or not answered."""


class OutboundRequests:
    """Sends them."""

    def __init__(self, *, anywhere: bool) -> None:
        self._anywhere = anywhere
        self._threads = ThreadPoolExecutor(_THREADS, "outbound-names")
        self._http = httpx.AsyncClient(
            timeout=_TIMEOUT, limits=_LIMITS, follow_redirects=False, trust_env=False
        )

    async def aclose(self) -> None:
        """Close the connections and end the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self._http.aclose()

    def check(self, url: str, name: str) -> None:
        """Raise 422 unless the form of a URL is accepted; `name` is for the message."""
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError:
            raise problem(422, f"The URL of {name} has no valid host or port.") from None
        if parts.scheme != "https" and not (self._anywhere and parts.scheme == "http"):
            raise problem(422, f"The URL of {name} must begin with https://.")
        if not parts.hostname or parts.username is not None:
            raise problem(422, f"The URL of {name} must have a host, and no user or password.")

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """The status of the response; `OutboundFailed` if there is none."""
        try:
            async with asyncio.timeout(_TOTAL):
                parts = urlsplit(url)
                headers = {**headers, "host": parts.netloc.rpartition("@")[2]}
                request = self._http.build_request(
                    "POST", await self.resolve(url), content=body, headers=headers
                )
                request.extensions["sni_hostname"] = parts.hostname
                reply = await self._http.send(request, stream=True)
                await reply.aclose()
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as failed:
            raise OutboundFailed(f"{type(failed).__name__}: {failed}"[:300]) from None
        return reply.status_code

    async def resolve(self, url: str) -> str:
        """The URL with an address in place of the name; ValueError if it has no public one.

        The error is the same for an unknown name, so it does not tell which names a private network has.
        """
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        async with asyncio.timeout(_TIMEOUT):
            address = await asyncio.get_running_loop().run_in_executor(
                self._threads, _first_address, parts.hostname, port
            )
        if address is None or not (self._anywhere or _is_public(address)):
            raise ValueError("the name has no public address")
        shown = f"[{address}]" if address.version == 6 else str(address)
        return parts._replace(netloc=f"{shown}:{port}").geturl()


def _first_address(name: str | None, port: int) -> IPv4Address | IPv6Address | None:
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return None
    return ip_address(str(found[0][4][0]))


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is public; one that translates to an IPv4 address is as public as that."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = IPv4Address(address.packed[-4:])
        if inner is not None:
            return _is_public(inner)
        if address not in _UNICAST:
            return False
    return address.is_global and not address.is_multicast
