"""Who writes: the extractive writer is honest, the model is checked, and Google is asked as it wants."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from pptx import Presentation
from pypdf import PdfReader

from ephemera.errors import JobFailed
from ephemera_services.slides import DEMO_DOCUMENT
from ephemera_services.slides.document_text import chunks, sentences
from ephemera_services.slides.export_files import (
    NEEDS_CREDENTIALS,
    Page,
    render_pdf,
    render_pptx,
    upload_to_google,
)
from ephemera_services.slides.library import Passage
from ephemera_services.slides.writers import NO_SOURCE, Brief, ChatWriter, ExtractiveWriter, ModelFailed

BRIEF = Brief(topic="Whales and whaling", audience="", language="en", slides=4)
PASSAGES = [Passage("whales.txt", piece) for piece in chunks(DEMO_DOCUMENT)]


class Endpoint:
    """A server with scripted responses that records its requests."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, Any]] = []
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                endpoint.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                status, reply = endpoint.replies.pop(0)
                data = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """An endpoint of this test's own."""
    running = Endpoint()
    yield running
    running.server.shutdown()
    running.server.server_close()


def _says(content: str) -> tuple[int, Any]:
    return 200, {"choices": [{"message": {"content": content}}], "usage": {"total_tokens": 7}}


async def test_the_extractive_writer_quotes_and_invents_nothing() -> None:
    """Every bullet is a sentence of a document; where there is none, the slide says so."""
    writer = ExtractiveWriter()
    outline = await writer.outline(BRIEF, PASSAGES, key="k")
    assert len(outline.slides) == len(set(outline.slides)) == 4
    known = set(sentences(DEMO_DOCUMENT))
    for number, title in enumerate(outline.slides, 1):
        slide = await writer.slide(BRIEF, number, title, PASSAGES, key="k")
        assert set(slide.bullets) <= known
        assert slide.sources == ["whales.txt"]
        assert slide.tokens == 0
    empty = await writer.slide(BRIEF, 1, "Anything", [], key="k")
    assert empty.bullets == [NO_SOURCE]


async def test_titles_are_enough_for_any_number_of_slides() -> None:
    """Fifty slides have fifty different titles, with documents or without."""
    many = Brief(topic="Whales", audience="", language="en", slides=50)
    for passages in ([], PASSAGES):
        outline = await ExtractiveWriter().outline(many, passages, key="k")
        assert len(set(outline.slides)) == 50


async def test_the_model_is_asked_with_its_key_and_an_idempotency_key(endpoint: Endpoint) -> None:
    """The question names the slide and its sources; an answer in a code fence is understood."""
    endpoint.replies = [_says('```json\n{"bullets": ["a"], "notes": "n"}\n```')]
    async with ChatWriter(endpoint.url + "/v1", model="m", api_key="secret") as writer:
        slide = await writer.slide(BRIEF, 2, "Krill", PASSAGES[:1], key="job:slide:2")
    assert (slide.bullets, slide.notes, slide.tokens, slide.sources) == (["a"], "n", 7, ["whales.txt"])
    path, headers, body = endpoint.seen[0]
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == "Bearer secret"
    assert headers["idempotency-key"] == "job:slide:2"
    assert "[whales.txt]" in json.loads(body)["messages"][1]["content"]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (_says("no JSON"), ModelFailed),
        (_says('{"slides": 3}'), ModelFailed),
        (_says('{"title": "t", "slides": ["one"]}'), ModelFailed),
        ((200, {"choices": []}), ModelFailed),
        ((500, {}), ModelFailed),
        ((429, {}), ModelFailed),
        ((401, {}), JobFailed),
    ],
)
async def test_an_answer_that_is_none_is_an_error(
    endpoint: Endpoint, reply: tuple[int, Any], error: type[Exception]
) -> None:
    """What may be better next time is tried again; a refusal of the credentials is not."""
    endpoint.replies = [reply]
    async with ChatWriter(endpoint.url, model="m", api_key="secret") as writer:
        with pytest.raises(error) as raised:
            await writer.outline(BRIEF, [], key="k")
    assert "secret" not in str(raised.value)


async def test_google_is_asked_with_a_signed_grant(endpoint: Endpoint, tmp_path: Path) -> None:
    """A service account's key signs for a token, the token uploads the PPTX, and its link comes back."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "client_email": "slides@project.example",
        "private_key": pem.decode(),
        "token_uri": endpoint.url + "/token",
        "upload_uri": endpoint.url + "/upload",
    }
    file = tmp_path / "account.json"
    file.write_text(json.dumps(account))
    endpoint.replies = [(200, {"access_token": "t"}), (200, {"id": "1", "webViewLink": "https://slides/1"})]
    assert await upload_to_google(str(file), "Whales", b"PK the file") == "https://slides/1"
    grant, sent = endpoint.seen
    assertion = grant[2].decode().partition("assertion=")[2]
    claims = jwt.decode(assertion, key.public_key(), ["RS256"], audience=account["token_uri"])
    assert claims["iss"] == "slides@project.example"
    assert sent[1]["authorization"] == "Bearer t"
    assert b"PK the file" in sent[2]
    assert b"application/vnd.google-apps.presentation" in sent[2]


async def test_google_without_credentials_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """Missing credentials, a missing file and an invalid one have different errors, and are not retried."""
    with pytest.raises(JobFailed, match="EPHEMERA_SLIDES_GOOGLE_CREDENTIALS"):
        await upload_to_google(None, "Whales", b"")
    assert "PPTX and PDF work without" in NEEDS_CREDENTIALS
    with pytest.raises(JobFailed, match="cannot be read"):
        await upload_to_google(str(tmp_path / "missing.json"), "Whales", b"")


@pytest.mark.parametrize("text", ["Whales", "Киты и «море»", "鯨の話 & <b>", "a\x0bb\x00c", "long " * 400])
def test_files_open_whatever_they_say(text: str) -> None:
    """Any language, markup, control characters and far too much text make a PPTX and a PDF that open."""
    pages = [Page(title=text, bullets=[text] * 5, notes=text, sources=[text])] * 2
    deck = Presentation(BytesIO(render_pptx(text, pages)))
    assert len(deck.slides) == 2
    assert deck.slides[0].shapes.title.text[:4] in text.replace("\x0b", "").replace("\x00", "")
    pdf = PdfReader(BytesIO(render_pdf(text, pages)))
    assert len(pdf.pages) == 2
