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

from ephemera.patterns.embedders._embedder import Embedder, Lexical
from ephemera.patterns.embedders._models import MiniLM, OpenAICompatible

__all__ = ["Embedder", "Lexical", "MiniLM", "OpenAICompatible"]
