"""SEC21: public `/docs` with scripts from a CDN, no security headers, and 422 repeated what was sent."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict
from sqlalchemy import MetaData

from ephemera import Catalogue
from ephemera_services.runtime import ServiceDefinition, ServiceSettings, create_application
from tests.defects.offline_services import NAMES, client_of, http_client

router = APIRouter()


class Order(BaseModel):
    """A form that takes nothing else."""

    model_config = ConfigDict(extra="forbid")

    item: UUID
    counts: dict[str, int] = {}


@router.post("/orders")
async def order(form: Order) -> str:
    """Order something."""
    return str(form.item)


@pytest.mark.parametrize("name", NAMES)
async def test_sec21_docs_are_off_outside_development(name: str) -> None:
    """Neither the page nor the document exists, unless it is development; then it loads nothing."""
    async with client_of(name) as client:
        for path in ("/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect"):
            assert (await client.get(path)).status_code == 404
    async with client_of(name, development=True) as client:
        assert (await client.get("/openapi.json")).json()["paths"]
        page = await client.get("/docs")
        assert page.status_code == 200
        assert "/healthz" in page.text
        for loaded in ("<script", "<link", "<img", "http://", "https://", "url("):
            assert loaded not in page.text
        assert page.headers["content-security-policy"].startswith("default-src 'none';")


@pytest.mark.parametrize("name", NAMES)
async def test_sec21_every_response_has_security_headers(name: str) -> None:
    """Successes, refusals and failures have them; HSTS only by a setting."""
    async with client_of(name, hsts=timedelta(days=1)) as client:
        answers = [
            await client.get("/healthz"),
            await client.get("/nowhere"),
            await client.get("/healthz", headers={"host": "evil.example"}),
            await client.get("/readyz"),  # fails, as its resources are not open
        ]
    assert [answer.status_code for answer in answers] == [200, 404, 421, 500]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["strict-transport-security"] == "max-age=86400"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-request-id"]
    async with client_of(name) as client:
        assert "strict-transport-security" not in (await client.get("/healthz")).headers


async def test_sec21_invalid_input_is_not_repeated() -> None:
    """A 422 has the names that the OpenAPI document has, and neither names nor values that were sent."""
    service = ServiceDefinition("shop", "", Catalogue("shop"), MetaData())
    app = create_application(ServiceSettings(), service, lambda _: None, router)  # type: ignore[arg-type,return-value]
    hostile = {"item": "canary-1", "canary-2": 1, "counts": {"canary-3": "canary-4"}, "counts.item": 5}
    async with http_client(app) as client:
        answer = await client.post("/orders", json=hostile)
    assert answer.status_code == 422
    assert "canary" not in answer.text
    assert sorted(each["at"] for each in answer.json()["errors"]) == [
        "body.*", "body.*", "body.counts.*", "body.item",
    ]  # fmt: skip
