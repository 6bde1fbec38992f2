"""MIS4: usual habits of models failed a job, Retry-After was ignored, and failed calls cost nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ephemera_services.slides.chat_writer import ChatWriter, ModelFailed
from ephemera_services.slides.keys import Outline
from ephemera_services.slides.writers import Brief
from tests.services.scripted_model import Endpoint, Reply, says
from tests.services.test_slides_writing import NONE

BRIEF = Brief(topic="Whales", audience="", language="en", slides=3)
GOOD = '{"title": "Whales", "slides": ["One", "Two", "Three"]}'


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """An endpoint of this test's own."""
    running = Endpoint()
    yield running
    running.close()


async def _outline(endpoint: Endpoint) -> Outline:
    async with ChatWriter(endpoint.url, model="m") as writer:
        return await writer.outline(BRIEF, NONE, key="k")


@pytest.mark.parametrize(
    "content",
    [
        f"Sure! Here is your outline:\n\n{GOOD}\n\nLet me know if you want changes {{or not}}.",
        f"<think>Maybe {{three}} slides?</think>```json\n{GOOD}\n```",
        '{"title": "Whales", "slides": [{"number": 1, "title": "One"}, {"heading": "Two"}, "3. Three"]}',
        '{"title": {"text": "Whales"}, "outline": ["One", "Two", "Three", "Four"]}',
    ],
)
async def test_mis4_an_outline_is_found_in_what_models_write(endpoint: Endpoint, content: str) -> None:
    """Chatter around the JSON, code fences, objects for titles, and one title too many."""
    endpoint.replies = [says(content)]
    outline = await _outline(endpoint)
    assert (outline.title, outline.slides) == ("Whales", ["One", "Two", "Three"])
    assert len(endpoint.seen) == 1


async def test_mis4_one_title_too_few_is_accepted(endpoint: Endpoint) -> None:
    """The deck is a slide shorter."""
    endpoint.replies = [says('{"title": "Whales", "slides": ["One", "Two"]}')]
    assert (await _outline(endpoint)).slides == ["One", "Two"]


@pytest.mark.parametrize(
    "bad", ["I cannot do that.", '{"slides": 3}', '{"title": "t", "slides": ["One"]}', '{"ti']
)
async def test_mis4_an_invalid_answer_is_repaired_once(endpoint: Endpoint, bad: str) -> None:
    """The model sees its answer and what is wrong with it; the tokens of both are counted."""
    endpoint.replies = [says(bad, tokens=40), says(GOOD, tokens=2)]
    outline = await _outline(endpoint)
    assert (outline.slides, outline.tokens) == (["One", "Two", "Three"], 42)
    sent = json.loads(endpoint.seen[1][2])["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
    assert sent[2]["content"] == bad
    assert "cannot be used" in sent[3]["content"]
    keys = [headers["idempotency-key"] for _, headers, _ in endpoint.seen]
    assert len(set(keys)) == 2, "a repeated key would get the same answer again"


async def test_mis4_tokens_of_failed_calls_are_counted(endpoint: Endpoint) -> None:
    """An answer that is invalid twice fails with what both have cost; so does an error after the first."""
    endpoint.replies = [says("no", tokens=40), says("no", tokens=2)]
    with pytest.raises(ModelFailed) as raised:
        await _outline(endpoint)
    assert raised.value.tokens == 42
    endpoint.replies = [says("no", tokens=40), Reply(500, {"usage": {"total_tokens": 3}})]
    with pytest.raises(ModelFailed) as raised:
        await _outline(endpoint)
    assert raised.value.tokens == 43


async def test_mis4_retry_after_is_honoured(endpoint: Endpoint) -> None:
    """The error says when the endpoint wants to be called again."""
    endpoint.replies = [Reply(429, {}, {"retry-after": "17"})]
    with pytest.raises(ModelFailed) as raised:
        await _outline(endpoint)
    assert raised.value.retry_after is not None
    assert raised.value.retry_after.total_seconds() == 17
