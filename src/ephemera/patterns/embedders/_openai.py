"""Any endpoint that speaks OpenAI's embeddings route: a hosted one, or one's own.

    async with OpenAICompatible("http://127.0.0.1:11434/v1", model="nomic-embed-text") as embedder:
        [vector] = await embedder.embed(["what is it about?"])

Needs the extra `openai` (httpx). The key goes into the request's header and nowhere else: it is in no repr
and no error, nor is a password in the URL. Whatever goes wrong, a slow or missing endpoint, a refusal, an
answer that is none, is an `EmbeddingFailed` that says so; nothing is retried here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from types import TracebackType
from typing import Any, Self

import msgspec

from ephemera.errors import EmbeddingFailed
from ephemera.keyspace import check_durations
from ephemera.patterns.embedders._embedder import without_secrets

_MOST_TEXTS = 128  # of one request
_SHOWN = 200  # characters of an endpoint's complaint that are worth showing


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
        """`dimensions` shortens the vectors, where the model can."""
        check_durations(model, timeout=timeout)
        try:
            httpx: Any = import_module("httpx")
        except ImportError:
            raise EmbeddingFailed(model, "httpx is missing: pip install 'ephemera-data[openai]'") from None
        self.model = model
        self._url = url.rstrip("/") + "/embeddings"
        self._named = without_secrets(self._url)
        self._api_key = api_key
        self._dimensions = {} if dimensions is None else {"dimensions": dimensions}
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._failures = (httpx.HTTPError, httpx.InvalidURL)
        self._http = httpx.AsyncClient(headers=headers, timeout=timeout.total_seconds())

    async def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """A vector for each text, in their order."""
        vectors: list[list[float]] = []
        for start in range(0, len(texts), _MOST_TEXTS):
            vectors += await self._request(texts[start : start + _MOST_TEXTS])
        return vectors

    async def _request(self, texts: Sequence[str]) -> list[list[float]]:
        wish = {"model": self.model, "input": list(texts), "encoding_format": "float", **self._dimensions}
        try:
            reply = await self._http.post(self._url, json=wish)
        except self._failures as problem:
            named = f"{type(problem).__name__} {problem}".strip()
            raise EmbeddingFailed(self.model, f"{self._named} did not answer: {named}") from None
        if reply.status_code != 200:
            complaint = reply.text.replace(self._api_key, "***") if self._api_key else reply.text
            said = f"{self._named} answered {reply.status_code}: {complaint[:_SHOWN]}"
            raise EmbeddingFailed(self.model, said)
        try:
            items = sorted(msgspec.json.decode(reply.content, type=_Reply).data, key=lambda item: item.index)
        except msgspec.MsgspecError as problem:
            raise EmbeddingFailed(self.model, f"{self._named} answered something else: {problem}") from None
        if [item.index for item in items] != list(range(len(texts))):
            said = f"{self._named} gave {len(items)} vectors for {len(texts)} texts"
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
        return f"OpenAICompatible({self._named!r}, model={self.model!r})"
