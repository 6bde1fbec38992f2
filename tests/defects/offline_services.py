"""Clients of the five services in this process, without servers: for what needs none."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import httpx

from ephemera import connect
from ephemera_services import SERVICES
from ephemera_services.runtime import Secret

NAMES = tuple(SERVICES)
_NO_REDIS = "redis://127.0.0.1:1"


@asynccontextmanager
async def client_of(name: str, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service whose Redis is down, and that has no database."""
    service = importlib.import_module(f"ephemera_services.{name}")
    needed = {"tokens": Secret("a-token-for-the-tests")} if name == "feed" else {}
    app = service.create_app(service.Settings(**needed, **settings))
    async with (
        connect(_NO_REDIS, service.catalogue, required=False) as store,
        http_client(app) as client,
    ):
        app.state.resources = SimpleNamespace(store=store)
        yield client


def http_client(app: Any) -> httpx.AsyncClient:
    """A client of an application in this process."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:8000")
