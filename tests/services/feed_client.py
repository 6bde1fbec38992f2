"""Feed inside a test's own process, over HTTP; the test says when a user's clusters are rebuilt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from ephemera.embedded import free_ports
from ephemera_services.feed import Settings, create_app
from ephemera_services.feed.builder import Builder
from ephemera_services.feed.service import Aggregator
from ephemera_services.runtime import read_settings
from tests.services.feed_fixtures import shared_pool
from tests.services.feed_users import BEARER, QUICK


class Client:
    """A client of an open application."""

    def __init__(self, app: Any, http: httpx.AsyncClient) -> None:
        self.app = app
        self.http = http
        self.aggregator: Aggregator = app.state.service
        self._builder = Builder(self.aggregator, shared_pool(3))

    async def publish(self, channel: str, *texts: str, **origin: Any) -> list[dict[str, Any]]:
        """Publish insights in bulk."""
        insights = [{"channel_id": channel, "text": text, **origin} for text in texts]
        return list((await self.ask("POST", "/feed/bulk/insights", json={"insights": insights}))["insights"])

    async def subscribed(self, user: str, channel: str) -> None:
        """A user of the plan `pro` with a subscription."""
        await self.ask("PUT", f"/feed/users/{user}/subscriptions/{channel}", json={"plan": "pro"})

    async def rebuild(self, user: str) -> None:
        """Rebuild a user's clusters."""
        run = await self._builder.rebuild(user)
        assert run.outcome == "rebuilt", run

    async def feed(self, user: str, **query: Any) -> dict[str, Any]:
        """A page of a user's feed."""
        return dict(await self.ask("GET", f"/feed/users/{user}", params=query))

    async def ask(self, method: str, path: str, *, status: int = 0, **more: Any) -> Any:
        """The body of a response, which has this status, or else one of success."""
        response = await self.http.request(method, path, **more)
        assert response.status_code == status or (not status and response.is_success), response.text
        return response.json() if response.content else None


@asynccontextmanager
async def feed_client(places: Mapping[str, str], **variables: str) -> AsyncIterator[Client]:
    """An open application, and a client with a token."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    settings = {**QUICK, **places, "EPHEMERA_FEED_GRPC_ADDRESS": address, **variables}
    app = create_app(read_settings(Settings, settings))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        headers = {"authorization": BEARER}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers=headers, trust_env=False
        ) as http:
            yield Client(app, http)
