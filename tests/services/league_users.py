"""Users of the league service, as tests need them: over HTTP, with a cookie, quickly."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import psycopg
from PIL import Image
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera_services.league import DEMO_ADMINISTRATOR
from ephemera_services.league.tables import competitions, seasons
from ephemera_services.runtime import DEMO_PASSWORD
from tests.services.services import Served, serving

TOKEN = "a-token-for-cron-services-0123456789"
QUICK = {
    "EPHEMERA_LEAGUE_PASSWORD_MEMORY": "8",
    "EPHEMERA_LEAGUE_SECURE_COOKIES": "false",
    "EPHEMERA_LEAGUE_DEMO": "true",
    "EPHEMERA_LEAGUE_DEMO_REFEREE": "false",
    "EPHEMERA_LEAGUE_CACHE_PREWARM_TOKEN": TOKEN,
    "EPHEMERA_LEAGUE_SIGN_INS_PER_10_MINUTES": "1000000",
    "EPHEMERA_LEAGUE_REGISTRATIONS_PER_HOUR": "1000000",
    "EPHEMERA_LEAGUE_COMMENTS_PER_MINUTE": "1000000",
    "EPHEMERA_LEAGUE_SLOW_QUERY_MILLISECONDS": "10000",
    "EPHEMERA_LEAGUE_ADMINISTRATION_PER_MINUTE": "1000000",
}
UNLIMITED = {"EPHEMERA_LEAGUE_REQUESTS_PER_10_SECONDS": "1000000"}
LIVE_MATCH = 32
"""The demonstration's match that is under way."""
_PATIENCE = 60.0  # seconds
PICTURES = os.environ.get("LEAGUE_PICTURES")
"""A folder to which tests save screens: `docs/images/league`, or one to look at them."""


@contextmanager
def league(folder: Path, places: dict[str, str], **variables: str) -> Iterator[Served]:
    """A league with its demonstration, without limits that tests would meet unless they say so."""
    with serving("league", folder, **{**places, **QUICK, **UNLIMITED, **variables}) as running:
        yield running


@contextmanager
def signed_in(served: Served, name: str, password: str = DEMO_PASSWORD) -> Iterator[httpx.Client]:
    """A client with the session of a user."""
    with httpx.Client(base_url=served.url, timeout=30) as client:
        client.post("/api/session", json={"name": name, "password": password}).raise_for_status()
        yield client


def referee(served: Served) -> AbstractContextManager[httpx.Client]:
    """A client with the session of the administrator."""
    return signed_in(served, DEMO_ADMINISTRATOR)


def save_picture(page: Any, name: str) -> None:
    """Save what the window shows, with few colours, so that it is small."""
    if PICTURES:
        shown = Image.open(BytesIO(page.screenshot(animations="disabled"))).convert("RGB")
        shown.quantize(128, dither=Image.Dither.NONE).save(Path(PICTURES) / f"{name}.png", optimize=True)


def until(wanted: Callable[[], Any], seconds: float = _PATIENCE) -> Any:
    """What a question gives once it gives something; fails when that takes too long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = wanted()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"it did not come true within {seconds} s: {wanted}")


def sql(places: dict[str, str], statement: str) -> list[Any]:
    """Run a statement on the service's database; its rows, if it has any."""
    with psycopg.connect(places["EPHEMERA_DATABASE_URL"], autocommit=True) as connection:
        found = connection.execute(statement)
        return list(found.fetchall()) if found.description else []


async def add_season(sql: AsyncConnection, name: str = "2026") -> int:
    """Add a competition with one season, the current one; the season's id."""
    adding = insert(competitions).values(name=f"League of {name}").returning(competitions.c.id)
    competition_id = (await sql.execute(adding)).scalar_one()
    values = {"competition_id": competition_id, "name": name, "status": "current"}
    return int((await sql.execute(insert(seasons).values(values).returning(seasons.c.id))).scalar_one())
