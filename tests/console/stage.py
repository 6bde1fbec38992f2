"""The five services, their workers and a console, each a process of its own, as `ephemera demo` has them.

Nobody visits them but the tests. The model of slides waits when it is told to, and so does the mail server of
scripture; everything else is as it comes.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psycopg

from ephemera import Store, connect
from ephemera.cli._catalogue_lookup import load_catalogue
from ephemera_services.demo.claims import MARK
from ephemera_services.demo.flag_errors import Given, database_of
from ephemera_services.demo.process_plan import ADMINISTRATOR, Cast, Part, cast
from ephemera_services.demo.processes import Processes, running
from ephemera_services.demo.servers import Servers, open_servers
from ephemera_services.demo.visitors import any_address
from ephemera_services.runtime import DEMO_PASSWORD
from tests.console.beside import LoopThread
from tests.console.consoles import RunningConsole
from tests.services.identity_users import sign_in
from tests.services.scripture_mail import MailServer
from tests.services.services import Served
from tests.services.slides_people import QUICK, administrator
from tests.services.slides_world import Model

_NONE_KEPT = httpx.Limits(max_keepalive_connections=0)
_LEFT_OUT = ("slides-worker-2",)  # it is there to be killed, which nobody does here
_TOLD = {
    **QUICK,
    "EPHEMERA_SLIDES_USAGE_FLUSH": "15m",
    "EPHEMERA_FEED_TICK_SECONDS": "3",  # a tick is seen by every page before the next
}


class Reached(Served):
    """A service of the stage, for somebody with an address of their own: limits count by it."""

    def __init__(self, url: str, log: Path, address: str) -> None:
        self.url = url
        self.log = log
        # No connection is kept: tests have many people, and none of them says goodbye.
        self.client = httpx.Client(
            base_url=url, headers={"x-forwarded-for": address}, timeout=30, limits=_NONE_KEPT
        )


class Stage:
    """All that runs."""

    def __init__(self, cast: Cast, servers: Servers, processes: Processes, beside: LoopThread) -> None:
        self.servers = servers
        self.console_password = cast.console_password
        self.metrics_token = cast.part("console").environment["EPHEMERA_METRICS_TOKEN"]
        port = int(cast.urls["console"].rpartition(":")[2])
        self.console = RunningConsole(None, port, processes["console"].log)
        self._cast = cast
        self._processes = processes
        self._beside = beside
        self._stores: dict[str, Store] = {}
        self.do = beside.do
        self.enter = beside.enter

    def service(self, system: str, address: str | None = None) -> Reached:
        """A service as somebody with this address reaches it, or one with any."""
        log = self._processes[system].log
        return Reached(self._cast.urls[system], log, address or any_address())

    def store(self, system: str) -> Store:
        """What another process of the service would have: its keys, where it keeps them."""
        if system not in self._stores:
            place = self.place(system)
            mark = MARK if system == "scripture" else None
            opened = connect(
                place["url"], load_catalogue(system), queue_url=place["queue_url"], identity=mark
            )
            self._stores[system] = self.enter(opened)
        return self._stores[system]

    def place(self, system: str) -> dict[str, str]:
        """Where a service keeps its keys."""
        servers = self.servers
        return {
            "url": database_of(servers.cache_url, system),
            "queue_url": database_of(servers.queue_url, system),
        }

    def administrator(self) -> dict[str, str]:
        """The headers of a request by identity's administrator, whom scripture knows, too."""
        tokens = sign_in(self.service("identity"), ADMINISTRATOR, DEMO_PASSWORD).tokens
        return {"authorization": f"Bearer {tokens['access_token']}"}

    def hit_ratio(self, system: str, pattern: str) -> float:
        """The share of reads of a space that found something, by what the service tells at `/metrics`."""
        headers = {"authorization": f"Bearer {self.metrics_token}"}
        answer = self.service(system).client.get("/metrics", headers=headers)
        assert answer.status_code == 200
        line = rf'^ephemera_space_%s_total{{space="{re.escape(pattern)}"}} (\S+)$'
        hits, misses = (
            sum(map(float, re.findall(line % what, answer.text, re.MULTILINE))) for what in ("hits", "misses")
        )
        return hits / (hits + misses)

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a statement gives in the database of all services."""
        with psycopg.connect(self.servers.database_url, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def locked(self, table: str, mode: str) -> Iterator[None]:
        """A table that is locked in SQL, so that a service has to wait with what it was about to do."""
        with psycopg.connect(self.servers.database_url) as connection:
            connection.execute(f"LOCK TABLE {table} IN {mode} MODE")
            yield
            connection.rollback()

    @contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """A process, and those that it started, which get no time for the length of a block."""
        group = self._processes[name].pid
        os.killpg(group, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(group, signal.SIGCONT)


@contextmanager
def staged(database_url: str, folder: Path, model: Model, mails: MailServer) -> Iterator[Stage]:
    """Everything up, with an empty database; nothing of it is left afterwards."""
    beside = LoopThread()
    try:
        servers = _patient(beside.enter(open_servers(Given(database_url=database_url))))
        plan = cast(servers, model.url)
        told = {**_TOLD, "EPHEMERA_SCRIPTURE_MAIL_URL": mails.url}
        parts = [_told(part, told) for part in plan.parts if part.name not in _LEFT_OUT]
        processes = beside.enter(running(parts, folder))
        beside.do(processes.until_ready(lambda _: None))
        stage = Stage(plan, servers, processes, beside)
        administrator(stage.service("slides"))
        yield stage
    finally:
        beside.close()


def _patient(servers: Servers) -> Servers:
    """The same, with time for Redis to answer: machines that run tests are busy."""
    return replace(
        servers, cache_url=f"{servers.cache_url}?timeout=3", queue_url=f"{servers.queue_url}?timeout=3"
    )


def _told(part: Part, told: dict[str, str]) -> Part:
    return replace(part, environment={**part.environment, **told})
