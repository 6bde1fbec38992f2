"""The application: `ephemera serve slides`, or mounted under a prefix beside other systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.middleware import Middleware

from ephemera.systems.serving import System, application
from ephemera.systems.slides import (
    account_routes,
    document_routes,
    job_routes,
    page_routes,
    presentation_routes,
)
from ephemera.systems.slides.keys import SESSIONS, catalogue
from ephemera.systems.slides.service import opened_slides
from ephemera.systems.slides.settings import Settings
from ephemera.systems.slides.tables import metadata
from ephemera.web.cookies import Cookie
from ephemera.web.sessions import SessionMiddleware

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["Settings", "create_app"]


def create_app(settings: Settings) -> FastAPI:
    """The application, which opens what it needs when it starts."""
    cookie = Cookie() if settings.secure_cookies else Cookie(name="slides-session", secure=False)
    system = System(
        "slides",
        "Presentations from topics and documents.",
        catalogue,
        metadata,
        larger_bodies={"/documents": settings.document_bytes + document_routes.ENVELOPE},
        middleware=(
            Middleware(
                SessionMiddleware,
                sessions=lambda scope: scope["app"].state.resources.store[SESSIONS],
                cookie=cookie,
            ),
        ),
    )
    return application(
        settings,
        system,
        lambda resources: opened_slides(settings, resources),
        account_routes.router,
        document_routes.router,
        presentation_routes.router,
        job_routes.router,
        page_routes.router,
    )
