"""The five services as processes on their own servers, each started at its first use."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Self

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from tests.services import identity_users, scripture_readers
from tests.services.feed_users import feeding
from tests.services.league_users import league
from tests.services.services import Served, serving
from tests.services.slides_processes import Model
from tests.services.slides_users import QUICK, administrator


class Services:
    """Running services without limits that fuzzing would meet; all of them end with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ending = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    @cached_property
    def _postgres(self) -> Postgres:
        return self._ending.enter_context(embedded.postgres())

    def _valkey(self) -> Valkey:
        return self._ending.enter_context(embedded.valkey())

    def _places(self, name: str, server: Valkey) -> dict[str, str]:
        return {"EPHEMERA_URL": server.url, "EPHEMERA_DATABASE_URL": self._postgres.database(f"fuzz_{name}")}

    @cached_property
    def identity(self) -> Served:
        """Accounts and tokens."""
        variables = {**identity_users.QUICK, **identity_users.UNLIMITED}
        places = self._places("identity", self._valkey())
        return self._ending.enter_context(serving("identity", self._folder, **places, **variables))

    @cached_property
    def league(self) -> Served:
        """A league with its demonstration."""
        secure = {"EPHEMERA_LEAGUE_SECURE_COOKIES": "true"}
        return self._ending.enter_context(
            league(self._folder, self._places("league", self._valkey()), **secure)
        )

    @cached_property
    def scripture(self) -> Served:
        """Texts and answers."""
        server = self._valkey()
        places = self._places("scripture", server)
        unlimited = scripture_readers.UNLIMITED
        return self._ending.enter_context(
            scripture_readers.reading(places, server, self._folder, **unlimited)
        )

    @cached_property
    def feed(self) -> Served:
        """Feed, with a subscriber."""
        caller = self._ending.enter_context(feeding(self._folder, self._places("feed", self._valkey())))
        caller.publish("space", "The rocket launch put a capsule into orbit", "The crew is well")
        caller.subscribe("ann", "space")
        return caller.served

    @cached_property
    def slides(self) -> Served:
        """Presentations, without a worker; its organization has no limit that is met."""
        model = Model()
        self._ending.callback(model.close)
        places = {
            **self._places("slides", self._valkey()),
            "EPHEMERA_QUEUE_URL": self._valkey().url,
            "EPHEMERA_SLIDES_MODEL_URL": model.url,
            "EPHEMERA_SLIDES_COST_MICROS_PER_1K_TOKENS": "420",
            **QUICK,
        }
        running = self._ending.enter_context(serving("slides", self._folder, **places))
        administrator(running)
        return running
