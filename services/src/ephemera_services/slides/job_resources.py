"""What each worker process opens once: writer, library, outline cache and usage."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from ephemera import Store
from ephemera.patterns.embedders import Embedder, Lexical, OpenAICompatible
from ephemera.patterns.semantic_cache import BoundSemanticCache, Qdrant, SemanticBackend
from ephemera.patterns.usage import BoundUsage
from ephemera.patterns.write_behind import CounterTable
from ephemera_services.runtime import Secret
from ephemera_services.slides.chat_writer import ChatWriter
from ephemera_services.slides.keys import OUTLINES, USAGE, DeckScope, Outline
from ephemera_services.slides.library import Library
from ephemera_services.slides.settings import Settings
from ephemera_services.slides.tables import usage_records
from ephemera_services.slides.usage_counts import cost_of
from ephemera_services.slides.writers import ExtractiveWriter, SlideWriter


@dataclass(frozen=True)
class JobResources:
    """What jobs use."""

    settings: Settings
    writer: SlideWriter
    library: Library
    outlines: BoundSemanticCache[Outline, DeckScope]
    usage: BoundUsage

    def cost(self, tokens: int) -> int:
        """The cost of tokens in millionths."""
        return cost_of(tokens, self.settings.cost_micros_per_1k_tokens)


@asynccontextmanager
async def open_job_resources(
    settings: Settings, store: Store, engine: AsyncEngine
) -> AsyncIterator[JobResources]:
    """Open everything that jobs use, and close it afterwards."""
    async with AsyncExitStack() as stack:
        backend: SemanticBackend = store.resource(OUTLINES, "a SemanticBackend", SemanticBackend)
        vectors = backend.vectors
        if vectors is None:
            vectors = await stack.enter_async_context(Qdrant())
        yield JobResources(
            settings=settings,
            writer=await _writer(stack, settings),
            library=Library(engine, backend.embedder, vectors),
            outlines=store[OUTLINES],
            usage=store[USAGE],
        )


@asynccontextmanager
async def semantic_backend(settings: Settings) -> AsyncIterator[SemanticBackend]:
    """The embedder and the vectors of the settings, for outlines and for documents."""
    async with AsyncExitStack() as stack:
        location, key = settings.qdrant_url or ":memory:", _reveal(settings.qdrant_key)
        vectors = await stack.enter_async_context(Qdrant(location, api_key=key, ca=settings.qdrant_ca))
        yield SemanticBackend(embedder=await _embedder(stack, settings), vectors=vectors)


def usage_table(engine: AsyncEngine) -> CounterTable:
    """The table of usage: what `store[USAGE]` needs besides Redis."""
    return CounterTable(engine, usage_records, USAGE.counters)


async def _writer(stack: AsyncExitStack, settings: Settings) -> SlideWriter:
    if settings.model_url is None:
        return ExtractiveWriter()
    writer = ChatWriter(settings.model_url, model=settings.model, api_key=_reveal(settings.model_key))
    return await stack.enter_async_context(writer)


async def _embedder(stack: AsyncExitStack, settings: Settings) -> Embedder:
    if settings.embedding_url is None:
        return Lexical()
    remote: Any = OpenAICompatible(
        settings.embedding_url, model=settings.embedding_model, api_key=_reveal(settings.embedding_key)
    )
    embedder: Embedder = await stack.enter_async_context(remote)
    return embedder


def _reveal(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()
