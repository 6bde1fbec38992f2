"""Who writes: the extractive writer plans from its sources, the model is checked, and Google is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from ephemera.errors import JobFailed
from ephemera_services.slides import DEMO_DOCUMENT
from ephemera_services.slides.chat_writer import ChatWriter, ModelFailed, ModelRefused
from ephemera_services.slides.deck_plan import Section
from ephemera_services.slides.document_text import Chunk, extract
from ephemera_services.slides.google_slides import NEEDS_CREDENTIALS, upload_to_google
from ephemera_services.slides.keys import Outline
from ephemera_services.slides.library import DocumentPassage, sections_of
from ephemera_services.slides.writers import Brief, ExtractiveWriter
from tests.services.scripted_model import Endpoint, Reply, says

BRIEF = Brief(topic="Whales and whaling", audience="", language="en", slides=4)
OUTLINE = Outline(title="Whales", slides=["Whales", "Krill", "Squid", "The end"])


class Documents:
    """Sources from chunks in memory; a query gets the first passages."""

    def __init__(self, chunks: Sequence[Chunk] = ()) -> None:
        self._chunks = chunks

    async def passages(self, query: str, limit: int) -> list[DocumentPassage]:
        """The first chunks."""
        del query
        return [DocumentPassage("whales.txt", chunk["text"]) for chunk in self._chunks[:limit]]

    async def sections(self) -> list[Section]:
        """All sections."""
        return sections_of("whales.txt", self._chunks)


NONE = Documents()
WHALES = Documents(extract(BytesIO(DEMO_DOCUMENT.encode())))


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """An endpoint of this test's own."""
    running = Endpoint()
    yield running
    running.close()


async def _outline(endpoint: Endpoint, slides: int = 4) -> Outline:
    brief = Brief(topic="Whales", audience="", language="en", slides=slides)
    async with ChatWriter(endpoint.url, model="m", api_key="secret") as writer:
        return await writer.outline(brief, NONE, key="k")


async def test_the_extractive_writer_follows_its_plan() -> None:
    """Each slide is that of the outline; one whose document is gone has a title, and invents nothing."""
    writer = ExtractiveWriter()
    outline = await writer.outline(BRIEF, WHALES, key="k")
    for number, title in enumerate(outline.slides, 1):
        slide = await writer.slide(BRIEF, number, outline, WHALES, key="k")
        assert (slide.title, slide.tokens) == (title, 0)
    lost = await writer.slide(BRIEF, 3, outline, NONE, key="k")
    assert (lost.title, lost.bullets) == (outline.slides[2], [])


async def test_the_model_is_asked_with_its_key_the_sources_and_the_outline(endpoint: Endpoint) -> None:
    """The question names the slide, the other slides and the sources; a code fence is understood."""
    endpoint.replies = [says('```json\n{"bullets": ["a"], "notes": "n"}\n```')]
    async with ChatWriter(endpoint.url + "/v1", model="m", api_key="secret") as writer:
        slide = await writer.slide(BRIEF, 2, OUTLINE, WHALES, key="job:slide:2")
    assert (slide.bullets, slide.notes, slide.tokens, slide.sources) == (["a"], "n", 7, ["whales.txt"])
    path, headers, _ = endpoint.seen[0]
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == "Bearer secret"
    assert headers["idempotency-key"] == "job:slide:2"
    prompt = endpoint.prompt(0)
    assert "[whales.txt]" in prompt
    assert "1. Whales\n2. Krill\n3. Squid\n4. The end" in prompt


@pytest.mark.parametrize(
    ("number", "content", "layout"),
    [
        (1, {"bullets": ["a"]}, "title"),
        (2, {"bullets": ["a"]}, "bullets"),
        (4, {"bullets": ["a"]}, "closing"),
        (2, {"bullets": [], "table": {"header": ["A", "B"], "rows": [["x", "y"]]}}, "table"),
        (2, {"bullets": [], "table": {"header": ["Y", "B"], "rows": [["2023", 1], ["2024", 2]]}}, "chart"),
        (2, {"bullets": ["a"], "table": "none"}, "bullets"),
    ],
)
async def test_slides_of_a_model_have_layouts(
    endpoint: Endpoint, number: int, content: dict[str, Any], layout: str
) -> None:
    """The first is a title, the last a summary, tables are tables or charts, and the rest are bullets."""
    endpoint.replies = [says(json.dumps(content))]
    async with ChatWriter(endpoint.url, model="m") as writer:
        assert (await writer.slide(BRIEF, number, OUTLINE, NONE, key="k")).layout == layout


@pytest.mark.parametrize(
    "content",
    [
        (
            '{"title": "Whales", "slides": [{"headline": "One"}, {"slide_title": "Two"}, '
            '{"title": {"text": "Three"}}]}'
        ),
        (
            '{"presentation": {"title": "Whales", "slides": [{"title": "One"}, {"title": "Two"}, '
            '{"title": "Three"}]}}'
        ),
        '[{"title": "One"}, {"title": "Two"}, {"title": "Three"}]',
        'Here you are [1]: ["One", "Two", "Three"]',
        '[{"title": "Whales", "slides": ["One", "Two", "Three"]}]',
        '{"title": "Whales", "slides": {"1": "One", "2": "Two", "3": "Three"}}',
    ],
)
async def test_outlines_are_found_in_other_forms(endpoint: Endpoint, content: str) -> None:
    """Other names, a wrapper, lists without one: each is understood at once, with all its titles."""
    endpoint.replies = [says(content)]
    outline = await _outline(endpoint, 3)
    assert (outline.title, outline.slides) == ("Whales", ["One", "Two", "Three"])
    assert len(endpoint.seen) == 1


@pytest.mark.parametrize(
    "content",
    [
        '{"key_points": ["a", {"text": "b"}], "notes": "n"}',
        '{"slide": {"title": "T", "bullets": ["a", "b"], "notes": "n"}}',
        '[{"bullets": ["a", {"point": {"text": "b"}}], "notes": "n"}]',
    ],
)
async def test_slides_are_found_in_other_forms(endpoint: Endpoint, content: str) -> None:
    """Other names for points, and an object or a list around the fields."""
    endpoint.replies = [says(content)]
    async with ChatWriter(endpoint.url, model="m") as writer:
        slide = await writer.slide(BRIEF, 2, OUTLINE, NONE, key="k")
    assert (slide.bullets, slide.notes) == (["a", "b"], "n")


async def test_a_deck_of_a_model_is_framed(endpoint: Endpoint) -> None:
    """One subtitle on the title slide, an agenda that is the outline and free, and few short bullets."""
    brief = Brief(topic="Whales", audience="", language="de", slides=7)
    titles = [f"Teil {number}" for number in range(1, 7)]
    points = {"bullets": ["word " * 60, *"bcdefg"]}
    endpoint.replies = [says(json.dumps({"title": "Wale", "slides": titles}))]
    endpoint.replies += [says('{"subtitle": "Riesen", "notes": "n"}'), says(json.dumps(points))]
    async with ChatWriter(endpoint.url, model="m") as writer:
        outline = await writer.outline(brief, NONE, key="k")
        title, agenda, slide = [
            await writer.slide(brief, number, outline, NONE, key="k") for number in (1, 2, 3)
        ]
    assert outline.slides == ["Teil 1", agenda.title, *titles[1:]]
    assert (title.layout, title.bullets) == ("title", ["Riesen"])
    assert "subtitle" in endpoint.prompt(1)
    assert (agenda.layout, agenda.bullets, agenda.tokens) == ("agenda", titles[1:], 0)
    assert len(endpoint.seen) == 3
    assert len(slide.bullets) == 5
    assert all(len(bullet.split()) <= 25 for bullet in slide.bullets)


async def test_an_endpoint_that_knows_no_json_mode_is_asked_without(endpoint: Endpoint) -> None:
    """A 400 is asked again once without `response_format`, and so are later questions; its tokens count."""
    good = '{"title": "Whales", "slides": ["One", "Two", "Three", "Four"]}'
    endpoint.replies = [Reply(400, {"usage": {"total_tokens": 3}}), says(good), says('{"bullets": ["a"]}')]
    async with ChatWriter(endpoint.url, model="m") as writer:
        outline = await writer.outline(BRIEF, NONE, key="k")
        await writer.slide(BRIEF, 2, outline, NONE, key="k")
    assert (outline.slides, outline.tokens) == (["One", "Two", "Three", "Four"], 10)
    assert ["response_format" in json.loads(body) for _, _, body in endpoint.seen] == [True, False, False]
    keys = [headers["idempotency-key"] for _, headers, _ in endpoint.seen]
    assert keys[0] != keys[1]


async def test_a_refusal_for_good_says_what_it_cost(endpoint: Endpoint) -> None:
    """An invalid answer and a refusal after it are both counted."""
    endpoint.replies = [says("no", tokens=40), Reply(403, {"usage": {"total_tokens": 2}})]
    with pytest.raises(ModelRefused) as raised:
        await _outline(endpoint)
    assert raised.value.tokens == 42


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(500, {}), ModelFailed),
        (Reply(429, {}), ModelFailed),
        (Reply(401, {}), JobFailed),
    ],
)
async def test_a_refusal_is_an_error(endpoint: Endpoint, reply: Reply, error: type[Exception]) -> None:
    """What may be better next time is tried again; a refusal of the credentials is not."""
    endpoint.replies = [reply]
    with pytest.raises(error) as raised:
        await _outline(endpoint)
    assert "secret" not in str(raised.value)


async def test_text_that_cannot_be_stored_is_cleaned(endpoint: Endpoint) -> None:
    """NULs, lone surrogates, list markers and endless lines of a model do no harm."""
    bullets = ["a\x00b", "\ud800 c", "- d", "e " * 5000]
    endpoint.replies = [says(json.dumps({"bullets": bullets, "notes": "x\x00"}))]
    async with ChatWriter(endpoint.url, model="m") as writer:
        slide = await writer.slide(BRIEF, 2, OUTLINE, NONE, key="k")
    assert slide.bullets[:3] == ["ab", "c", "d"]
    assert len(slide.bullets[3].split()) <= 25
    assert slide.notes == "x"


async def test_a_retry_after_may_be_a_date(endpoint: Endpoint) -> None:
    """Seconds and dates are understood, and a day is too long."""
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=300), usegmt=True)
    for value, least, most in (("7", 7, 7), (soon, 250, 300), ("86400", 900, 900), ("-5", 0, 0)):
        endpoint.replies = [Reply(503, {}, {"retry-after": value})]
        with pytest.raises(ModelFailed) as raised:
            await _outline(endpoint)
        assert raised.value.retry_after is not None
        assert least <= raised.value.retry_after.total_seconds() <= most
    endpoint.replies = [Reply(429, {}, {"retry-after": "soon"})]
    with pytest.raises(ModelFailed) as raised:
        await _outline(endpoint)
    assert raised.value.retry_after is None


async def test_google_is_asked_with_a_signed_grant(endpoint: Endpoint, tmp_path: Path) -> None:
    """A service account's key signs for a token, the token uploads the PPTX, and its link is returned."""
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
    link = {"id": "1", "webViewLink": "https://slides/1"}
    endpoint.replies = [Reply(200, {"access_token": "t"}), Reply(200, link)]
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
