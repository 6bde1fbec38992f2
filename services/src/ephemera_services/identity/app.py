"""The application: `ephemera serve identity`, or mounted under a prefix beside other services."""

from __future__ import annotations

from fastapi import FastAPI

from ephemera_services.identity import (
    account_routes,
    admin_routes,
    auth_routes,
    document_routes,
    profile_routes,
    token_routes,
)
from ephemera_services.identity.documents import FORM_OVERHEAD
from ephemera_services.identity.keys import catalogue
from ephemera_services.identity.service import open_identity
from ephemera_services.identity.settings import Settings
from ephemera_services.identity.tables import metadata
from ephemera_services.runtime import ServiceDefinition, create_application, web_page_router

__all__ = ["Settings", "create_app"]


def create_app(settings: Settings) -> FastAPI:
    """Return the application, which opens its resources at startup; `InvalidSettings` if it cannot."""
    settings.check()
    service = ServiceDefinition(
        "identity",
        "Accounts, tokens and profiles for a family of services.",
        catalogue,
        metadata,
        body_limits={"/api/documents/upload": settings.document_bytes + FORM_OVERHEAD},
    )
    return create_application(
        settings,
        service,
        lambda resources: open_identity(settings, resources),
        profile_routes.router,
        auth_routes.router,
        account_routes.router,
        token_routes.router,
        document_routes.router,
        admin_routes.router,
        web_page_router("identity"),
    )
