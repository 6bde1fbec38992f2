"""The application: `ephemera serve identity`, or mounted under a prefix beside other systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ephemera.systems.identity import admin_routes, auth_routes, profile_routes
from ephemera.systems.identity.documents import ENVELOPE
from ephemera.systems.identity.keys import catalogue
from ephemera.systems.identity.service import opened_identity
from ephemera.systems.identity.settings import Settings
from ephemera.systems.identity.tables import metadata
from ephemera.systems.serving import System, application

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["Settings", "create_app"]


def create_app(settings: Settings) -> FastAPI:
    """The application, which opens what it needs when it starts."""
    system = System(
        "identity",
        "Accounts, tokens and profiles for a family of services.",
        catalogue,
        metadata,
        larger_bodies={"/api/documents/upload": settings.document_bytes + ENVELOPE},
    )
    return application(
        settings,
        system,
        lambda resources: opened_identity(settings, resources),
        profile_routes.router,
        auth_routes.router,
        admin_routes.router,
    )
