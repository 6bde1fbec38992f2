"""Answers to questions: from the cache by exact match or by similarity, else from the model.

An answer is valid only for its passages, translation, model and instructions, so all of them are in its scope
or its sources: an ingest that changes a passage invalidates the answers based on it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from ephemera import Store
from ephemera.patterns.embedders import Lexical
from ephemera.patterns.embedders import OpenAICompatible as Embeddings
from ephemera.patterns.semantic_cache import Answer, BoundSemanticCache, Qdrant, SemanticBackend
from ephemera_services.scripture.keys import ANSWERS, AnswerScope
from ephemera_services.scripture.models import ChatModel, ExtractiveModel, Model
from ephemera_services.scripture.records import AiAnswer
from ephemera_services.scripture.search import Search
from ephemera_services.scripture.settings import Settings

_MAX_PASSAGES = 8


def semantic_backend(settings: Settings) -> SemanticBackend:
    """The embedder and the vectors of the settings; `Answers.open` has the store close them."""
    api_key = None if settings.qdrant_key is None else settings.qdrant_key.reveal()
    vectors = Qdrant(settings.qdrant_url or ":memory:", api_key=api_key, ca=settings.qdrant_ca)
    if settings.embeddings_url is None:
        return SemanticBackend(embedder=Lexical(), vectors=vectors)
    key = None if settings.model_key is None else settings.model_key.reveal()
    embedder = Embeddings(settings.embeddings_url, model=settings.embeddings_model, api_key=key)
    return SemanticBackend(embedder=embedder, vectors=vectors)


class Answers:
    """Answers questions, each of them once."""

    def __init__(
        self, cache: BoundSemanticCache[AiAnswer, AnswerScope], model: Model, search: Search
    ) -> None:
        self.cache = cache
        self._model = model
        self._search = search

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, store: Store, search: Search) -> AsyncIterator[Answers]:
        """Open the model, the embedder and the vector store of the settings."""
        key = None if settings.model_key is None else settings.model_key.reveal()
        url = settings.model_url
        model = ExtractiveModel() if url is None else ChatModel(url, settings.model_name, key)
        backend: SemanticBackend = store.resource(ANSWERS, "a SemanticBackend", SemanticBackend)
        for part in (backend.vectors, backend.embedder):  # closed after the cache that uses them
            if isinstance(part, (Qdrant, Embeddings)):
                store.before_close(part.aclose)
        try:
            yield cls(store[ANSWERS], model, search)
        finally:
            await model.aclose()

    async def ask(self, question: str, translation: str, passage_ids: Sequence[str]) -> Answer[AiAnswer]:
        """Answer a question; `ModelFailed` if the model does not answer."""
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
            requested = await self._search.get_by_ids(passage_ids, translation)
            similar = await self._search.find_similar(prompt, translation, _MAX_PASSAGES)
            others = [each for each in similar if each.id not in passage_ids]
            passages = [*requested, *others][: max(_MAX_PASSAGES, len(requested))]
            reply = await self._model.answer(prompt, passages)
            return AiAnswer(text=reply.text, passages=passages, model=self._model.name, tokens=reply.tokens)

        return await self.cache.get_or_ask(question, scope, load_answer)
