"""The documents, presentations, exports and shares of users: stored in SQL, and produced by jobs.

Each is written with the row of its job in one transaction, so neither exists without the other. Its state is
the state of its job.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import Row, Select, delete, func, insert, or_, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera import Store
from ephemera.errors import QuotaExceeded
from ephemera.patterns.jobs import BoundJobs
from ephemera.patterns.usage import BoundUsage, Reservation
from ephemera.patterns.write_behind import CounterTable
from ephemera_services.runtime import problem
from ephemera_services.slides.access import Caller
from ephemera_services.slides.deck import MAX_SLIDES
from ephemera_services.slides.forms import Format, PresentationRequest
from ephemera_services.slides.jobs import export, generate, ingest
from ephemera_services.slides.keys import JOBS, VIEWS
from ephemera_services.slides.settings import Settings
from ephemera_services.slides.tables import (
    chunks,
    documents,
    exports,
    organizations,
    presentations,
    shares,
    slides,
)

TOKENS_PER_SLIDE = 1_000
"""Reserved before the real usage is known."""
_GIGABYTE = 1_000_000_000
_MAX_EXPORTS = 20  # of an organization that wait or run
_KEPT_EXPORTS = 10  # files of a presentation
_JOBS, _STEPS = JOBS.tables.jobs, JOBS.tables.steps
_UNFINISHED = _JOBS.c.state.in_(("waiting", "running"))
NOT_FOUND = "Not found, or not in your organization."
OPEN_SHARE = or_(shares.c.expires_at.is_(None), shares.c.expires_at > func.now())
"""The condition that a public link has not expired."""


class Upload(NamedTuple):
    """A document as it was sent."""

    name: str
    media_type: str
    sha256: str
    content: bytes


class Share(NamedTuple):
    """A public link."""

    token: str
    expires_at: datetime | None
    view_count: int


class Workspace:
    """Documents, presentations, exports and shares."""

    def __init__(
        self,
        engine: AsyncEngine,
        store: Store,
        settings: Settings,
        *,
        jobs: BoundJobs,
        usage: BoundUsage,
        view_table: CounterTable,
    ) -> None:
        self.engine = engine
        self._max_unread = settings.documents_unread
        self.jobs = jobs
        self._usage = usage
        self._views = store[VIEWS]
        self._view_table = view_table

    chunk_count = select(func.count()).where(chunks.c.document_id == documents.c.id).scalar_subquery()
    """The number of a document's chunks, in a query of documents."""

    async def add_document(self, caller: Caller, upload: Upload) -> tuple[UUID, str]:
        """Store a document and start the job that reads it.

        402 if the organization's storage is full, 429 while too many of its documents wait to be read.
        """
        document_id, size = uuid4(), len(upload.content)
        async with self.engine.begin() as sql:
            await self._check_room(sql, caller, size)
            ids = {"organization_id": caller.organization_id, "user_id": caller.user_id}
            job_id = await self.jobs.enqueue_in(sql, ingest, document_id, **ids)
            row = {**ids, **upload._asdict(), "size": size}
            await sql.execute(insert(documents).values(id=document_id, job_id=job_id, **row))
        await self.jobs.publish(job_id)
        return document_id, job_id

    async def document(self, caller: Caller, document_id: UUID) -> Row[Any]:
        """A document and the state of its job."""
        c = documents.c
        columns = (c.id, c.name, c.media_type, c.size, c.sha256, c.job_id, c.created_at)
        query = select(*columns, self.chunk_count.label("chunks"), _JOBS.c.state, _JOBS.c.error)
        return await self._one(
            query.join(_JOBS, _JOBS.c.id == c.job_id).where(
                c.id == document_id, c.organization_id == caller.organization_id
            )
        )

    async def start_presentation(self, caller: Caller, form: PresentationRequest) -> tuple[UUID, str]:
        """Start generating a presentation; 402 if the monthly quota is used up, 422 for unknown documents."""
        presentation_id = uuid4()
        tokens = form.slides * TOKENS_PER_SLIDE
        reserved = await self.reserve(caller, presentation_id, presentations=1, tokens=tokens)
        try:
            async with self.engine.begin() as sql:
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
                    "theme": form.theme,
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

    async def presentation(self, caller: Caller, presentation_id: UUID) -> Row[Any]:
        """A presentation and the state of its job."""
        c = presentations.c
        query = select(*c, _JOBS.c.state, _JOBS.c.error).join(_JOBS, _JOBS.c.id == c.job_id)
        return await self._one(
            query.where(c.id == presentation_id, c.organization_id == caller.organization_id)
        )

    async def slides(self, presentation_id: UUID) -> Sequence[Row[Any]]:
        """The slides of a presentation, in order."""
        query = select(slides).where(slides.c.presentation_id == presentation_id).order_by(slides.c.number)
        async with self.engine.connect() as sql:
            return (await sql.execute(query)).all()

    async def slides_completed(self, job_id: str) -> int:
        """The number of slides that a job has written, stored or not."""
        s = _STEPS.c
        query = select(func.count()).where(s.job_id == job_id, s.name.like("slide:%"))
        async with self.engine.connect() as sql:
            return int((await sql.execute(query)).scalar_one())

    async def count_slides(self, job_id: str) -> tuple[int, int | None]:
        """How many slides a job has written, and how many its outline has; None before it has one."""
        s = _STEPS.c
        outlined = select(s.result).where(s.job_id == job_id, s.name == "outline").scalar_subquery()
        query = select(func.count(), outlined).where(s.job_id == job_id, s.name.like("slide:%"))
        async with self.engine.connect() as sql:
            written, outline = (await sql.execute(query)).one()
        return written, None if outline is None else min(len(json.loads(outline)["slides"]), MAX_SLIDES)

    async def start_export(self, caller: Caller, presentation_id: UUID, format: Format) -> tuple[UUID, str]:  # noqa: A002
        """Start an export; the oldest files of a presentation that has ten are deleted.

        409 while the presentation is not generated, 429 while too many exports of the organization wait.
        """
        found = await self.presentation(caller, presentation_id)
        if found.state != "done":
            raise problem(409, f"The presentation is {found.state}; it can be exported when it is done.")
        export_id = uuid4()
        async with self.engine.begin() as sql:
            await self._check_exports(sql, caller, presentation_id)
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

    async def _check_exports(self, sql: AsyncConnection, caller: Caller, presentation_id: UUID) -> None:
        """Make room for an export of a presentation, or raise 429."""
        await self._lock_organization(sql, caller)
        e, p = exports.c, presentations.c
        unfinished = select(func.count()).select_from(exports).join(presentations, p.id == e.presentation_id)
        unfinished = unfinished.join(_JOBS, _JOBS.c.id == e.job_id)
        waiting = unfinished.where(p.organization_id == caller.organization_id, _UNFINISHED)
        if (await sql.execute(waiting)).scalar_one() >= _MAX_EXPORTS:
            raise _too_many(
                f"{_MAX_EXPORTS} exports of your organization wait; start more when they are made."
            )
        finished = (
            select(e.id).join(_JOBS, _JOBS.c.id == e.job_id).where(e.presentation_id == presentation_id)
        )
        oldest = finished.where(~_UNFINISHED).order_by(e.created_at.desc(), e.id).offset(_KEPT_EXPORTS - 1)
        await sql.execute(delete(exports).where(e.id.in_(oldest)))

    async def export(self, caller: Caller, export_id: UUID, *, content: bool = False) -> Row[Any]:
        """An export and the state of its job, optionally with its file."""
        e, p = exports.c, presentations.c
        columns = [e.id, e.presentation_id, e.format, e.url, e.job_id, e.created_at, p.title]
        if content:
            columns.append(e.content)
        query = (
            select(*columns, _JOBS.c.state, _JOBS.c.error)
            .join(presentations, p.id == e.presentation_id)
            .join(_JOBS, _JOBS.c.id == e.job_id)
        )
        return await self._one(query.where(e.id == export_id, p.organization_id == caller.organization_id))

    async def share(self, caller: Caller, presentation_id: UUID, days: int | None) -> Share:
        """The public link of a presentation, created if needed, with a new end.

        An expired link is replaced by another one: those who had it stay out.
        """
        await self.presentation(caller, presentation_id)
        c = shares.c
        ends = {"expires_at": None if days is None else func.now() + timedelta(days=days)}
        row = {"presentation_id": presentation_id, "token": secrets.token_urlsafe(24), **ends}
        created = upsert(shares).values(row)
        changed = created.on_conflict_do_update(index_elements=[c.presentation_id], set_=ends)
        async with self.engine.begin() as sql:
            expired = delete(shares).where(c.presentation_id == presentation_id, c.expires_at <= func.now())
            await sql.execute(expired)
            found = (await sql.execute(changed.returning(c.token, c.expires_at, c.view_count))).one()
        return await self._with_pending_views(presentation_id, found)

    async def find_share(self, caller: Caller, presentation_id: UUID) -> Share:
        """The public link of a presentation; 404 if there is none, or if it has expired."""
        await self.presentation(caller, presentation_id)
        c = shares.c
        found = select(c.token, c.expires_at, c.view_count).where(c.presentation_id == presentation_id)
        return await self._with_pending_views(presentation_id, await self._one(found.where(OPEN_SHARE)))

    async def _with_pending_views(self, presentation_id: UUID, row: Row[Any]) -> Share:
        waiting = await self._views.pending(presentation_id=str(presentation_id))
        return Share(row.token, row.expires_at, row.view_count + waiting.get("view_count", 0))

    async def withdraw_share(self, caller: Caller, presentation_id: UUID) -> None:
        """Delete the public link of a presentation; 404 if there is none."""
        await self.presentation(caller, presentation_id)
        async with self.engine.begin() as sql:
            withdrawn = delete(shares).where(shares.c.presentation_id == presentation_id)
            if not (await sql.execute(withdrawn)).rowcount:
                raise problem(404, "The presentation is not shared.")

    async def shared(self, token: str) -> Row[Any]:
        """The presentation of a link; counts a view, directly in SQL if Redis is down."""
        p = presentations.c
        query = select(p.id, p.organization_id, p.title, p.topic, p.theme, p.language).join(
            shares, shares.c.presentation_id == p.id
        )
        found = await self._one(query.where(shares.c.token == token, OPEN_SHARE))
        await self._views.add(presentation_id=str(found.id), view_count=1, fallback=self._view_table)
        return found

    async def storage_used(self, organization_id: UUID) -> int:
        """The bytes of an organization's documents."""
        async with self.engine.connect() as sql:
            return int((await sql.execute(_stored(organization_id))).scalar_one())

    async def _check_room(self, sql: AsyncConnection, caller: Caller, size: int) -> None:
        c, gigabytes = documents.c, caller.limits.storage_gb
        await self._lock_organization(sql, caller)
        owned = c.organization_id == caller.organization_id
        used = (await sql.execute(_stored(caller.organization_id))).scalar_one()
        if used + size > gigabytes * _GIGABYTE:
            raise problem(402, f"Your plan's {gigabytes} GB of document storage are used up.")
        unread = select(func.count()).select_from(documents).join(_JOBS, _JOBS.c.id == c.job_id)
        waiting = unread.where(owned, _UNFINISHED)
        if (await sql.execute(waiting)).scalar_one() >= self._max_unread:
            raise _too_many(
                f"{self._max_unread} of your organization's documents wait to be read; "
                "send more when they have been."
            )

    async def _lock_organization(self, sql: AsyncConnection, caller: Caller) -> None:
        """Serialize what is counted: parallel requests would all see the same room."""
        organization = select(organizations.c.id).where(organizations.c.id == caller.organization_id)
        await sql.execute(organization.with_for_update(key_share=True))

    async def reserve(
        self, caller: Caller, reservation_id: UUID, *, presentations: int = 0, tokens: int
    ) -> Reservation:
        """Reserve usage of the caller's organization; 402 if the monthly quota is used up."""
        limits = caller.limits
        try:
            return await self._usage.reserve(
                str(caller.organization_id),
                reservation_id=str(reservation_id),
                presentations=presentations,
                tokens=tokens,
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

    async def _check_sources(
        self, sql: AsyncConnection, caller: Caller, document_ids: Sequence[UUID]
    ) -> None:
        c = documents.c
        found = await sql.execute(
            select(c.id, _JOBS.c.state)
            .join(_JOBS, _JOBS.c.id == c.job_id)
            .where(c.id.in_(document_ids), c.organization_id == caller.organization_id)
        )
        states = {row.id: row.state for row in found}
        if missing := set(document_ids) - set(states):
            raise problem(422, f"Unknown documents: {', '.join(sorted(map(str, missing)))}.")
        if unread := [str(each) for each, state in states.items() if state != "done"]:
            raise problem(409, f"These documents have not been read yet: {', '.join(sorted(unread))}.")

    async def _one(self, query: Select[Any]) -> Row[Any]:
        async with self.engine.connect() as sql:
            row: Row[Any] | None = (await sql.execute(query)).one_or_none()
        if row is None:
            raise problem(404, NOT_FOUND)
        return row


def _too_many(detail: str) -> Exception:
    return problem(429, detail, headers=[(b"retry-after", b"5")])


def _stored(organization_id: UUID) -> Select[Any]:
    """The query of the bytes of an organization's documents."""
    c = documents.c
    return select(func.coalesce(func.sum(c.size), 0)).where(c.organization_id == organization_id)
