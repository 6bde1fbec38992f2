"""OpenAPI: the five services answer generated requests as their documents say, for any seed.

schemathesis generates the requests from each document: valid and invalid ones, with and without credentials.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from ephemera_services.league import DEMO_ADMINISTRATOR
from ephemera_services.runtime import DEMO_PASSWORD
from tests.fuzz.services import Services
from tests.fuzz.trials import Area, Trial
from tests.services import identity_users, scripture_readers
from tests.services.conformance import conform
from tests.services.feed_users import TOKEN as FEED_TOKEN
from tests.services.league_users import TOKEN
from tests.services.services import Served
from tests.services.slides_users import ADMIN, Person
from tests.services.test_feed_conformance import WITHOUT_STREAM as FEED_WITHOUT_STREAM
from tests.services.test_identity_conformance import WITHOUT_ENDING as IDENTITY_STAYS
from tests.services.test_league_conformance import ENDING as LEAGUE_STAYS
from tests.services.test_scripture_conformance import WITHOUT_INGEST
from tests.services.test_slides_conformance import WITHOUT_ENDING as SLIDES_STAYS

EXAMPLES = 12
"""Requests that schemathesis makes of an operation, at most, in one case."""


class _Asked:
    """One service with credentials: those of an administrator, or none."""

    def __init__(
        self, served: Callable[[], Served], administrator: Callable[[Served], dict[str, Any]] | None = None
    ) -> None:
        self._served = served
        self._administrator = administrator

    def draw(self, random: Random) -> tuple[bool, int]:
        """Whether an administrator asks, and schemathesis' seed."""
        return self._administrator is not None and random.random() < 0.6, random.getrandbits(32)

    def check(self, case: tuple[bool, int]) -> None:
        """No 5xx, no undeclared status, no violation of a schema."""
        as_administrator, seed = case
        served = self._served()
        more: dict[str, Any] = {"options": ()}
        if as_administrator and self._administrator is not None:
            more = self._administrator(served)
        options = more.pop("options")
        conform(served.url, *options, examples=EXAMPLES, seed=seed, **more)
        assert served.process.poll() is None, "the service ended"


def _bearer(token: str, *options: str) -> dict[str, Any]:
    return {"options": ("--header", f"Authorization: Bearer {token}", *options)}


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[list[Trial]]:
    def referee(served: Served) -> dict[str, Any]:
        signed = served.client.post(
            "/api/session", json={"name": DEMO_ADMINISTRATOR, "password": DEMO_PASSWORD}
        )
        config = folder / "schemathesis.toml"
        config.write_text(f'[auth.openapi.Session]\napi_key = "{signed.cookies["__Host-session"]}"\n')
        return {"options": ("--header", f"x-prewarm-token: {TOKEN}", *LEAGUE_STAYS), "config": config}

    with Services(folder) as services:
        asked = {
            "identity": _Asked(
                lambda: services.identity,
                lambda served: _bearer(
                    identity_users.administrator(served).tokens["access_token"], *IDENTITY_STAYS
                ),
            ),
            "slides": _Asked(
                lambda: services.slides,
                lambda served: {
                    "options": ("--header", f"Cookie: {Person(served, ADMIN).cookie}", *SLIDES_STAYS)
                },
            ),
            "scripture": _Asked(
                lambda: services.scripture,
                lambda served: _bearer(scripture_readers.administrator(served).token, *WITHOUT_INGEST),
            ),
            "feed": _Asked(lambda: services.feed, lambda _: _bearer(FEED_TOKEN, *FEED_WITHOUT_STREAM)),
            "league": _Asked(lambda: services.league, referee),
        }
        yield [
            Trial(
                name,
                f"{name} answers as its document says: no 5xx, no undeclared status, no other schema.",
                each.draw,
                each.check,
                batch=1,
                patience=300,
                needs_services=True,
            )
            for name, each in asked.items()
        ]


OPENAPI = Area("openapi", _opened)
