"""The application: `ephemera serve scripture`, or mounted under a prefix beside other services."""

from __future__ import annotations

from fastapi import FastAPI

from ephemera_services.runtime import ServiceDefinition, create_application, web_page_router
from ephemera_services.scripture import (
    account_routes,
    ai_routes,
    content_routes,
    ingest_routes,
    notification_routes,
)
from ephemera_services.scripture.answers import semantic_backend
from ephemera_services.scripture.corpus import SCHEMAS
from ephemera_services.scripture.keys import ANSWERS, catalogue
from ephemera_services.scripture.service import open_scripture
from ephemera_services.scripture.settings import Settings
from ephemera_services.scripture.tables import FENCES, ONCE, metadata

__all__ = ["Settings", "create_app", "service_definition"]


def create_app(settings: Settings) -> FastAPI:
    """Return the application, which opens its resources at startup; `InvalidSettings` if it cannot."""
    return create_application(
        settings,
        service_definition(settings),
        lambda resources: open_scripture(settings, resources),
        content_routes.router,
        ai_routes.router,
        account_routes.router,
        ingest_routes.router,
        notification_routes.router,
        web_page_router("scripture"),
    )


def service_definition(settings: Settings) -> ServiceDefinition:
    """The definition of the service for some settings."""
    settings.check()
    return ServiceDefinition(
        "scripture",
        "A content gateway: passages, chapters, topics, a lexicon, and answers.",
        catalogue,
        metadata,
        body_limits={f"/ingest/{schema}": settings.ingest_bytes for schema in (*SCHEMAS, "chapters")},
        identity=settings.identity,
        store_resources=lambda _: {ANSWERS: semantic_backend(settings)},
        guards=(FENCES, ONCE),
    )
