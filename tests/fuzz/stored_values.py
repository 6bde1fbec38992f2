"""Stored values: hostile bytes in the keys of running services and their workers, while they are used.

A client that can write to Redis can write anything there: another type, truncated or deeply nested data,
MessagePack extensions and pickles that name a command, messages for Celery. It writes into keys that exist
and into those that the service would read next, by the names that its catalogue declares, while requests of
all kinds are sent and workers run. No code runs (a canary file stays absent), no process ends, no answer is a
5xx but the documented 503, and afterwards everything works.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import TypeVar

import psycopg

from ephemera.keyspace import SERVER_IDENTITY
from ephemera_services.league import DEMO_ADMINISTRATOR
from ephemera_services.runtime import DEMO_PASSWORD
from tests.fuzz.calls import grpc_calls, websocket_calls
from tests.fuzz.hostile_keys import LAPSE, HostileWriter, hostile_values, plausible_records
from tests.fuzz.services import Services
from tests.fuzz.traffic import FEWEST, THREADS, Traffic
from tests.fuzz.trials import Area, Trial
from tests.services import identity_users, scripture_readers
from tests.services.feed_users import TOKEN as FEED_TOKEN
from tests.services.services import SERVICES, Served
from tests.services.slides_users import ADMIN, Person

T = TypeVar("T")
SECONDS = 6.0
"""How long a service is attacked in one case."""
_MOST_REQUESTS = 600
_ANSWERED_IN_ATTACK = FEWEST * THREADS
"""The fewest answers that are not 503. A session or a limit of another type gives 503 until the key ends, at
worst for all requests of the attack, so their share says nothing."""
_UNAVAILABLE_AFTERWARDS = 0.05
"""One of thirty, on a machine so busy that passwords wait for a processor."""
_WITH_CALLS = ("slides", "league", "feed")
_IN_USE = {
    "identity": {"session:{user_id}:{sid}", "session_index:{user_id}"},
    "slides": {"session:{session_id}", "gen_checkpoint:{job_id}"},
    "scripture": {"gl:user:{user_id}:plan"},
    "feed": {"ch:{channel_id}"},
    "league": {"league:session:{session_id}", "league:table"},
}
"""Some of the keys that a service writes in any case: these, too, must have been overwritten."""
_READ_FIRST = {"league": "/api/league/table"}
"""What is read just before the attack: generated requests may come too late for its key to be in use."""
_MOST_WRITES = 1500
_WRITES_AT_ONCE = 10
_UNFINISHED = "SELECT id FROM slides.jobs WHERE state IN ('waiting', 'running') LIMIT 1"
_IDS = ["1", "ann", "space", "jhn.1.1", "00000000-0000-4000-8000-000000000000"]


class _Attacked:
    """One service and its workers, whose keys are overwritten while they are used."""

    def __init__(
        self, services: Services, name: str, canary: Path, headers: Callable[[Served], dict[str, str]]
    ) -> None:
        self._services = services
        self._name = name
        self._canary = canary
        self._headers = headers
        self._catalogue = importlib.import_module(f"ephemera_services.{name}").catalogue
        self._values = [*hostile_values(f"touch {canary}"), *plausible_records()]

    def draw(self, random: Random) -> int:
        """A seed."""
        return random.getrandbits(32)

    def check(self, seed: int) -> None:
        """Attack the service and its workers, then see that they work, before and after they are emptied."""
        served: Served = getattr(self._services, self._name)
        self._restore()
        before = _Waiting(served, self._services) if self._name == "slides" else None
        with ExitStack() as stack:
            writers = [
                stack.enter_context(HostileWriter(server, self._catalogue, Random(seed + at), self._values))
                for at, server in enumerate(self._services.servers[self._name])
            ]
            self._attack(served, writers, seed)
            self._recover(served, writers, seed)
            if before is not None:
                before.check()
        self._restore()
        self._use(served, [], seed, "after it was emptied")

    def _attack(self, served: Served, writers: list[HostileWriter], seed: int) -> None:
        traffic, over = self._traffic(served, writers), threading.Event()
        traffic.run(seed, 1.0, 200)  # so that there are keys
        if self._name in _READ_FIRST:
            assert served.client.get(_READ_FIRST[self._name]).status_code == 200
        failures: list[BaseException] = []

        def write() -> None:
            left = _MOST_WRITES
            try:
                while not over.is_set() and left > 0:
                    for writer in writers:
                        writer.write_some(_WRITES_AT_ONCE)
                    left -= _WRITES_AT_ONCE
                    self._mark()
                    over.wait(0.02)
            except Exception as problem:
                failures.append(problem)

        writing = threading.Thread(target=write)
        writing.start()
        traffic.run(seed, SECONDS, _MOST_REQUESTS, lambda: self._is_attacked(writers, traffic))
        over.set()
        writing.join()
        assert not failures, failures
        self._assert_alive(served, writers, traffic)
        self._assert_attacked(writers, traffic)

    def _assert_alive(self, served: Served, writers: list[HostileWriter], traffic: Traffic) -> None:
        done = [what for writer in writers for what in writer.done][-300:]
        assert not traffic.wrong, (self._name, traffic.wrong[:5], done)
        self._assert_running(served, done)

    def _assert_running(self, served: Served, said: object) -> None:
        assert not self._canary.exists(), (self._name, "code was run", said)
        assert served.process.poll() is None, (self._name, "the service ended", said)
        for worker in self._services.workers.get(self._name, ()):
            assert worker.poll() is None, (self._name, "a worker ended", said)

    def _assert_attacked(self, writers: list[HostileWriter], traffic: Traffic) -> None:
        """An attack that reached nothing has shown nothing."""
        assert traffic.answered >= _ANSWERED_IN_ATTACK, (self._name, traffic.answers)
        assert traffic.called or self._name not in _WITH_CALLS, (self._name, "no WebSocket, no gRPC")
        missing = self._not_reached(writers)
        assert not missing, (self._name, "no key of the service was overwritten of", missing)

    def _is_attacked(self, writers: list[HostileWriter], traffic: Traffic) -> bool:
        return traffic.answered >= _ANSWERED_IN_ATTACK and not self._not_reached(writers)

    def _not_reached(self, writers: list[HostileWriter]) -> set[str]:
        """The patterns that a writer never wrote to, and those of which no key in use was overwritten.

        On a busy machine the writers need longer than the attack lasts to take each pattern in its turn.
        """
        never = {pattern for writer in writers for pattern in writer.never_written()}
        in_use = {pattern for writer in writers for pattern, times in writer.in_use.copy().items() if times}
        return never | (_IN_USE[self._name] - in_use)

    def _recover(self, served: Served, writers: list[HostileWriter], seed: int) -> None:
        """What was written into keys with a lifetime is gone with it: no operator has to empty a server.

        A key that is declared without a lifetime and holds another type is for an operator to delete.
        """
        time.sleep(LAPSE)
        for writer in writers:
            writer.delete(writer.foreign_keys())
        self._use(served, writers, seed, "after the keys have ended")

    def _use(self, served: Served, writers: list[HostileWriter], seed: int, when: str) -> None:
        """Everything works, and nothing has ended in the meantime."""
        self._assert_running(served, when)
        assert served.client.get("/readyz").status_code == 200, (self._name, when)
        traffic = self._traffic(served, writers)
        traffic.run(seed, 1.0, 100)
        assert not traffic.wrong, (self._name, when, traffic.wrong[:5])
        unavailable = (self._name, when, traffic.answers, traffic.unavailable[:5])
        assert traffic.share(503) <= _UNAVAILABLE_AFTERWARDS, unavailable
        assert traffic.share(200, 201, 202, 204) > 0, (self._name, when, traffic.answers)

    def _traffic(self, served: Served, writers: list[HostileWriter]) -> Traffic:
        def ids(name: str) -> list[str]:
            return [*(each for writer in writers for each in writer.fields.get(name, ())), *_IDS]

        document = served.client.get("/openapi.json").json()
        for path, method in _ENDING:
            document["paths"].get(path, {}).pop(method, None)
        calls = websocket_calls(self._name, served)
        if self._name == "feed":
            calls += grpc_calls(self._services.grpc_address)
        _admitted(lambda: self._headers(served))
        return Traffic(served.url, document, lambda: self._headers(served), ids, calls)

    def _restore(self) -> None:
        """What an operator does: empty the servers."""
        for server in self._services.servers[self._name]:
            server.ask("FLUSHALL")
        self._mark()

    def _mark(self) -> None:
        """Scripture requires its mark on the server."""
        if self._name == "scripture":
            for server in self._services.servers[self._name]:
                server.ask("DEL", SERVER_IDENTITY.key())
                server.ask("SET", SERVER_IDENTITY.key(), "scripture")


_ENDING = (
    ("/jobs/{job_id}/cancel", "post"),
    ("/presentations/{presentation_id}", "delete"),
    ("/admin/users/{user_id}", "delete"),
    ("/admin/users/{user_id}/role", "put"),
    ("/admin/users/{user_id}/block", "put"),
    ("/admin/users/{user_id}/blocked", "put"),
)
"""Operations that rightly end what is attacked: its job, and the rights of those who ask."""


def _admitted(request: Callable[[], T]) -> T:
    """Sign in, or ask; a process keeps a denial for up to a minute after the key of its limit has ended."""
    ends = time.monotonic() + 90
    while True:
        try:
            return request()
        except (AssertionError, KeyError):
            if time.monotonic() > ends:
                raise
            time.sleep(1)


class _Waiting:
    """A presentation whose graph waits for the model with a checkpoint; it ends, and so does a later one."""

    def __init__(self, served: Served, services: Services) -> None:
        self._model = services.model
        self._wait_for_others(services.databases["slides"])
        self._person = _admitted(lambda: Person(served, ADMIN))
        self._model.hold_at = 2
        self._model.open.clear()
        asked = len(self._model.asked)
        self._job = self._person.begin(f"Whales {time.monotonic()}", slides=3)["job_id"]
        ends = time.monotonic() + 60
        while len(self._model.asked) < asked + 3:  # the outline and the first slides
            assert time.monotonic() < ends, "the job did not begin"
            time.sleep(0.05)

    def _wait_for_others(self, database: str) -> None:
        """Let the worker end the jobs that requests have begun, whose messages were lost."""
        self._model.open.set()
        ends = time.monotonic() + 240
        with psycopg.connect(database, autocommit=True) as sql:
            while sql.execute(_UNFINISHED).fetchone():
                assert time.monotonic() < ends, "jobs do not end"
                time.sleep(0.2)

    def check(self) -> None:
        """A checkpoint that is not ours is none: the attacked job is done, and so is a new one."""
        self._model.open.set()
        person = _admitted(lambda: Person(self._person.served, ADMIN))
        ended = _admitted(lambda: person.finished(self._job))
        assert ended["state"] == "done", ended
        later = _admitted(lambda: person.begin(f"Dolphins {time.monotonic()}", slides=2))["job_id"]
        assert _admitted(lambda: person.finished(later))["state"] == "done"


def _referee(served: Served) -> dict[str, str]:
    form = {"name": DEMO_ADMINISTRATOR, "password": DEMO_PASSWORD}
    signed = served.client.post("/api/session", json=form)
    return {"cookie": f"__Host-session={signed.cookies['__Host-session']}"}


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


_HEADERS: dict[str, Callable[[Served], dict[str, str]]] = {
    "identity": lambda served: _bearer(identity_users.administrator(served).tokens["access_token"]),
    "slides": lambda served: {"cookie": Person(served, ADMIN).cookie},
    "scripture": lambda served: _bearer(scripture_readers.administrator(served).token),
    "feed": lambda _: _bearer(FEED_TOKEN),
    "league": _referee,
}


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[list[Trial]]:
    with Services(folder, workers=True) as services:
        attacked = {name: _Attacked(services, name, folder / "canary", _HEADERS[name]) for name in SERVICES}
        yield [
            Trial(
                name,
                f"Hostile bytes in the keys of {name} run nothing, end nothing, break nothing for good, and "
                "give no 5xx but 503.",
                each.draw,
                each.check,
                batch=1,
                patience=300,
                needs_services=True,
            )
            for name, each in attacked.items()
        ]


STORED_VALUES = Area("stored_values", _opened)
