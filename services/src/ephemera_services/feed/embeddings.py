"""Embeddings of insights: computed at publication, or by the worker if that failed or the model changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ephemera.errors import EmbeddingFailed
from ephemera.patterns.embedders import Embedder, Lexical, MiniLM, OpenAICompatible
from ephemera_services.feed.settings import Settings
from ephemera_services.runtime import InvalidSettings

_BATCH = 256  # texts per call of an embedder


@asynccontextmanager
async def open_embedder(settings: Settings) -> AsyncIterator[Embedder]:
    """Open the embedder that the settings name."""
    match settings.embedder:
        case "lexical":
            yield Lexical()
        case "minilm":
            yield MiniLM()
        case "openai":
            if settings.embedder_url is None:
                raise InvalidSettings(
                    ["EPHEMERA_FEED_EMBEDDER_URL must be set if EPHEMERA_FEED_EMBEDDER is openai"]
                )
            key = None if settings.embedder_key is None else settings.embedder_key.reveal()
            async with OpenAICompatible(
                settings.embedder_url, model=settings.embedder_model, api_key=key
            ) as embedder:
                yield embedder


async def embedding_columns(embedder: Embedder, texts: Sequence[str]) -> list[dict[str, Any]]:
    """The embedding columns of insights' rows; empty if the embedder fails: the worker fills them later."""
    try:
        vectors = await embed_texts(embedder, texts)
    except EmbeddingFailed:
        return [{} for _ in texts]
    return [{"embedding": vector, "embedded_by": embedder.model} for vector in vectors]


async def embed_texts(embedder: Embedder, texts: Sequence[str]) -> list[bytes]:
    """Embed many texts; packed vectors."""
    vectors: list[bytes] = []
    for start in range(0, len(texts), _BATCH):
        vectors += map(pack, await embedder.embed(texts[start : start + _BATCH]))
    return vectors


def pack(vector: Sequence[float]) -> bytes:
    """Normalize a vector and pack it as little-endian 32-bit floats."""
    array = np.asarray(vector, dtype=np.float64)
    length = float(np.linalg.norm(array))
    return (array / length if length else array).astype("<f4").tobytes()


def unpack(vectors: Sequence[bytes]) -> NDArray[np.float32]:
    """Unpack vectors of one model into rows."""
    return np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), -1)
