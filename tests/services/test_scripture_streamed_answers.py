"""Answers that a model streams: they arrive while it writes, whole or as an error, and are cached whole."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from ephemera.embedded import Valkey
from tests.services.scripture_readers import UNLIMITED, reading
from tests.services.services import Served

PIECES = ("Love is ", "patient and kind.")
_PATIENCE = 60.0  # seconds; machines that run tests are busy


class StreamingModel:
    """A model that writes its answer in pieces, the second one when the test lets it."""

    def __init__(self) -> None:
        self.finish = threading.Event()
        self.ends = True
        """Whether the stream ends as it should, and does not break off."""
        self.asked: list[dict[str, Any]] = []
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                model.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                self._send(json.dumps({"choices": [{"delta": {"role": "assistant"}}]}))
                self._send(json.dumps({"choices": [{"delta": {"content": PIECES[0]}}]}))
                if not model.ends:
                    return
                model.finish.wait(_PATIENCE)
                self._send(json.dumps({"choices": [{"delta": {"content": PIECES[1]}}]}))
                self._send(json.dumps({"choices": [], "usage": {"total_tokens": 42}}))
                self._send("[DONE]")

            def _send(self, data: str) -> None:
                self.wfile.write(f"data: {data}\n\n".encode())
                self.wfile.flush()

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


@pytest.fixture(scope="module")
def model() -> Iterator[StreamingModel]:
    """A model's endpoint."""
    running = StreamingModel()
    threading.Thread(target=running.server.serve_forever, args=(0.05,), daemon=True).start()
    yield running
    running.finish.set()
    running.server.shutdown()
    running.server.server_close()


@pytest.fixture(scope="module")
def served(
    places: dict[str, str], valkey: Valkey, model: StreamingModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A service with that model, and four answers an hour."""
    variables = {**UNLIMITED, "EPHEMERA_SCRIPTURE_MODEL_URL": model.url, "EPHEMERA_SCRIPTURE_AI_FREE": "4"}
    with reading(places, valkey, tmp_path_factory.mktemp("logs"), **variables) as running:
        yield running


def _events(answer: httpx.Response) -> Iterator[tuple[str, Any]]:
    """The events of a response, as they arrive."""
    name = ""
    for line in answer.iter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def test_an_answer_arrives_while_the_model_writes_it(served: Served, model: StreamingModel) -> None:
    """Sources and the first piece come before the model has finished; the answer is cached as a whole."""
    asked = {"question": "What is love like?", "translation": "web"}
    with served.client.stream("POST", "/ai/ask/stream", json=asked, timeout=_PATIENCE) as answer:
        events = _events(answer)
        name, sources = next(events)
        assert (name, bool(sources["passages"])) == ("passages", True)
        assert next(events) == ("text", {"text": PIECES[0]})
        assert not model.finish.is_set()
        model.finish.set()
        assert next(events) == ("text", {"text": PIECES[1]})
        name, whole = next(events)
        assert (name, whole["answer"], whole["how"]) == ("answer", "".join(PIECES), "asked")
        assert whole["passages"] == sources["passages"]
        assert list(events) == []
    again = served.client.post("/ai/ask", json=asked).json()
    assert (again["answer"], again["how"]) == ("".join(PIECES), "exact")
    assert [each["stream"] for each in model.asked] == [True]


def test_an_answer_that_breaks_off_is_an_error_and_is_not_kept(served: Served, model: StreamingModel) -> None:
    """A stream without its end is neither an answer, nor cached, nor counted; the model is asked again."""
    asked = {"question": "Who went up the hill?", "translation": "web"}
    model.finish.set()
    model.ends = False
    for _ in range(3):
        with served.client.stream("POST", "/ai/ask/stream", json=asked, timeout=_PATIENCE) as answer:
            *_, (name, problem) = list(_events(answer))
        assert (name, problem["status"]) == ("error", 503)
    model.ends = True
    before = len(model.asked)
    with served.client.stream("POST", "/ai/ask/stream", json=asked, timeout=_PATIENCE) as answer:
        *_, (name, whole) = list(_events(answer))
    assert (name, whole["how"]) == ("answer", "asked")
    assert len(model.asked) == before + 1
