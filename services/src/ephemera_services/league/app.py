"""The application: `ephemera serve league`, or mounted under a prefix beside other services."""

from __future__ import annotations

from datetime import timedelta

from fastapi import APIRouter, FastAPI
from starlette.middleware import Middleware

from ephemera.web.fastapi import add_prewarm
from ephemera_services.league import admin_routes, public_routes, user_routes
from ephemera_services.league.administration import control_routes, league_routes, people_routes
from ephemera_services.league.database_figures import DatabaseMeter
from ephemera_services.league.figures import RequestMeter
from ephemera_services.league.keys import SITE, WINDOWS, catalogue
from ephemera_services.league.middleware import LeagueMiddleware, store_of
from ephemera_services.league.service import open_league
from ephemera_services.league.settings import Settings
from ephemera_services.league.tables import FENCES, metadata
from ephemera_services.runtime import (
    InvalidSettings,
    ServiceDefinition,
    create_application,
    variable_names,
    web_page_router,
)

__all__ = ["Settings", "create_app"]


def create_app(settings: Settings) -> FastAPI:
    """Return the application, which opens its resources at startup."""
    meter = RequestMeter()
    database = DatabaseMeter(timedelta(milliseconds=settings.slow_query_milliseconds))
    service = ServiceDefinition(
        "league",
        "A football league's site: live matches, predictions, and polling by ETag.",
        catalogue,
        metadata,
        middleware=(Middleware(LeagueMiddleware, settings=settings, meter=meter),),
        separate_queue=settings.redis_megabytes is not None,
        store_resources=lambda engine: {SITE: engine, WINDOWS: engine},
        pool_class=database.pool_class(),
        guards=(FENCES,),
    )
    return create_application(
        settings,
        service,
        lambda resources: open_league(settings, resources, meter, database),
        public_routes.router,
        _prewarm_router(settings),
        user_routes.router,
        public_routes.shared,
        admin_routes.router,
        control_routes.router,
        league_routes.router,
        people_routes.router,
        web_page_router("league", "admin"),
    )


def _prewarm_router(settings: Settings) -> APIRouter:
    """The route for cron services, if a token is configured."""
    router = APIRouter()
    if settings.cache_prewarm_token is not None:
        token = settings.cache_prewarm_token.reveal()
        try:
            add_prewarm(router, "/api/cache/prewarm", SITE, token=token, store=store_of, tags=["cache"])
        except ValueError as problem:  # it is too short
            name = variable_names(Settings)["cache_prewarm_token"]
            raise InvalidSettings([f"{name}: {problem}"]) from None
    return router
