"""HTTP clients of the services: each has an address of its own, and its requests are counted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httpx

from ephemera_services.demo.servers import Servers

_TOO_MANY = 429


class UnexpectedStatus(Exception):
    """A response with another status than the client expected."""


@dataclass(frozen=True)
class TrafficContext:
    """Shared state of the simulated clients: addresses of services and servers, and counts."""

    urls: Mapping[str, str]
    servers: Servers
    feed_token: str = field(repr=False)
    counts: Counter[str] = field(default_factory=Counter)
    shared_paths: list[str] = field(default_factory=list)
    """Paths of presentations that were shared."""


class DemoClient:
    """One client of one service; `async with` closes its connections."""

    def __init__(self, context: TrafficContext, service: str, address: str | None = None) -> None:
        self._counts = context.counts
        # The services trust X-Forwarded-For from this machine; limits count by it.
        headers = {"x-forwarded-for": address or random_address(), "user-agent": "ephemera-demo"}
        if service == "feed":
            headers["authorization"] = f"Bearer {context.feed_token}"
        self.http = httpx.AsyncClient(base_url=context.urls[service], headers=headers, timeout=30)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.http.aclose()

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request; any status is fine."""
        response = await self.http.request(method, path, **options)
        self._counts["requests"] += 1
        if response.status_code == _TOO_MANY:
            self._counts["refused by a limit"] += 1
        return response

    async def expect(self, status: int, method: str, path: str, **options: Any) -> Any:
        """Return the body of a response with this status; `UnexpectedStatus` for others."""
        response = await self.request(method, path, **options)
        if response.status_code != status:
            raise UnexpectedStatus(
                f"{method} {path} answered {response.status_code}, not {status}: {response.text[:200]}"
            )
        return response.json() if response.content else None


def random_address() -> str:
    """An address from the range for load tests, large enough that hourly limits rarely see one twice."""
    return f"198.18.{random.randint(0, 255)}.{random.randint(1, 254)}"
