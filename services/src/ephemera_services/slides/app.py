"""The application: `ephemera serve slides`, or mounted under a prefix beside other services."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.middleware import Middleware

from ephemera.patterns.jobs import CeleryDelivery
from ephemera.web import Cookie, SessionMiddleware
from ephemera_services.runtime import ServiceDefinition, create_application, web_page_router
from ephemera_services.slides import (
    account_routes,
    brand_routes,
    document_routes,
    job_routes,
    library_routes,
    operator_routes,
    presentation_routes,
    webhook_routes,
)
from ephemera_services.slides.job_resources import usage_table
from ephemera_services.slides.keys import JOBS, SESSIONS, USAGE, catalogue
from ephemera_services.slides.service import open_slides
from ephemera_services.slides.settings import Settings
from ephemera_services.slides.tables import metadata

__all__ = ["Settings", "create_app"]


def create_app(settings: Settings) -> FastAPI:
    """Return the application, which opens its resources at startup."""
    cookie = Cookie() if settings.secure_cookies else Cookie(name="slides-session", secure=False)
    service = ServiceDefinition(
        "slides",
        "Presentations from topics and documents.",
        catalogue,
        metadata,
        store_resources=lambda engine: {JOBS: CeleryDelivery(engine), USAGE: usage_table(engine)},
        body_limits={
            "/documents": settings.document_bytes + document_routes.FORM_OVERHEAD,
            "/brand-kit": brand_routes.BODY_BYTES,
        },
        middleware=(
            Middleware(
                SessionMiddleware,
                sessions=lambda scope: scope["app"].state.resources.store[SESSIONS],
                cookie=cookie,
            ),
        ),
    )
    return create_application(
        settings,
        service,
        lambda resources: open_slides(settings, resources),
        account_routes.router,
        document_routes.router,
        presentation_routes.router,
        library_routes.router,
        brand_routes.router,
        webhook_routes.router,
        job_routes.router,
        operator_routes.router,
        web_page_router("slides"),
    )
