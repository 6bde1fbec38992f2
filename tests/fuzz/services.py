"""The five services as processes on their own servers, each started at its first use."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Self

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from tests.services import identity_users, scripture_readers
from tests.services.feed_users import QUICK as FEED_SETTINGS
from tests.services.feed_users import feeding
from tests.services.league_users import league
from tests.services.services import Served, serving
from tests.services.slides_processes import Model, working
from tests.services.slides_users import QUICK, administrator


class Services:
    """Running services without limits that fuzzing would meet; all of them end with it."""

    def __init__(self, folder: Path, *, workers: bool = False) -> None:
        self._folder = folder
        self._with_workers = workers
        self._ending = ExitStack()
        self.servers: dict[str, list[Valkey]] = {}
        """The Redis servers of each service that was started."""
        self.databases: dict[str, str] = {}
        """Their databases."""
        self.workers: dict[str, list[subprocess.Popen[bytes]]] = {}
        """Their workers, if they have some and these are asked for."""
        self.grpc_address = ""
        """Where feed is called by gRPC, once it was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    @cached_property
    def _postgres(self) -> Postgres:
        return self._ending.enter_context(embedded.postgres())

    def _valkey(self, name: str) -> Valkey:
        server = self._ending.enter_context(embedded.valkey())
        self.servers.setdefault(name, []).append(server)
        return server

    def _work(self, service: str, places: dict[str, str]) -> None:
        if self._with_workers:
            worker = self._ending.enter_context(working(self._folder, places, service=service))
            self.workers.setdefault(service, []).append(worker)

    def _places(self, name: str, server: Valkey) -> dict[str, str]:
        self.databases[name] = self._postgres.database(f"fuzz_{name}")
        return {"EPHEMERA_URL": server.url, "EPHEMERA_DATABASE_URL": self.databases[name]}

    @cached_property
    def identity(self) -> Served:
        """Accounts and tokens."""
        variables = {**identity_users.QUICK, **identity_users.UNLIMITED, **identity_users.ANY_PASSWORDS}
        places = self._places("identity", self._valkey("identity"))
        return self._ending.enter_context(serving("identity", self._folder, **places, **variables))

    @cached_property
    def league(self) -> Served:
        """A league with its demonstration."""
        secure = {"EPHEMERA_LEAGUE_SECURE_COOKIES": "true"}
        return self._ending.enter_context(
            league(self._folder, self._places("league", self._valkey("league")), **secure)
        )

    @cached_property
    def scripture(self) -> Served:
        """Texts and answers."""
        server = self._valkey("scripture")
        places = self._places("scripture", server)
        unlimited = scripture_readers.UNLIMITED
        running = self._ending.enter_context(
            scripture_readers.reading(places, server, self._folder, **unlimited)
        )
        self._work("scripture", {**places, **scripture_readers.keys_in(self._folder)})
        return running

    @cached_property
    def feed(self) -> Served:
        """Feed, with a subscriber."""
        places = self._places("feed", self._valkey("feed"))
        caller = self._ending.enter_context(feeding(self._folder, places))
        self.grpc_address = caller.grpc_address
        self._work("feed", {**places, **FEED_SETTINGS})
        caller.publish("space", "The rocket launch put a capsule into orbit", "The crew is well")
        caller.subscribe("ann", "space")
        return caller.served

    @cached_property
    def slides(self) -> Served:
        """Presentations; its organization has no limit that is met."""
        places = {
            **self._places("slides", self._valkey("slides")),
            "EPHEMERA_QUEUE_URL": self._valkey("slides").url,
            "EPHEMERA_SLIDES_MODEL_URL": self.model.url,
            "EPHEMERA_SLIDES_COST_MICROS_PER_1K_TOKENS": "420",
            **QUICK,
        }
        running = self._ending.enter_context(serving("slides", self._folder, **places))
        administrator(running)
        self._work("slides", places)
        return running

    @cached_property
    def model(self) -> Model:
        """The model that slides asks."""
        model = Model()
        self._ending.callback(model.close)
        return model
