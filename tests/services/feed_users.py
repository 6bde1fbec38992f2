"""Running feed for tests: the service and its workers as processes, callers over HTTP and gRPC."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import msgspec
import psycopg

from ephemera.embedded import free_ports
from ephemera_services.feed.grpc_server import SERVICE, methods
from tests.services.services import COMMAND, Served, environment, serving

PATIENCE = 60.0  # seconds for what should be soon; machines that run tests are busy

TOKEN = "the-token-of-feed-for-tests"
BEARER = f"Bearer {TOKEN}"
QUICK = {
    "EPHEMERA_FEED_TOKENS": TOKEN,
    "EPHEMERA_FEED_TICK_SECONDS": "0.2",
    "EPHEMERA_FEED_PRO_NOVELTY": "3",
    "EPHEMERA_FEED_PRO_COOLDOWN": "10ms",
    "EPHEMERA_FEED_FREE_NOVELTY": "8",
    "EPHEMERA_FEED_FREE_COOLDOWN": "1h",
}
"""Ticks five times a second, and plans that a test can fulfil."""

SUBJECTS = {
    "space": "The rocket launch put a crew capsule and its satellite into orbit, says the mission",
    "banks": "The central bank keeps interest rates and inflation in view of bond yields, says the governor",
    "sport": "The striker scored the winning goal of the football derby in the stadium, says the coach",
}


def texts(subject: str, count: int) -> list[str]:
    """Insights about one subject, each a little different."""
    ends = ("today", "again", "at last", "on Monday", "in the morning", "once more", "as expected", "so far")
    begins = ("", "News: ", "It is said: ", "We hear: ", "As reported: ", "Once more: ")
    return [
        f"{begins[at // len(ends) % len(begins)]}{SUBJECTS[subject]} {ends[at % len(ends)]}."
        for at in range(count)
    ]


def until(holds: Callable[[], Any], what: str) -> Any:
    """What a condition gives as soon as it holds."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := holds():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {PATIENCE:.0f} s: {what}")


class Caller:
    """A client of a running service, over HTTP."""

    def __init__(self, served: Served, places: Mapping[str, str], grpc_address: str) -> None:
        self.served = served
        self.http = served.client
        self.http.headers["authorization"] = BEARER
        self.database = places["EPHEMERA_DATABASE_URL"]
        self.grpc_address = grpc_address

    def publish(self, channel: str, *given: str) -> None:
        """Insights of a channel, at once: a planner that looks between two of them would cluster a part."""
        insights = [{"channel_id": channel, "text": text} for text in given]
        answer = self.http.post("/feed/bulk/insights", json={"insights": insights})
        assert answer.status_code == 200, answer.text

    def subscribe(self, user: str, *channels: str, plan: str | None = None) -> None:
        """Subscriptions of a user."""
        for channel in channels:
            place = f"/feed/users/{user}/subscriptions/{channel}"
            answer = self.http.put(place, json={} if plan is None else {"plan": plan})
            assert answer.status_code == 200, answer.text

    def status(self, user: str) -> dict[str, Any]:
        """How a user is."""
        answer = self.http.get(f"/feed/users/{user}/status")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def feed(self, user: str) -> dict[str, Any]:
        """A user's feed."""
        answer = self.http.get(f"/feed/users/{user}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def wait_for_version(self, user: str, version: int) -> dict[str, Any]:
        """A user's status, once their clusters have this version."""

        def there() -> dict[str, Any] | None:
            status = self.status(user)
            return status if status["cluster_version"] >= version else None

        return dict(until(there, f"version {version} of {user}"))

    def sql(self, statement: str, *values: Any) -> list[Any]:
        """What a statement gives, past the service."""
        with psycopg.connect(self.database, autocommit=True) as sql:
            cursor = sql.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def remote(self) -> Iterator[Remote]:
        """A client over gRPC."""
        with grpc.insecure_channel(self.grpc_address) as channel:
            yield Remote(channel)


class Remote:
    """A client over gRPC that knows nothing but the compiled `aggregator.proto`."""

    def __init__(self, channel: Any, authorization: str | None = BEARER) -> None:
        self._channel = channel
        self._metadata = () if authorization is None else (("authorization", authorization),)

    def call(self, method: str, **fields: Any) -> Any:
        """The answer of a method."""
        request, answer = methods()[method]
        calling = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )
        return calling(request(**fields), timeout=30, metadata=self._metadata)

    def refused(self, method: str, **fields: Any) -> tuple[str, str]:
        """The status and the words with which a method refuses."""
        try:
            self.call(method, **fields)
        except grpc.RpcError as refused:
            return refused.code().name, refused.details()
        raise AssertionError(f"{method} took {fields}")


@contextmanager
def feeding(folder: Path, places: Mapping[str, str], **variables: str) -> Iterator[Caller]:
    """The service as a process, without a worker."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    given = {**QUICK, **places, "EPHEMERA_FEED_GRPC_ADDRESS": address, **variables}
    with serving("feed", folder, **given) as served:
        yield Caller(served, places, address)


class Worker:
    """A worker as a process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, metrics: int) -> None:
        self.process = process
        self.log = log
        self._metrics = metrics

    def lines(self) -> list[dict[str, Any]]:
        """What it has logged."""
        return [msgspec.json.decode(line) for line in self.log.read_bytes().splitlines() if line[:1] == b"{"]

    def runs(self, user: str) -> list[str]:
        """How its runs on a user ended."""
        return [
            line["outcome"]
            for line in self.lines()
            if line["message"] == "run" and line.get("user_id") == user
        ]

    def metric(self, name: str) -> float:
        """A metric that it shows."""
        shown = httpx.get(f"http://127.0.0.1:{self._metrics}/metrics").text
        values = [line.rpartition(" ")[2] for line in shown.splitlines() if line.startswith(f"{name} ")]
        return float(values[0]) if values else 0.0


@contextmanager
def working(folder: Path, places: Mapping[str, str], **variables: str) -> Iterator[Worker]:
    """A worker that has begun, and is gone afterwards."""
    port = free_ports(1)[0]
    log = folder / f"worker-{port}.log"
    given = {**QUICK, **places, "EPHEMERA_FEED_WORKER_METRICS_PORT": str(port), **variables}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [COMMAND, "worker", "feed"], env=environment(**given), stdout=output, stderr=output
        )
    worker = Worker(process, log, port)
    try:
        until(lambda: b'"working"' in log.read_bytes() or process.poll() is not None, "a worker")
        assert process.poll() is None, log.read_text()[-3000:]
        yield worker
    finally:
        process.terminate()
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
