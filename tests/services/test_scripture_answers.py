"""Answers of scripture with a model behind an OpenAI-compatible endpoint, and tokens from identity."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from ephemera.embedded import Postgres, Valkey
from ephemera_services.runtime import InvalidSettings, read_settings
from ephemera_services.scripture import Settings, create_app
from ephemera_services.scripture.keys import AnswerScope
from ephemera_services.scripture.records import AiAnswer
from tests.services.identity_users import QUICK, newcomer
from tests.services.identity_users import administrator as identity_administrator
from tests.services.scripture_apps import open_gateway
from tests.services.scripture_readers import UNLIMITED, Reader, ingest, keys, reading, verse
from tests.services.services import Served, serving

PATH = "/v1/chat/completions"


class Endpoint:
    """A model that repeats how often it was asked, and can be out of order."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.status = 200
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                endpoint.asked.append({"path": self.path, "key": self.headers["authorization"], **body})
                answer = f"answer {len(endpoint.asked)}"
                reply: Any = {"choices": [{"message": {"content": answer}}], "usage": {"total_tokens": 42}}
                if self.path.endswith("/embeddings"):
                    reply = {"data": [_embedding(at, text) for at, text in enumerate(body["input"])]}
                data = json.dumps(reply).encode()
                self.send_response(endpoint.status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


def _embedding(at: int, text: str) -> dict[str, Any]:
    """A vector that knows of one meaning: danger."""
    danger = {"lion": 1.0, "bear": 1.0, "dark": 0.8}
    nearness = max((value for word, value in danger.items() if word in text), default=0.0)
    return {"index": at, "embedding": [nearness, (1 - nearness**2) ** 0.5]}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    """A model's endpoint."""
    running = Endpoint()
    threading.Thread(target=running.server.serve_forever, args=(0.05,), daemon=True).start()
    yield running
    running.server.shutdown()
    running.server.server_close()


@pytest.fixture(scope="module")
def scripture(
    places: dict[str, str], valkey: Valkey, endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A service with a model, and the limits of the design for answers."""
    limits = {name: value for name, value in UNLIMITED.items() if "_AI_" not in name}
    model = {
        "EPHEMERA_SCRIPTURE_MODEL_URL": endpoint.url,
        "EPHEMERA_SCRIPTURE_MODEL_NAME": "wise",
        "EPHEMERA_SCRIPTURE_MODEL_KEY": "canary",
        "EPHEMERA_TRUSTED_PROXIES": "127.0.0.1",
    }
    with reading(places, valkey, tmp_path_factory.mktemp("logs"), **limits, **model) as running:
        yield running


def _ask(served: Served, question: str, address: str, **more: Any) -> httpx.Response:
    headers = {"x-forwarded-for": address}
    return served.client.post("/ai/ask", json={"question": question, **more}, headers=headers)


def test_a_model_is_asked_once_for_what_is_the_same_or_similar(scripture: Served, endpoint: Endpoint) -> None:
    """Exact, then similar, from Redis; another translation or context is another question."""
    endpoint.asked.clear()
    question = "What is the greatest of these three?"
    first = _ask(scripture, question, "10.1.0.1").json()
    assert (first["how"], first["answer"], first["model"]) == ("asked", "answer 1", "wise")
    (asked,) = endpoint.asked
    assert (asked["path"], asked["model"], asked["key"]) == (PATH, "wise", "Bearer canary")
    prompt = asked["messages"][1]["content"]
    assert "1 Corinthians 13:13: But now faith, hope, and love remain" in prompt
    assert question in prompt

    assert _ask(scripture, question, "10.1.0.2").json()["how"] == "exact"
    assert _ask(scripture, "what is the greatest of these three", "10.1.0.3").json()["how"] == "semantic"
    assert len(endpoint.asked) == 1
    assert _ask(scripture, question, "10.1.0.4", translation="kjv").json()["how"] == "asked"
    assert _ask(scripture, question, "10.1.0.5", passages=["ps.23.1"]).json()["how"] == "asked"
    assert len(endpoint.asked) == 3


async def test_the_hash_covers_system_prompt_messages_and_context(
    server: Valkey, postgres: Postgres, tmp_path: Path
) -> None:
    """With another system prompt, translation or context, or another question, the model is asked again."""
    async with open_gateway(server, postgres, tmp_path) as gateway:
        cache = gateway.app.service.answers._cache
        scope = AnswerScope(
            organization="scripture",
            provider="openai",
            model="wise",
            language="en",
            documents=frozenset({"ps.23.1"}),
            translation="web",
            instructions="You quote.",
        )
        question = "Who is the shepherd?"
        asked: list[str] = []

        async def origin(question: str, scope: AnswerScope) -> str:
            async def answer(prompt: str) -> AiAnswer:
                asked.append(prompt)
                return AiAnswer(text=f"answer {len(asked)}", passages=[], model="wise", tokens=1)

            return str((await cache.get_or_ask(question, scope, answer)).origin)

        assert [await origin(question, scope) for _ in range(2)] == ["asked", "exact"]
        for changed in (
            {"instructions": "You explain."},
            {"documents": frozenset({"john.10.11"})},
            {"translation": "kjv"},
            {"model": "wiser"},
        ):
            assert await origin(question, msgspec.structs.replace(scope, **changed)) == "asked", changed
        assert await origin("What does the sun rise on?", scope) == "asked"
        assert await origin(question, scope) == "exact"
        assert len(keys(server, "gl:ai:cache:*")) == len(asked) == 6


def test_an_ingest_ends_the_answers_that_rest_on_what_it_changed(
    scripture: Served, endpoint: Endpoint
) -> None:
    """After the ingest is acknowledged the model is asked again, with the new text; others stay."""
    ingest(scripture, "passages", verse("Unicorns graze by the river.", 20), verse("Dragons sleep.", 21))
    unicorns, dragons = "Where do unicorns graze?", "What do dragons do?"
    for question in (unicorns, dragons):
        assert _ask(scripture, question, "10.2.0.1").json()["how"] == "asked"
    ingest(scripture, "passages", verse("Unicorns graze on the hill.", 20))
    again = _ask(scripture, unicorns, "10.2.0.2").json()
    assert again["how"] == "asked"
    assert "on the hill" in endpoint.asked[-1]["messages"][1]["content"]
    assert _ask(scripture, dragons, "10.2.0.2").json()["how"] == "exact"


async def test_passages_are_ranked_by_words_and_by_meaning(
    server: Valkey, postgres: Postgres, endpoint: Endpoint, tmp_path: Path
) -> None:
    """Nearest in meaning is before shortest; while the endpoint of embeddings fails, words alone decide."""
    embeddings = {"EPHEMERA_SCRIPTURE_EMBEDDINGS_URL": endpoint.url}
    async with open_gateway(server, postgres, tmp_path, **embeddings) as gateway:
        await gateway.ingest(
            ("jude.1.20", "The shepherd."),
            ("jude.1.21", "The shepherd went out and took a bear by its beard."),
            ("jude.1.22", "The shepherd was out on the far hills until it was dark, and came back late."),
        )

        async def passages(question: str) -> list[str]:
            asked = {"question": question, "translation": "test"}
            answer = (await gateway.ask("POST", "/ai/ask", json=asked)).json()
            return [each["id"] for each in answer["passages"]]

        assert await passages("Which shepherd met a lion?") == ["jude.1.21", "jude.1.20", "jude.1.22"]
        endpoint.status = 500
        try:
            by_words = await passages("Did a shepherd ever meet a lion?")
        finally:
            endpoint.status = 200
        assert by_words == ["jude.1.20", "jude.1.21", "jude.1.22"]


def test_an_answer_that_fails_is_not_counted(scripture: Served, endpoint: Endpoint) -> None:
    """A model out of order is 503 with Retry-After, more often than the limit; nothing is kept of it."""
    endpoint.status = 500
    try:
        for number in range(8):
            answer = _ask(scripture, f"Is there an answer? {number}", "10.3.0.1")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            assert answer.headers["content-type"] == "application/problem+json"
    finally:
        endpoint.status = 200
    assert _ask(scripture, "Is there an answer? 0", "10.3.0.1").json()["how"] == "asked"
    assert "canary" not in scripture.log.read_text()


def test_tokens_of_the_identity_service_are_taken(
    places: dict[str, str], valkey: Valkey, tmp_path: Path
) -> None:
    """Its key set is fetched by URL: its users are ours, its administrators too, and strangers are not."""
    with serving("identity", tmp_path, **QUICK) as identity:
        url = f"{identity.url}/.well-known/jwks.json"
        ann, root = newcomer(identity), identity_administrator(identity)
        with reading(places, valkey, tmp_path) as forgetful:
            assert ann.ask("GET", "/me/preferences", at=forgetful).status_code == 401
        variables = {**places, "EPHEMERA_SCRIPTURE_JWKS": url}
        with serving("scripture", tmp_path, **variables) as scripture:
            assert ann.ask("GET", "/me/preferences", at=scripture).status_code == 200
            form = {"user_id": ann.id, "email": ann.email, "name": "Ann", "plan": "paid"}
            assert ann.ask("POST", "/users", at=scripture, json=form).status_code == 403
            assert root.ask("POST", "/users", at=scripture, json=form).status_code == 201
            commentary = ann.ask("GET", "/passages/john.3.16?include=commentary", at=scripture)
            assert commentary.status_code == 200


def test_many_first_tokens_at_once_are_all_taken(
    places: dict[str, str], valkey: Valkey, tmp_path: Path
) -> None:
    """A request that arrives while the keys are fetched waits for them, and is not refused."""
    with reading(places, valkey, tmp_path) as fresh, ThreadPoolExecutor(8) as threads:
        readers = [Reader(fresh) for _ in range(16)]
        answers = threads.map(lambda reader: reader.ask("GET", "/me/preferences").status_code, readers)
        assert set(answers) == {200}


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("MAIL_URL", "http://mail.example", "EPHEMERA_SCRIPTURE_MAIL_URL"),
        ("MODEL_URL", "nowhere", "EPHEMERA_SCRIPTURE_MODEL_URL"),
        ("JWKS", "/nowhere/at/all.json", "EPHEMERA_SCRIPTURE_JWKS"),
        ("SEARCH_FREE", "0", "EPHEMERA_SCRIPTURE_SEARCH_FREE"),
        ("SERCH_FREE", "5", "did you mean EPHEMERA_SCRIPTURE_SEARCH_FREE"),
    ],
)
def test_a_wrong_setting_stops_the_start(variable: str, value: str, message: str) -> None:
    """The error names the variable, before anything is opened."""
    with pytest.raises(InvalidSettings, match=message):
        create_app(read_settings(Settings, {f"EPHEMERA_SCRIPTURE_{variable}": value}))
