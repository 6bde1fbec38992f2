"""Vectors of insights: made when one is published, or by the worker where that failed or is outdated."""

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

_AT_ONCE = 256  # texts of one call to an embedder


@asynccontextmanager
async def opened_embedder(settings: Settings) -> AsyncIterator[Embedder]:
    """The embedder that the settings name."""
    match settings.embedder:
        case "lexical":
            yield Lexical()
        case "minilm":
            yield MiniLM()
        case "openai":
            if settings.embedder_url is None:
                raise InvalidSettings(["EPHEMERA_FEED_EMBEDDER_URL must be set for the embedder openai"])
            key = None if settings.embedder_key is None else settings.embedder_key.reveal()
            async with OpenAICompatible(
                settings.embedder_url, model=settings.embedder_model, api_key=key
            ) as embedder:
                yield embedder


async def columns_of(embedder: Embedder, text: str) -> dict[str, Any]:
    """What an insight's row has of its vector: nothing when the embedder fails, which the worker makes up."""
    try:
        [vector] = await embedder.embed([text])
    except EmbeddingFailed:
        return {}
    return {"embedding": packed(vector), "embedded_by": embedder.model}


async def vectors_of(embedder: Embedder, texts: Sequence[str]) -> list[bytes]:
    """The packed vectors of many texts."""
    made: list[bytes] = []
    for start in range(0, len(texts), _AT_ONCE):
        made += map(packed, await embedder.embed(texts[start : start + _AT_ONCE]))
    return made


def packed(vector: Sequence[float]) -> bytes:
    """A vector as SQL keeps it: 32-bit floats, little end first, of unit length."""
    array = np.asarray(vector, dtype=np.float64)
    length = float(np.linalg.norm(array))
    return (array / length if length else array).astype("<f4").tobytes()


def unpacked(vectors: Sequence[bytes]) -> NDArray[np.float32]:
    """Vectors of one model as rows."""
    return np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), -1)
