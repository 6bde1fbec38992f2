"""Answers to questions: from the cache by exact match or by similarity, else from the model.

*Retrieval.* The passages of an answer are those that the caller named, and those that the full-text search
ranks best for the question. With an embeddings endpoint, the best forty of the search are ranked by meaning
as well, and the two ranks are combined (reciprocal rank fusion).

*The corpus changes.* An answer is valid for its question, translation, model and instructions, which are its
scope, and for the passages it is based on. It has the corpus version from before they were retrieved. When a
cached answer has an older version than SQL, its passages are retrieved again: if they are the same, word for
word, it stands; otherwise it is deleted, and the model is asked. So an ingest ends "no passage fits" exactly
where a passage fits now, and a corrected verse ends the answers based on it, and nothing else does.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.errors import EphemeraError
from ephemera.patterns.embedders import Embedder, Lexical
from ephemera.patterns.embedders import OpenAICompatible as Embeddings
from ephemera.patterns.semantic_cache import Answer, BoundSemanticCache, Qdrant, SemanticBackend
from ephemera_services.scripture.content_writer import corpus_version
from ephemera_services.scripture.keys import ANSWERS, AnswerScope
from ephemera_services.scripture.models import ChatModel, ExtractiveModel, Model, OnText
from ephemera_services.scripture.records import AiAnswer, Quotation
from ephemera_services.scripture.search import Search
from ephemera_services.scripture.settings import Settings

_MAX_PASSAGES = 8
_CANDIDATES = 40
_FUSION = 60  # the usual constant of reciprocal rank fusion
_ATTEMPTS = 10  # several similar answers may be outdated

logger = logging.getLogger(__name__)
OnPassages = Callable[[Sequence[Quotation]], None]


def semantic_backend(settings: Settings) -> SemanticBackend:
    """The embedder and the vectors of the settings; `Answers.open` has the store close them."""
    api_key = None if settings.qdrant_key is None else settings.qdrant_key.reveal()
    vectors = Qdrant(settings.qdrant_url or ":memory:", api_key=api_key, ca=settings.qdrant_ca)
    if settings.embeddings_url is None:
        return SemanticBackend(embedder=Lexical(), vectors=vectors)
    key = None if settings.model_key is None else settings.model_key.reveal()
    embedder = Embeddings(settings.embeddings_url, model=settings.embeddings_model, api_key=key)
    return SemanticBackend(embedder=embedder, vectors=vectors)


class Retrieval:
    """Finds the passages that a question is about."""

    def __init__(self, search: Search, embedder: Embedder | None) -> None:
        self._search = search
        self._embedder = embedder

    async def find(self, question: str, translation: str, named: Sequence[str]) -> list[Quotation]:
        """The named passages, and the best ones for the question."""
        requested = await self._search.get_by_ids(named, translation)
        wanted = _CANDIDATES if self._embedder is not None else _MAX_PASSAGES + len(named)
        similar = await self._search.find_similar(question, translation, wanted)
        if self._embedder is not None and similar:
            similar = await self._fused(question, similar, self._embedder)
        others = [each for each in similar if each.id not in named]
        return [*requested, *others][: max(_MAX_PASSAGES, len(requested))]

    async def _fused(self, question: str, ranked: list[Quotation], embedder: Embedder) -> list[Quotation]:
        """Rank by words and by meaning; by words alone while the endpoint does not answer."""
        try:
            asked, *vectors = await embedder.embed([question, *(each.text for each in ranked)])
        except EphemeraError as failed:
            logger.warning("passages are ranked by words alone", extra={"problem": str(failed)})
            return ranked
        nearness = [sum(a * b for a, b in zip(asked, vector, strict=True)) for vector in vectors]
        by_meaning = sorted(range(len(ranked)), key=lambda at: -nearness[at])
        place = {at: rank for rank, at in enumerate(by_meaning)}
        best = sorted(range(len(ranked)), key=lambda at: -(1 / (_FUSION + at) + 1 / (_FUSION + place[at])))
        return [ranked[at] for at in best]


class Answers:
    """Answers questions, each of them once."""

    def __init__(
        self,
        cache: BoundSemanticCache[AiAnswer, AnswerScope],
        model: Model,
        retrieval: Retrieval,
        engine: AsyncEngine,
    ) -> None:
        self._cache = cache
        self._model = model
        self._retrieval = retrieval
        self._engine = engine

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: Settings, store: Store, search: Search, engine: AsyncEngine
    ) -> AsyncIterator[Answers]:
        """Open the model, the embedder and the vector store of the settings."""
        key = None if settings.model_key is None else settings.model_key.reveal()
        url = settings.model_url
        model = ExtractiveModel() if url is None else ChatModel(url, settings.model_name, key)
        backend: SemanticBackend = store.resource(ANSWERS, "a SemanticBackend", SemanticBackend)
        for part in (backend.vectors, backend.embedder):  # closed after the cache that uses them
            if isinstance(part, (Qdrant, Embeddings)):
                store.before_close(part.aclose)
        embedder = backend.embedder if isinstance(backend.embedder, Embeddings) else None
        try:
            yield cls(store[ANSWERS], model, Retrieval(search, embedder), engine)
        finally:
            await model.aclose()

    async def ask(
        self,
        question: str,
        translation: str,
        passage_ids: Sequence[str],
        *,
        on_passages: OnPassages | None = None,
        on_text: OnText | None = None,
    ) -> Answer[AiAnswer]:
        """Answer a question; `ModelFailed` if the model does not answer.

        If the model is asked, `on_passages` gets the passages first, and `on_text` the text as it is written.
        """
        scope = AnswerScope(
            organization="scripture",
            provider=self._model.provider,
            model=self._model.name,
            language="en",
            documents=frozenset(passage_ids),
            translation=translation,
            instructions=self._model.instructions,
        )

        async def load_answer(prompt: str) -> AiAnswer:
            version = await self._corpus_version()
            passages = await self._retrieval.find(prompt, translation, passage_ids)
            if on_passages is not None:
                on_passages(passages)
            reply = await self._model.answer(prompt, passages, on_text)
            return AiAnswer(
                text=reply.text,
                passages=passages,
                model=self._model.name,
                tokens=reply.tokens,
                corpus=version,
            )

        for _ in range(_ATTEMPTS):
            found = await self._cache.get_or_ask(question, scope, load_answer)
            if found.origin == "asked" or await self._is_current(found, translation, passage_ids):
                break
            await self._cache.delete(found.prompt, scope)
        return found

    async def _is_current(self, found: Answer[AiAnswer], translation: str, named: Sequence[str]) -> bool:
        """Whether a cached answer is based on what the corpus has now."""
        if found.value.corpus == await self._corpus_version():
            return True
        return await self._retrieval.find(found.prompt, translation, named) == found.value.passages

    async def _corpus_version(self) -> int:
        async with self._engine.connect() as sql:
            return await corpus_version(sql)
