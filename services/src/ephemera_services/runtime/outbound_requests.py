"""POST requests to URLs that users chose: to public addresses only, over HTTPS.

A URL must not make the service call its own network. The name is resolved once and the request goes to that
address, so that no second lookup can differ; redirects are not followed, and the body of a response is not
read. With `anywhere` plain HTTP and private networks are allowed, for development.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx

from ephemera_services.runtime.problem_documents import problem

_TIMEOUT = 10.0  # seconds without progress
_TOTAL = 30.0  # seconds


class OutboundFailed(Exception):
    """A request was not sent, or not answered."""


class OutboundRequests:
    """Sends them, over connections that are kept for a while."""

    def __init__(self, *, anywhere: bool) -> None:
        self._anywhere = anywhere
        self._http = httpx.AsyncClient(timeout=_TIMEOUT, follow_redirects=False, trust_env=False)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def check(self, url: str, name: str) -> None:
        """Raise 422 unless the form of a URL is accepted; `name` is for the message."""
        parts = urlsplit(url)
        if parts.scheme != "https" and not (self._anywhere and parts.scheme == "http"):
            raise problem(422, f"The URL of {name} must begin with https://.")
        if not parts.hostname or parts.username is not None:
            raise problem(422, f"The URL of {name} must have a host, and no user or password.")

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """The status of the response; `OutboundFailed` if there is none."""
        try:
            async with asyncio.timeout(_TOTAL):
                pinned, host = await self.resolve(url)
                request = self._http.build_request(
                    "POST", pinned, content=body, headers={**headers, "host": host}
                )
                request.extensions["sni_hostname"] = host.rpartition(":")[0] or host
                reply = await self._http.send(request, stream=True)
                await reply.aclose()
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as failed:
            raise OutboundFailed(f"{type(failed).__name__}: {failed}"[:300]) from None
        return reply.status_code

    async def resolve(self, url: str) -> tuple[str, str]:
        """The URL with an address in place of the name, and the name; ValueError if it is not public."""
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        found = await asyncio.get_running_loop().getaddrinfo(parts.hostname, port, type=1)
        address = ipaddress.ip_address(str(found[0][4][0]))
        if not self._anywhere and (not address.is_global or address.is_multicast):
            raise ValueError("the URL is not one of a public address")
        shown = f"[{address}]" if address.version == 6 else str(address)
        return parts._replace(netloc=f"{shown}:{port}").geturl(), parts.netloc.rpartition("@")[2]
