"""The documents, presentations, exports and shares of users: stored in SQL, and produced by jobs.

Each is written with the row of its job in one transaction, so neither exists without the other. Its state is
the state of its job.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import func, insert, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera import Store
from ephemera.errors import QuotaExceeded
from ephemera.patterns.jobs import BoundJobs
from ephemera.patterns.usage import BoundUsage
from ephemera.patterns.write_behind import CounterTable
from ephemera_services.runtime import problem
from ephemera_services.slides.access import Caller
from ephemera_services.slides.forms import Format, PresentationRequest
from ephemera_services.slides.jobs import export, generate, ingest
from ephemera_services.slides.keys import JOBS, VIEWS
from ephemera_services.slides.tables import (
    chunks,
    documents,
    exports,
    organizations,
    presentations,
    shares,
    slides,
)

_TOKENS_PER_SLIDE = 1_000  # reserved before the real usage is known
_GIGABYTE = 1_000_000_000
_JOBS, _STEPS = JOBS.tables
_NOT_FOUND = "Not found, or not in your organization."


class Workspace:
    """Documents, presentations, exports and shares."""

    def __init__(
        self, engine: AsyncEngine, store: Store, jobs: BoundJobs, usage: BoundUsage, view_table: CounterTable
    ) -> None:
        self._engine = engine
        self.jobs = jobs
        self._usage = usage
        self._views = store[VIEWS]
        self._view_table = view_table

    async def add_document(
        self, caller: Caller, name: str, media_type: str, content: bytes
    ) -> tuple[UUID, str]:
        """Store a document and start the job that reads it; 402 if the organization's storage is full."""
        document_id = uuid4()
        async with self._engine.begin() as sql:
            # Serialized: parallel uploads would all see the same free space.
            organization = select(organizations.c.id).where(organizations.c.id == caller.organization_id)
            await sql.execute(organization.with_for_update(key_share=True))
            used = select(func.coalesce(func.sum(documents.c.size), 0))
            owned = used.where(documents.c.organization_id == caller.organization_id)
            if (await sql.execute(owned)).scalar_one() + len(content) > caller.limits.storage_gb * _GIGABYTE:
                raise problem(
                    402, f"Your plan's {caller.limits.storage_gb} GB of document storage are used up."
                )
            ids = {"organization_id": caller.organization_id, "user_id": caller.user_id}
            job_id = await self.jobs.enqueue_in(sql, ingest, document_id, **ids)
            row = {
                "name": name,
                "media_type": media_type,
                "size": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
                "content": content,
            }
            await sql.execute(insert(documents).values(id=document_id, job_id=job_id, **ids, **row))
        await self.jobs.publish(job_id)
        return document_id, job_id

    async def document(self, caller: Caller, document_id: UUID) -> Any:
        """A document and the state of its job."""
        c = documents.c
        pieces = select(func.count()).where(chunks.c.document_id == c.id).scalar_subquery()
        columns = (c.id, c.name, c.media_type, c.size, c.sha256, c.job_id, c.created_at)
        wanted = select(*columns, pieces.label("chunks"), _JOBS.c.state, _JOBS.c.error)
        return await self._one(
            wanted.join(_JOBS, _JOBS.c.id == c.job_id).where(
                c.id == document_id, c.organization_id == caller.organization_id
            )
        )

    async def start_presentation(self, caller: Caller, form: PresentationRequest) -> tuple[UUID, str]:
        """Start generating a presentation; 402 if the monthly quota is used up, 422 for unknown documents."""
        presentation_id = uuid4()
        reserved = await self._reserve(caller, presentation_id, form.slides)
        try:
            async with self._engine.begin() as sql:
                await self._check_sources(sql, caller, form.document_ids)
                ids = {"organization_id": caller.organization_id, "user_id": caller.user_id}
                job_id = await self.jobs.enqueue_in(
                    sql, generate, presentation_id, **ids, period=reserved.period
                )
                row = {
                    "topic": form.topic,
                    "audience": form.audience,
                    "language": form.language,
                    "slides_total": form.slides,
                    "document_ids": sorted({str(each) for each in form.document_ids}),
                }
                await sql.execute(
                    insert(presentations).values(id=presentation_id, job_id=job_id, **ids, **row)
                )
        except BaseException:
            await reserved.release()
            raise
        await self.jobs.publish(job_id)
        return presentation_id, job_id

    async def presentation(self, caller: Caller, presentation_id: UUID) -> Any:
        """A presentation and the state of its job."""
        c = presentations.c
        wanted = select(*c, _JOBS.c.state, _JOBS.c.error).join(_JOBS, _JOBS.c.id == c.job_id)
        return await self._one(
            wanted.where(c.id == presentation_id, c.organization_id == caller.organization_id)
        )

    async def slides(self, presentation_id: UUID) -> Sequence[Any]:
        """The slides of a presentation, in order."""
        wanted = select(slides).where(slides.c.presentation_id == presentation_id).order_by(slides.c.number)
        async with self._engine.connect() as sql:
            return (await sql.execute(wanted)).all()

    async def slides_completed(self, job_id: str) -> int:
        """The number of slides that a job has written, stored or not."""
        s = _STEPS.c
        wanted = select(func.count()).where(s.job_id == job_id, s.name.like("slide:%"))
        async with self._engine.connect() as sql:
            return int((await sql.execute(wanted)).scalar_one())

    async def start_export(self, caller: Caller, presentation_id: UUID, format: Format) -> tuple[UUID, str]:  # noqa: A002
        """Start an export; 409 while the presentation is not generated."""
        found = await self.presentation(caller, presentation_id)
        if found.state != "done":
            raise problem(409, f"The presentation is {found.state}; it can be exported when it is done.")
        export_id = uuid4()
        async with self._engine.begin() as sql:
            ids = {"organization_id": caller.organization_id, "user_id": caller.user_id}
            job_id = await self.jobs.enqueue_in(sql, export, export_id, **ids)
            await sql.execute(
                insert(exports).values(
                    id=export_id,
                    presentation_id=presentation_id,
                    user_id=caller.user_id,
                    format=format,
                    job_id=job_id,
                )
            )
        await self.jobs.publish(job_id)
        return export_id, job_id

    async def export(self, caller: Caller, export_id: UUID, *, content: bool = False) -> Any:
        """An export and the state of its job, optionally with its file."""
        e, p = exports.c, presentations.c
        columns = [e.id, e.presentation_id, e.format, e.url, e.job_id, e.created_at, p.title]
        if content:
            columns.append(e.content)
        wanted = (
            select(*columns, _JOBS.c.state, _JOBS.c.error)
            .join(presentations, p.id == e.presentation_id)
            .join(_JOBS, _JOBS.c.id == e.job_id)
        )
        return await self._one(wanted.where(e.id == export_id, p.organization_id == caller.organization_id))

    async def share(self, caller: Caller, presentation_id: UUID) -> tuple[str, int]:
        """The public link of a presentation, created if needed, and its number of views."""
        await self.presentation(caller, presentation_id)
        row = {"presentation_id": presentation_id, "token": secrets.token_urlsafe(24)}
        wanted = select(shares.c.token, shares.c.view_count).where(
            shares.c.presentation_id == presentation_id
        )
        async with self._engine.begin() as sql:
            await sql.execute(upsert(shares).values(row).on_conflict_do_nothing())
            token, flushed = (await sql.execute(wanted)).one()
        waiting = await self._views.pending(presentation_id=str(presentation_id))
        return token, flushed + waiting.get("view_count", 0)

    async def shared(self, token: str) -> Any:
        """The presentation of a link; counts a view, directly in SQL if Redis is down."""
        p = presentations.c
        wanted = select(p.id, p.title, p.topic).join(shares, shares.c.presentation_id == p.id)
        found = await self._one(wanted.where(shares.c.token == token))
        await self._views.add(presentation_id=str(found.id), view_count=1, fallback=self._view_table)
        return found

    async def _reserve(self, caller: Caller, presentation_id: UUID, number: int) -> Any:
        limits = caller.limits
        try:
            return await self._usage.reserve(
                str(caller.organization_id),
                reservation_id=str(presentation_id),
                presentations=1,
                tokens=number * _TOKENS_PER_SLIDE,
                limits={
                    "presentations": limits.max_presentations_per_month,
                    "tokens": limits.ai_tokens_per_month,
                },
            )
        except QuotaExceeded as exceeded:
            raise problem(
                402,
                f"The {exceeded.measure} of your plan {limits.plan_name} are used up for this month: "
                f"{exceeded.used} of {exceeded.limit} are used, {exceeded.reserved} are reserved.",
            ) from None

    async def _check_sources(self, sql: AsyncConnection, caller: Caller, wanted: Sequence[UUID]) -> None:
        c = documents.c
        found = await sql.execute(
            select(c.id, _JOBS.c.state)
            .join(_JOBS, _JOBS.c.id == c.job_id)
            .where(c.id.in_(wanted), c.organization_id == caller.organization_id)
        )
        states = {row.id: row.state for row in found}
        if missing := set(wanted) - set(states):
            raise problem(422, f"Unknown documents: {', '.join(sorted(map(str, missing)))}.")
        if unread := [str(each) for each, state in states.items() if state != "done"]:
            raise problem(409, f"These documents have not been read yet: {', '.join(sorted(unread))}.")

    async def _one(self, statement: Any) -> Any:
        async with self._engine.connect() as sql:
            found = (await sql.execute(statement)).one_or_none()
        if found is None:
            raise problem(404, _NOT_FOUND)
        return found
