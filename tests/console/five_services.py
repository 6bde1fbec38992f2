"""The five services, their workers and a console as processes, as in `ephemera demo`.

Only the tests use them. The model of slides and the mail server of scripture can be made to wait.
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
from ephemera_services.demo.clients import random_address
from ephemera_services.demo.external_servers import IDENTITY, ServerUrls, service_database
from ephemera_services.demo.process_plan import ADMINISTRATOR, ProcessPlan, ProcessSpec, plan_processes
from ephemera_services.demo.processes import Processes, run_processes
from ephemera_services.demo.servers import Servers, open_servers
from ephemera_services.runtime import DEMO_PASSWORD
from tests.console.console_process import RunningConsole
from tests.console.loop_thread import LoopThread
from tests.services.identity_users import sign_in
from tests.services.scripture_mail import MailServer
from tests.services.services import Served
from tests.services.slides_processes import Model
from tests.services.slides_users import QUICK, administrator

_NONE_KEPT = httpx.Limits(max_keepalive_connections=0)
_LEFT_OUT = ("slides-worker-2",)  # the demo kills it
_SETTINGS = {
    **QUICK,
    "EPHEMERA_SLIDES_USAGE_FLUSH": "15m",
    "EPHEMERA_FEED_TICK_SECONDS": "3",  # a tick is seen by every page before the next
}


class Reached(Served):
    """A service as seen from one client address, by which limits count."""

    def __init__(self, url: str, log: Path, address: str, token: str | None = None) -> None:
        self.url = url
        self.log = log
        # No connection is kept: tests have many people, and none of them says goodbye.
        headers = {"x-forwarded-for": address} | ({"authorization": f"Bearer {token}"} if token else {})
        self.client = httpx.Client(base_url=url, headers=headers, timeout=30, limits=_NONE_KEPT)


class Stage:
    """Everything that runs."""

    def __init__(self, plan: ProcessPlan, servers: Servers, processes: Processes, beside: LoopThread) -> None:
        self.servers = servers
        self.console_password = plan.console_password
        self.metrics_token = plan.spec("console").environment["EPHEMERA_METRICS_TOKEN"]
        port = int(plan.urls["console"].rpartition(":")[2])
        self.console = RunningConsole(None, port, processes["console"].log)
        self._plan = plan
        self._processes = processes
        self._beside = beside
        self._stores: dict[str, Store] = {}
        self.do = beside.do
        self.enter = beside.enter

    def service(self, system: str, address: str | None = None) -> Reached:
        """A service as seen from this address, or from a random one."""
        log = self._processes[system].log
        token = self._plan.feed_token if system == "feed" else None
        return Reached(self._plan.urls[system], log, address or random_address(), token)

    def store(self, system: str) -> Store:
        """A store like that of another process of the service."""
        if system not in self._stores:
            place = self.place(system)
            mark = IDENTITY if system == "scripture" else None
            opened = connect(
                place["url"], load_catalogue(system), queue_url=place["queue_url"], identity=mark
            )
            self._stores[system] = self.enter(opened)
        return self._stores[system]

    def place(self, system: str) -> dict[str, str]:
        """The databases of a service."""
        servers = self.servers
        return {
            "url": service_database(servers.cache_url, system),
            "queue_url": service_database(servers.queue_url, system),
        }

    def administrator(self) -> dict[str, str]:
        """The headers of identity's administrator, whom scripture knows, too."""
        tokens = sign_in(self.service("identity"), ADMINISTRATOR, DEMO_PASSWORD).tokens
        return {"authorization": f"Bearer {tokens['access_token']}"}

    def hit_ratio(self, system: str, pattern: str) -> float:
        """A keyspace's share of hits, from the service's `/metrics`."""
        headers = {"authorization": f"Bearer {self.metrics_token}"}
        answer = self.service(system).client.get("/metrics", headers=headers)
        assert answer.status_code == 200
        line = rf'^ephemera_keyspace_%s_total{{keyspace="{re.escape(pattern)}"}} (\S+)$'
        hits, misses = (
            sum(map(float, re.findall(line % what, answer.text, re.MULTILINE))) for what in ("hits", "misses")
        )
        return hits / (hits + misses)

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The result of a statement in the database of all services."""
        with psycopg.connect(self.servers.database_url, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def locked(self, table: str, mode: str) -> Iterator[None]:
        """Lock a table in SQL, so that a service must wait."""
        with psycopg.connect(self.servers.database_url) as connection:
            connection.execute(f"LOCK TABLE {table} IN {mode} MODE")
            yield
            connection.rollback()

    @contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Pause a process and its children within a block."""
        group = self._processes[name].pid
        os.killpg(group, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(group, signal.SIGCONT)


@contextmanager
def staged(database_url: str, folder: Path, model: Model, mails: MailServer) -> Iterator[Stage]:
    """Start everything with an empty database, and clean up afterwards."""
    beside = LoopThread()
    try:
        servers = _patient(beside.enter(open_servers(ServerUrls(database_url=database_url))))
        plan = plan_processes(servers, model.url)
        settings = {
            **_SETTINGS,
            "EPHEMERA_SCRIPTURE_MAIL_URL": mails.url,
            "EPHEMERA_SCRIPTURE_MAIL_PLAINTEXT": "true",
        }
        specs = [_with_settings(spec, settings) for spec in plan.specs if spec.name not in _LEFT_OUT]
        processes = beside.enter(run_processes(specs, folder))
        beside.do(processes.wait_until_ready(lambda _: None))
        stage = Stage(plan, servers, processes, beside)
        administrator(stage.service("slides"))
        yield stage
    finally:
        beside.close()


def _patient(servers: Servers) -> Servers:
    """The same with longer timeouts for busy machines."""
    return replace(
        servers, cache_url=f"{servers.cache_url}?timeout=3", queue_url=f"{servers.queue_url}?timeout=3"
    )


def _with_settings(spec: ProcessSpec, settings: dict[str, str]) -> ProcessSpec:
    return replace(spec, environment={**spec.environment, **settings})
