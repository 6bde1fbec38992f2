"""Webhooks: signed requests to an organization's own URLs when its jobs have ended, with a log of deliveries.

A delivery is a row in SQL, written when the job ends; its id on the stream `webhooks` has a process deliver
it. A failed one is delivered again by the stream, with increasing delays, and is given up after eight
attempts. Rows that the stream lost are published again within half an hour. A receiver may get a delivery
twice, with the same id. An organization's receivers that answer slowly do not delay those of others: few
deliveries of an organization are sent at a time.

Requests are signed as in the Standard Webhooks specification: `Webhook-Signature` is `v1,` and the base64 of
the HMAC-SHA256 of id, timestamp and body, joined by dots, with the webhook's secret. They are sent only to
public addresses, over HTTPS (`OutboundRequests`), unless EPHEMERA_SLIDES_WEBHOOKS_ANYWHERE is set.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4, uuid5

import msgspec
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.errors import ConnectionFailed, EphemeraError
from ephemera.patterns.events import Delivery, Redeliver
from ephemera_services.runtime import OutboundFailed, OutboundRequests, advisory_lock, problem
from ephemera_services.slides.keys import MAX_WEBHOOK_ATTEMPTS, WEBHOOKS, WebhookDue
from ephemera_services.slides.plans import PLANS
from ephemera_services.slides.tables import organizations, webhook_deliveries, webhooks

FEATURE = "webhooks"
"""The feature of a plan that webhooks need."""
_MAX_WEBHOOKS = 10  # of an organization
_MAX_AT_ONCE = 3  # deliveries of an organization that a process sends; it sends ten in all
_SWEEP = timedelta(minutes=1)
_RETRIES = Redeliver(first=timedelta(seconds=2), longest=timedelta(minutes=10))
_LATER = Redeliver(first=timedelta(seconds=1), longest=timedelta(minutes=1))

logger = logging.getLogger(__name__)


class WebhookFailed(EphemeraError):
    """A receiver did not answer with success."""


class WebhookPostponed(EphemeraError):
    """A delivery waits until fewer of its organization are being sent."""


class Webhooks:
    """The webhooks of all organizations."""

    def __init__(self, engine: AsyncEngine, store: Store, *, anywhere: bool) -> None:
        self._engine = engine
        self._stream = store[WEBHOOKS]
        self._requests = OutboundRequests(anywhere=anywhere)
        self._sending = Counter[UUID]()

    async def add(self, organization_id: UUID, url: str) -> tuple[UUID, str]:
        """Create a webhook; its id and its secret, which is shown once. 409 if there are too many."""
        self._requests.check(url, "a webhook")
        webhook_id, secret = uuid4(), "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
        row = {"id": webhook_id, "organization_id": organization_id, "url": url, "secret": secret}
        async with self._engine.begin() as sql:
            await advisory_lock(sql, f"webhooks of {organization_id}")
            owned = select(func.count()).where(webhooks.c.organization_id == organization_id)
            if (await sql.execute(owned)).scalar_one() >= _MAX_WEBHOOKS:
                raise problem(
                    409, f"Your organization has {_MAX_WEBHOOKS} webhooks; delete one of them first."
                )
            await sql.execute(insert(webhooks).values(row))
        return webhook_id, secret

    async def list(self, organization_id: UUID) -> Sequence[Any]:
        """The webhooks of an organization, without their secrets."""
        c = webhooks.c
        query = select(c.id, c.url, c.created_at).where(c.organization_id == organization_id)
        async with self._engine.connect() as sql:
            return (await sql.execute(query.order_by(c.created_at, c.id))).all()

    async def remove(self, organization_id: UUID, webhook_id: UUID) -> None:
        """Delete a webhook and its log; 404 if there is none."""
        c = webhooks.c
        gone = delete(webhooks).where(c.id == webhook_id, c.organization_id == organization_id)
        async with self._engine.begin() as sql:
            if not (await sql.execute(gone)).rowcount:
                raise problem(404, "Your organization has no such webhook.")

    async def deliveries(self, organization_id: UUID, webhook_id: UUID) -> Sequence[Any]:
        """The newest hundred deliveries of a webhook; 404 if there is none."""
        d, w = webhook_deliveries.c, webhooks.c
        async with self._engine.connect() as sql:
            known = select(w.id).where(w.id == webhook_id, w.organization_id == organization_id)
            if (await sql.execute(known)).one_or_none() is None:
                raise problem(404, "Your organization has no such webhook.")
            query = select(webhook_deliveries).where(d.webhook_id == webhook_id)
            return (await sql.execute(query.order_by(d.created_at.desc(), d.id).limit(100))).all()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Deliver within a block."""
        async with (
            aclosing(self._requests),
            self._stream.consume(
                "senders", self.deliver, on_error={WebhookFailed: _RETRIES, WebhookPostponed: _LATER}
            ),
        ):
            sweeping = asyncio.create_task(self._sweep(), name="slides-webhooks")
            try:
                yield
            finally:
                sweeping.cancel()
                await asyncio.wait([sweeping])

    async def deliver(self, event: WebhookDue, _: Delivery) -> None:
        """Send one delivery and record the outcome; `WebhookFailed` has it delivered again."""
        d, w = webhook_deliveries.c, webhooks.c
        columns = (d.id, d.payload, d.attempts, w.url, w.secret, w.organization_id)
        query = select(*columns).join(webhooks, w.id == d.webhook_id)
        async with self._engine.connect() as sql:
            pending = query.where(d.id == UUID(event.delivery_id), d.state == "pending")
            row = (await sql.execute(pending)).one_or_none()
        if row is None:
            return  # delivered before, or its webhook was deleted
        if self._sending[row.organization_id] >= _MAX_AT_ONCE:
            raise WebhookPostponed(f"delivery {row.id}: others of its organization are being sent")
        self._sending[row.organization_id] += 1
        try:
            status, error = await self._send(row)
        finally:
            self._sending -= Counter({row.organization_id: 1})  # without those at zero
        last = row.attempts + 1 >= MAX_WEBHOOK_ATTEMPTS
        state = "delivered" if error is None else "failed" if last else "pending"
        values = {"state": state, "status": status, "error": error, "attempts": d.attempts + 1}
        async with self._engine.begin() as sql:
            recorded = update(webhook_deliveries).where(d.id == row.id)
            await sql.execute(recorded.values(**values, last_attempt_at=func.now()))
        if state == "pending":
            raise WebhookFailed(f"delivery {row.id}: {error}")

    async def _send(self, row: Any) -> tuple[int | None, str | None]:
        """The status of the response, and what was wrong with it."""
        body, now = msgspec.json.encode(row.payload), str(int(time.time()))
        headers = {
            "content-type": "application/json",
            "webhook-id": str(row.id),
            "webhook-timestamp": now,
            "webhook-signature": signature(row.secret, str(row.id), now, body),
        }
        try:
            status = await self._requests.post(row.url, body, headers)
        except OutboundFailed as failed:
            return None, str(failed)
        return status, None if 200 <= status < 300 else f"it answered {status}"

    async def _sweep(self) -> None:
        """Publish again what the stream lost: pending deliveries that were not tried for a while."""
        d = webhook_deliveries.c
        tried = func.coalesce(d.last_attempt_at, d.created_at)
        lost = select(d.id).where(d.state == "pending", tried < func.now() - 20 * _SWEEP).limit(1000)
        while True:
            await asyncio.sleep(_SWEEP.total_seconds())
            try:
                async with self._engine.connect() as sql:
                    found = (await sql.execute(lost)).scalars().all()
                for delivery_id in found:
                    await self._stream.publish(WebhookDue(delivery_id=str(delivery_id)))
            except (ConnectionFailed, SQLAlchemyError) as failed:
                logger.warning("webhooks are swept later: %s", type(failed).__name__)


async def announce(
    engine: AsyncEngine, store: Store, organization_id: UUID, job_id: str, payload: dict[str, Any]
) -> None:
    """Write a delivery for each webhook of an organization, once for a job, and have them sent."""
    new: list[str] = []
    plans = [name for name, plan in PLANS.items() if FEATURE in plan.features]
    query = select(webhooks.c.id).join(organizations, organizations.c.id == webhooks.c.organization_id)
    query = query.where(organizations.c.id == organization_id, organizations.c.plan.in_(plans))
    async with engine.begin() as sql:
        for webhook_id in (await sql.execute(query)).scalars().all():
            delivery_id = uuid5(webhook_id, job_id)
            row = {"id": delivery_id, "webhook_id": webhook_id, "payload": payload, "type": payload["type"]}
            written = upsert(webhook_deliveries).values(row).on_conflict_do_nothing()
            if (await sql.execute(written)).rowcount:
                new.append(str(delivery_id))
    for name in new:
        await store[WEBHOOKS].publish(WebhookDue(delivery_id=name))


def signature(secret: str, delivery_id: str, timestamp: str, body: bytes) -> str:
    """The signature of a delivery, by the Standard Webhooks specification."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{delivery_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
