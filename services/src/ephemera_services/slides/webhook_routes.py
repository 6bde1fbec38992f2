"""The webhooks of an organization, and the log of their deliveries."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter

from ephemera_services.runtime import problem, problems
from ephemera_services.slides.account_routes import Admin
from ephemera_services.slides.library_forms import (
    DeliveryList,
    DeliveryView,
    NewWebhook,
    WebhookForm,
    WebhookList,
    WebhookView,
)
from ephemera_services.slides.webhooks import FEATURE

router = APIRouter(tags=["webhooks"])


@router.post("/webhooks", status_code=201, responses=problems(402, 403, 409, 429))
async def add(form: WebhookForm, caller: Admin) -> NewWebhook:
    """Have a URL called when jobs of the organization end; its secret is shown once, and signs the calls."""
    if FEATURE not in caller.limits.features:
        raise problem(402, f"The plan {caller.limits.plan_name} does not include webhooks.")
    webhook_id, secret = await caller.service.webhooks.add(caller.organization_id, form.url)
    return NewWebhook(webhook_id=webhook_id, secret=secret)


@router.get("/webhooks", responses=problems(403, 429))
async def list_webhooks(caller: Admin) -> WebhookList:
    """The organization's webhooks, without their secrets."""
    rows = await caller.service.webhooks.list(caller.organization_id)
    return WebhookList(webhooks=[WebhookView(webhook_id=row.id, **row._asdict()) for row in rows])


@router.delete("/webhooks/{webhook_id}", status_code=204, responses=problems(403, 404, 429))
async def remove(webhook_id: UUID, caller: Admin) -> None:
    """Delete a webhook and its log."""
    await caller.service.webhooks.remove(caller.organization_id, webhook_id)


@router.get("/webhooks/{webhook_id}/deliveries", responses=problems(403, 404, 429))
async def deliveries(webhook_id: UUID, caller: Admin) -> DeliveryList:
    """The newest hundred deliveries of a webhook, each with the outcome of its last attempt."""
    rows = await caller.service.webhooks.deliveries(caller.organization_id, webhook_id)
    return DeliveryList(deliveries=[DeliveryView(delivery_id=row.id, **row._asdict()) for row in rows])
