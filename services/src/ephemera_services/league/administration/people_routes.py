"""Comments, users and the cache: for administrators."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera_services.league.access import Admin, Service
from ephemera_services.league.administration import views
from ephemera_services.league.administration.editor import refuse_own_account, require_administrator
from ephemera_services.league.administration.edits import recorded
from ephemera_services.league.administration.forms import (
    CachedResource,
    CacheList,
    CommentList,
    Id,
    Invalidation,
    Role,
    Search,
    UserChange,
    UserList,
)
from ephemera_services.league.administration_tables import changes
from ephemera_services.league.keys import RESOURCES
from ephemera_services.league.tables import comments, users
from ephemera_services.runtime import problem, problems

router = APIRouter(prefix="/api/admin", tags=["administration"], responses=problems(403, 429))

_REMOVAL = "removal of a comment"


@router.get("/comments")
async def comment_list(
    _: Admin,
    service: Service,
    match_id: Id | None = None,
    user_id: Id | None = None,
    search: Search = "",
    before: Id | None = None,
) -> CommentList:
    """The last hundred comments that contain a text, the newest first, before a comment's id."""
    conditions = [comments.c.text.icontains(search, autoescape=True)]
    for column, value in ((comments.c.match_id, match_id), (comments.c.user_id, user_id)):
        if value is not None:
            conditions.append(column == value)
    if before is not None:
        conditions.append(comments.c.id < before)
    async with service.engine.connect() as sql:
        return CommentList(comments=await views.comment_list(sql, *conditions))


@router.delete("/comments/{comment_id}", status_code=204, responses=problems(404))
async def remove_comment(comment_id: Id, admin: Admin, service: Service, erase: bool = False) -> None:
    """Remove a comment; undo brings it back. With `erase` its text is not kept in the history either."""
    async with service.editor.edit(admin, _REMOVAL) as edit:
        await edit.delete(comments, comment_id)
        if erase:
            edit.erase = True
            await _erase_text(edit.sql, [comment_id])


@router.delete("/changes/{change_id}/text", status_code=204, responses=problems(404, 409))
async def erase_removed(change_id: Id, _: Admin, service: Service) -> None:
    """Erase the text of a comment that was removed: the removal can no longer be undone. Idempotent."""
    change = await service.editor.change(change_id)
    if change.action.removeprefix("undo: ") != _REMOVAL:
        raise problem(409, "This is not the removal of a comment.")
    async with service.engine.begin() as sql:
        await _erase_text(sql, [row.id for row in recorded(change)])


async def _erase_text(sql: AsyncConnection, comment_ids: Sequence[int]) -> None:
    """Erase what the history has of comments."""
    for comment_id in comment_ids:
        of_comment = changes.c.rows.contains([{"table": "comments", "id": comment_id}])
        await sql.execute(update(changes).where(of_comment).values(rows=[]))


@router.get("/users")
async def user_list(
    _: Admin,
    service: Service,
    search: Search = "",
    role: Role | None = None,
    blocked: bool | None = None,
    before: Id | None = None,
) -> UserList:
    """The last hundred users whose name contains a text, the newest first, before a user's id."""
    conditions = [users.c.name.icontains(search, autoescape=True)]
    if role is not None:
        conditions.append(users.c.role == role)
    if blocked is not None:
        conditions.append(users.c.blocked_at.is_not(None) if blocked else users.c.blocked_at.is_(None))
    if before is not None:
        conditions.append(users.c.id < before)
    async with service.engine.connect() as sql:
        return UserList(users=await views.user_list(sql, *conditions))


@router.put("/users/{user_id}", status_code=204, responses=problems(404, 409))
async def change_user(user_id: Id, form: UserChange, admin: Admin, service: Service) -> None:
    """Give a role, block or unblock: all sessions of the user end. Not of your own account."""
    async with service.editor.edit(admin, "change of a user") as edit:
        await require_administrator(edit.sql, admin)
        values: dict[str, Any] = {} if form.role is None else {"role": form.role}
        if form.blocked is not None:
            blocked = await edit.sql.execute(select(users.c.blocked_at).where(users.c.id == user_id))
            since = blocked.scalar_one_or_none() or datetime.now(UTC)
            values["blocked_at"] = since if form.blocked else None
        await edit.update(users, user_id, **values)
        refuse_own_account(edit.rows, admin)


@router.get("/cache")
async def cache(_: Admin, service: Service) -> CacheList:
    """The resources of the cache, with the hits and misses of this process."""
    found = []
    for resource in RESOURCES:
        stats = service.store[resource].stats
        space = resource.cache.keyspace
        found.append(
            CachedResource(
                pattern=space.pattern,
                fields=list(resource.fields),
                purpose=space.purpose,
                hits=stats.hits,
                misses=stats.misses,
            )
        )
    return CacheList(resources=found)


@router.post("/cache/invalidate", status_code=204, responses=problems(404))
async def invalidate(form: Invalidation, _: Admin, service: Service) -> None:
    """Load a page again from SQL, in every process."""
    resource = next((each for each in RESOURCES if each.cache.keyspace.pattern == form.pattern), None)
    if resource is None or {*form.fields} != {*resource.fields}:
        raise problem(404, "There is no such page.")
    if not service.store[resource].accepts(form.fields):
        raise problem(404, "There is no such page.")
    await service.site.delete(resource.at(**form.fields))
