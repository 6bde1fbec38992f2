"""What follows the end of a job, whatever it was: its user is told, and what it had reserved is given back.

It is done by the process that ended the job: a worker, or whoever cancelled it. The user hears it on
whichever process they are connected to; if nobody hears it, SQL has it all the same.
"""

from __future__ import annotations

from contextlib import suppress

from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.errors import ConnectionFailed
from ephemera.patterns.jobs import JobRow
from ephemera_services.slides.keys import NOTIFICATIONS, USAGE
from ephemera_services.slides.progress_events import About, Notification, shown_error

_ABOUT: dict[str, About] = {"generate": "presentation", "ingest": "document", "export": "export"}


async def notify_user(store: Store, _: AsyncEngine, row: JobRow) -> None:
    """Give back what was reserved for nothing, and tell the user; nobody waits for a Redis that is away."""
    if row.kind == "generate" and row.state != "done":
        with suppress(ConnectionFailed):  # it expires by itself
            await _release(store, row)
    about = _ABOUT[row.kind]
    note = Notification(
        about=about,
        id=row.arguments[f"{about}_id"],
        job_id=row.id,
        state="ready" if row.state == "done" else "failed",
        detail=_told(row),
    )
    with suppress(ConnectionFailed):
        await store[NOTIFICATIONS].push(note, user_id=row.arguments["user_id"])


async def _release(store: Store, row: JobRow) -> None:
    of, which, when = (row.arguments[name] for name in ("organization_id", "presentation_id", "period"))
    await store[USAGE].reservation(of, which, when).release()


def _told(row: JobRow) -> str:
    if row.state != "done":
        return shown_error(row.state, row.error) or ""
    if row.kind == "generate":
        return f"{row.result['slides']} slides are written."
    if row.kind == "ingest":
        return f"{row.result['chunks']} pieces are ready."
    return f"The {row.result['format']} is ready."
