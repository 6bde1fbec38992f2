"""The models that answer questions: an OpenAI-compatible endpoint, or quotation of passages.

Both get the question and the matching passages. Without an endpoint nothing is invented: the answer quotes
the passages, and says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple, Protocol

import httpx
import msgspec

from ephemera.errors import EphemeraError
from ephemera_services.scripture.records import Quotation

INSTRUCTIONS = (
    "You answer questions about scripture from the passages that you are given, and from nothing else. "
    "Name the passages you rest on, as in (John 3:16). If they do not answer the question, say so. "
    "At most 150 words."
)
_TIMEOUT = 45.0  # seconds
_MAX_QUOTED = 3


class ModelFailed(EphemeraError):
    """The model did not answer; the reason is for the log."""


class Reply(NamedTuple):
    """The response of a model, and its tokens."""

    text: str
    tokens: int


OnText = Callable[[str], None]
"""Receives an answer's text piece by piece."""


class Model(Protocol):
    """Answers questions."""

    provider: str
    name: str
    instructions: str
    """A digest of its instructions, which are part of the cache scope."""

    async def answer(
        self, question: str, passages: Sequence[Quotation], on_text: OnText | None = None
    ) -> Reply:
        """An answer from these passages, or `ModelFailed`; with `on_text`, as it is written."""

    async def aclose(self) -> None:
        """Close its connections."""


class ExtractiveModel:
    """Quotes the best passages."""

    provider, name, instructions = "ephemera", "extractive", "1"

    async def answer(
        self,
        question: str,  # noqa: ARG002 - the protocol's
        passages: Sequence[Quotation],
        on_text: OnText | None = None,
    ) -> Reply:
        """Quote the passages, which were selected for the question."""
        text = "No passage of this corpus matches the question."
        if passages:
            quoted = "\n".join(f"“{each.text}” ({each.reference})" for each in passages[:_MAX_QUOTED])
            text = f"No model is configured; these passages match best:\n{quoted}"
        if on_text is not None:
            on_text(text)
        return Reply(text, 0)

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""


class _Message(msgspec.Struct):
    content: str


class _Choice(msgspec.Struct):
    message: _Message


class _Usage(msgspec.Struct, frozen=True):
    total_tokens: int = 0


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage = _Usage()


class _Delta(msgspec.Struct):
    content: str | None = None


class _ChunkChoice(msgspec.Struct):
    delta: _Delta


class _Chunk(msgspec.Struct):
    choices: list[_ChunkChoice] = []
    usage: _Usage | None = None


async def _chunks(lines: AsyncIterator[str]) -> AsyncIterator[_Chunk]:
    """The chunks of a stream; `ModelFailed` if it ends before the answer does."""
    async for line in lines:
        if line.startswith("data:"):
            data = line.removeprefix("data:").strip()
            if data == "[DONE]":
                return
            yield msgspec.json.decode(data, type=_Chunk)
    raise ModelFailed("the model's stream ended before the answer")


class ChatModel:
    """A model behind `{url}/chat/completions`."""

    def __init__(self, url: str, name: str, key: str | None) -> None:
        self.provider = httpx.URL(url).host
        self.name = name
        self.instructions = hashlib.sha256(INSTRUCTIONS.encode()).hexdigest()[:16]
        self._url = url.rstrip("/") + "/chat/completions"
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._http = httpx.AsyncClient(headers=headers, timeout=_TIMEOUT)

    async def answer(
        self, question: str, passages: Sequence[Quotation], on_text: OnText | None = None
    ) -> Reply:
        """Ask the model."""
        context = "\n".join(f"{each.reference}: {each.text}" for each in passages)
        messages = [
            {"role": "system", "content": INSTRUCTIONS},
            {"role": "user", "content": f"Passages:\n{context}\n\nQuestion: {question}"},
        ]
        request: dict[str, object] = {"model": self.name, "messages": messages}
        try:
            if on_text is not None:
                return await self._stream(request, on_text)
            response = await self._http.post(self._url, json=request)
            completion = msgspec.json.decode(response.raise_for_status().content, type=_Completion)
            return Reply(completion.choices[0].message.content, completion.usage.total_tokens)
        except httpx.HTTPStatusError as refused:
            raise ModelFailed(f"the model's endpoint answered {refused.response.status_code}") from None
        except (httpx.HTTPError, msgspec.MsgspecError, IndexError) as failed:
            raise ModelFailed(f"the model did not answer: {type(failed).__name__}") from None

    async def _stream(self, request: dict[str, object], on_text: OnText) -> Reply:
        """Ask for the answer as a stream; an endpoint that cannot stream answers all at once."""
        options = {"stream": True, "stream_options": {"include_usage": True}}
        pieces: list[str] = []
        tokens = 0
        async with self._http.stream("POST", self._url, json=request | options) as response:
            response.raise_for_status()
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                completion = msgspec.json.decode(await response.aread(), type=_Completion)
                on_text(completion.choices[0].message.content)
                return Reply(completion.choices[0].message.content, completion.usage.total_tokens)
            async for chunk in _chunks(response.aiter_lines()):
                tokens = tokens if chunk.usage is None else chunk.usage.total_tokens
                if chunk.choices and (piece := chunk.choices[0].delta.content):
                    pieces.append(piece)
                    on_text(piece)
        if not pieces:
            raise ModelFailed("the model's stream had no text")
        return Reply("".join(pieces), tokens)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()
