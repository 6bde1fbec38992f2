"""What tests of slides run: two Redis servers, the service, its workers, a model that counts its questions.

The fixtures are the folder's, by its conftest; each file has servers of its own, and may stop them.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ephemera import embedded
from ephemera.embedded import Postgres, Valkey
from tests.server_choice import ClusterAsServer
from tests.services.services import COMMAND, SCRAPER, Served, environment, serving
from tests.services.slides_users import QUICK, Person, administrator

_CACHE = {"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}
_QUEUE = {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec"}


@pytest.fixture(scope="module")
def slides_cache(request: pytest.FixtureRequest) -> Iterator[Valkey | ClusterAsServer]:
    """The server that may evict; by `--server`, a cluster. The queue's is one server in any case."""
    if request.config.getoption("--server") == "cluster":
        running_cluster = ClusterAsServer(request.getfixturevalue("cluster"))
        running_cluster.ask("FLUSHALL")
        yield running_cluster
        return
    with embedded.valkey(config=_CACHE) as running:
        yield running


@pytest.fixture(scope="module")
def slides_queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """The server that may not, and that keeps what it has over a restart."""
    with embedded.valkey(data=tmp_path_factory.mktemp("queue"), config=_QUEUE) as running:
        yield running


@pytest.fixture(scope="module")
def slides_model() -> Iterator[Model]:
    """A model that answers at once, unless it is paused."""
    running = Model()
    yield running
    running.close()


@pytest.fixture(scope="module")
def slides_places(
    slides_cache: Valkey,
    slides_queue: Valkey,
    slides_model: Model,
    postgres: Postgres,
    request: pytest.FixtureRequest,
) -> dict[str, str]:
    """The environment of a file's services and workers."""
    database = request.module.__name__.rpartition(".")[2]
    return {
        "EPHEMERA_URL": slides_cache.url,
        "EPHEMERA_QUEUE_URL": slides_queue.url,
        "EPHEMERA_DATABASE_URL": postgres.database(database),
        "EPHEMERA_SLIDES_MODEL_URL": slides_model.url,
        "EPHEMERA_SLIDES_COST_MICROS_PER_1K_TOKENS": "420",
        **QUICK,
        **SCRAPER,
    }


@pytest.fixture(scope="module")
def slides(slides_places: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The service, without workers; its organization has no limit that tests would meet."""
    with serving("slides", tmp_path_factory.mktemp("logs"), **slides_places) as running:
        administrator(running)
        yield running


@pytest.fixture(scope="module")
def slides_again(
    slides: Served, slides_places: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Another process of the same service."""
    with serving("slides", tmp_path_factory.mktemp("logs"), **slides_places) as running:
        yield running


@pytest.fixture(scope="module")
def slides_worker(slides_places: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A worker for all queues."""
    with working(tmp_path_factory.mktemp("logs"), slides_places):
        yield


@pytest.fixture
def anna(slides: Served) -> Person:
    """An editor who is signed in."""
    return Person(slides)


@contextmanager
def working(
    folder: Path,
    places: dict[str, str],
    processes: int = 1,
    *,
    service: str = "slides",
    queues: tuple[str, ...] = ("generation", "export", "ingestion"),
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker for all queues of slides, or of another service; its log is in the folder."""
    named = [option for queue in queues for option in ("--queue", queue)]
    many = ("--processes", str(processes), *named) if service == "slides" else ()
    with (folder / f"{service}-worker.log").open("ab") as log:
        process = subprocess.Popen(
            [COMMAND, "worker", service, *many],
            env=environment(**places),
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Model:
    """An endpoint that speaks OpenAI's chat completions, and notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        """The prompts of users, in order."""
        self.open = threading.Event()
        """Answers wait while it is not set, those from slide `hold_at` on."""
        self.open.set()
        self.hold_at = 0
        self.refusals: list[int] = []
        """Statuses of the next answers, before it answers again; 429 asks to come back after a second."""
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                prompt = body["messages"][-1]["content"]
                model.asked.append(prompt)
                if _number(prompt) >= model.hold_at:
                    model.open.wait(60)
                content = json.dumps(_answer(prompt))
                reply = {"choices": [{"message": {"content": content}}], "usage": {"total_tokens": 100}}
                data = json.dumps(reply).encode()
                status = model.refusals.pop(0) if model.refusals else 200
                self.send_response(status)
                if status == 429:
                    self.send_header("retry-after", "1")
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def slides_asked(self, topic: str) -> list[int]:
        """The numbers of the slides on a topic that it was asked for, in order."""
        found = (re.match(r"Write slide (\d+) of .* on: (.*)", prompt) for prompt in self.asked)
        return [int(each[1]) for each in found if each is not None and each[2] == topic]

    def outlines_asked(self, topic: str) -> int:
        """How often it was asked for the outline on a topic."""
        return sum(
            prompt.startswith("Write the outline") and f"on: {topic}\n" in prompt for prompt in self.asked
        )

    def close(self) -> None:
        """End it."""
        self.open.set()
        self._server.shutdown()
        self._server.server_close()


def _number(prompt: str) -> int:
    """The slide that is asked for; 0 for an outline."""
    found = re.match(r"Write slide (\d+)", prompt)
    return int(found[1]) if found else 0


def _answer(prompt: str) -> dict[str, Any]:
    outline = re.match(r"Write the outline of a presentation of (\d+) slides on: (.*)", prompt)
    if outline is not None:
        titles = [f"{outline[2]}, part {number}" for number in range(1, int(outline[1]) + 1)]
        return {"title": outline[2], "slides": titles}
    number = _number(prompt)
    return {"bullets": [f"The first point of {number}", "Ein zweiter Punkt"], "notes": f"Say {number}."}
