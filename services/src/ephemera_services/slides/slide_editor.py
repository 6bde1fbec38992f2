"""The library of presentations: list and search them, edit, reorder, regenerate and delete slides.

A presentation can be edited when its job has ended. Changes are serialized by its row, so that two editors
who reorder at once do not mix their orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, Row, Text, cast, delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ephemera.errors import UnknownJob
from ephemera_services.runtime import problem
from ephemera_services.slides.access import Caller
from ephemera_services.slides.jobs import rewrite
from ephemera_services.slides.keys import JOBS
from ephemera_services.slides.tables import documents, presentations, shares, slides
from ephemera_services.slides.workspace import NOT_FOUND, OPEN_SHARE, TOKENS_PER_SLIDE, Workspace

_JOBS = JOBS.tables.jobs
_OPEN = ("waiting", "running")


class SlideEditor:
    """Lists and changes presentations and their documents."""

    def __init__(self, engine: AsyncEngine, workspace: Workspace) -> None:
        self._engine = engine
        self._workspace = workspace

    async def presentations(self, caller: Caller, query: str, limit: int, offset: int) -> Sequence[Row[Any]]:
        """The newest presentations whose title, topic or slides contain a text; each with the total."""
        p, s = presentations.c, slides.c
        within = select(s.id).where(
            s.presentation_id == p.id,
            or_(_contains(s.title, query), _contains(cast(s.bullets, Text), query)),
        )
        matches = or_(_contains(p.topic, query), _contains(p.title, query), within.exists())
        count = select(func.count()).where(s.presentation_id == p.id).scalar_subquery()
        shared = select(shares.c.token).where(shares.c.presentation_id == p.id, OPEN_SHARE).exists()
        columns: list[Any] = [
            p[name] for name in ("id", "job_id", "topic", "title", "theme", "language", "created_at")
        ]
        columns += [count.label("slides"), shared.label("shared"), _JOBS.c.state, _JOBS.c.error]
        found = select(*columns, func.count().over().label("total")).join(_JOBS, _JOBS.c.id == p.job_id)
        mine = found.where(p.organization_id == caller.organization_id)
        return await self._page(mine.where(matches) if query else mine, p, limit, offset)

    async def documents(self, caller: Caller, query: str, limit: int, offset: int) -> Sequence[Row[Any]]:
        """The newest documents whose name contains a text; each with the total."""
        d = documents.c
        names = ("id", "name", "media_type", "size", "sha256", "job_id", "created_at")
        columns: list[Any] = [d[name] for name in names]
        columns += [self._workspace.chunk_count.label("chunks"), _JOBS.c.state, _JOBS.c.error]
        found = select(*columns, func.count().over().label("total")).join(_JOBS, _JOBS.c.id == d.job_id)
        mine = found.where(d.organization_id == caller.organization_id)
        return await self._page(mine.where(_contains(d.name, query)) if query else mine, d, limit, offset)

    async def delete_document(self, caller: Caller, document_id: UUID) -> None:
        """Delete a document with its chunks; presentations that were made from it stay."""
        row = await self._workspace.document(caller, document_id)
        await self._cancel(row.job_id)
        async with self._engine.begin() as sql:
            await sql.execute(delete(documents).where(documents.c.id == document_id))

    async def change(self, caller: Caller, presentation_id: UUID, values: dict[str, Any]) -> None:
        """Change the title or the theme of a presentation."""
        async with self._engine.begin() as sql:
            await self._lock(sql, caller, presentation_id)
            if values:
                changed = update(presentations).where(presentations.c.id == presentation_id)
                await sql.execute(changed.values(**values))

    async def delete(self, caller: Caller, presentation_id: UUID) -> None:
        """Delete a presentation with its slides, exports and link; a job that writes it is cancelled."""
        row = await self._workspace.presentation(caller, presentation_id)
        await self._cancel(row.job_id)
        async with self._engine.begin() as sql:
            await sql.execute(delete(presentations).where(presentations.c.id == presentation_id))

    async def edit(
        self, caller: Caller, presentation_id: UUID, slide_id: UUID, values: dict[str, Any]
    ) -> Row[Any]:
        """Change fields of a slide; the slide."""
        s = slides.c
        where = (s.id == slide_id, s.presentation_id == presentation_id)
        async with self._engine.begin() as sql:
            await self._lock(sql, caller, presentation_id)
            if values:
                await sql.execute(update(slides).where(*where).values(**values))
            row = (await sql.execute(select(slides).where(*where))).one_or_none()
        if row is None:
            raise problem(404, NOT_FOUND)
        return row

    async def reorder(self, caller: Caller, presentation_id: UUID, slide_ids: Sequence[UUID]) -> None:
        """Put all slides of a presentation in this order; 409 if they are others by now."""
        s = slides.c
        async with self._engine.begin() as sql:
            await self._lock(sql, caller, presentation_id)
            known = await sql.execute(select(s.id).where(s.presentation_id == presentation_id))
            if sorted(known.scalars()) != sorted(slide_ids):
                raise problem(409, "The slides are not those of the presentation, each once; read it again.")
            for number, slide_id in enumerate(slide_ids, 1):
                await sql.execute(update(slides).where(s.id == slide_id).values(number=number))

    async def delete_slide(self, caller: Caller, presentation_id: UUID, slide_id: UUID) -> None:
        """Delete a slide; 409 for the last one."""
        s = slides.c
        mine = s.presentation_id == presentation_id
        async with self._engine.begin() as sql:
            await self._lock(sql, caller, presentation_id)
            found = delete(slides).where(mine, s.id == slide_id).returning(s.number)
            number = (await sql.execute(found)).scalar_one_or_none()
            if number is None:
                raise problem(404, NOT_FOUND)
            if not (await sql.execute(select(func.count()).where(mine))).scalar_one():
                raise problem(409, "This is the last slide; delete the presentation instead.")
            await sql.execute(update(slides).where(mine, s.number > number).values(number=s.number - 1))

    async def regenerate(self, caller: Caller, presentation_id: UUID, slide_id: UUID) -> str:
        """Start to write a slide again; the id of the job. 402 if the monthly tokens are used up."""
        await self.edit(caller, presentation_id, slide_id, {})
        reserved = await self._workspace.reserve(caller, uuid4(), tokens=TOKENS_PER_SLIDE)
        try:
            return await self._workspace.jobs.enqueue(
                rewrite,
                presentation_id=presentation_id,
                slide_id=slide_id,
                organization_id=caller.organization_id,
                user_id=caller.user_id,
                reservation_id=reserved.id,
                period=reserved.period,
            )
        except BaseException:
            await reserved.release()
            raise

    async def _page(self, query: Any, columns: Any, limit: int, offset: int) -> Sequence[Row[Any]]:
        ordered = query.order_by(columns.created_at.desc(), columns.id).limit(limit).offset(offset)
        async with self._engine.connect() as sql:
            found: Sequence[Row[Any]] = (await sql.execute(ordered)).all()
        return found

    async def _lock(self, sql: AsyncConnection, caller: Caller, presentation_id: UUID) -> None:
        """Lock a presentation of the caller's organization; 409 while it is being written."""
        p = presentations.c
        query = select(_JOBS.c.state).join(presentations, p.job_id == _JOBS.c.id)
        mine = query.where(p.id == presentation_id, p.organization_id == caller.organization_id)
        state = (await sql.execute(mine.with_for_update(of=presentations))).scalar_one_or_none()
        if state is None:
            raise problem(404, NOT_FOUND)
        if state in _OPEN:
            raise problem(
                409, "The presentation is being written; edit it when it is done, or cancel its job."
            )

    async def _cancel(self, job_id: str) -> None:
        try:
            await self._workspace.jobs.cancel(job_id)
        except UnknownJob:
            return  # it has ended


def _contains(column: ColumnElement[Any], text: str) -> ColumnElement[bool]:
    return column.icontains(text, autoescape=True)
