"""Somebody who asks a service over HTTP: from an address of their own, and counted."""

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


class Unexpected(Exception):
    """An answer with another status than the visitor came for."""


@dataclass(frozen=True)
class Scene:
    """What visitors know: where the services and servers are; and what they did."""

    urls: Mapping[str, str]
    servers: Servers
    tally: Counter[str] = field(default_factory=Counter)
    shared: list[str] = field(default_factory=list)
    """Paths of presentations that everybody may look at."""


class Visitor:
    """One client of one service; `async with` closes its connections."""

    def __init__(self, scene: Scene, system: str, address: str | None = None) -> None:
        self._tally = scene.tally
        # The services trust this machine to tell addresses; limits count by them.
        headers = {"x-forwarded-for": address or any_address(), "user-agent": "ephemera-demo"}
        self.http = httpx.AsyncClient(base_url=scene.urls[system], headers=headers, timeout=30)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.http.aclose()

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """One request, whatever comes of it."""
        answer = await self.http.request(method, path, **more)
        self._tally["requests"] += 1
        if answer.status_code == _TOO_MANY:
            self._tally["refused by a limit"] += 1
        return answer

    async def want(self, status: int, method: str, path: str, **more: Any) -> Any:
        """The body of an answer that must have this status; `Unexpected` for others."""
        answer = await self.ask(method, path, **more)
        if answer.status_code != status:
            raise Unexpected(
                f"{method} {path} answered {answer.status_code}, not {status}: {answer.text[:200]}"
            )
        return answer.json() if answer.content else None


def any_address() -> str:
    """An address of somebody, from the range that is for load: limits of an hour must not find it twice."""
    return f"198.18.{random.randint(0, 255)}.{random.randint(1, 254)}"
