"""Embedders: texts in, vectors out; texts that mean the same lie close together by cosine similarity.

| embedder | needs | close means |
|---|---|---|
| `Lexical` | nothing | almost the same words |
| `MiniLM` | the extra `minilm`, no download | about the same meaning, in English |
| `OpenAICompatible` | the extra `openai` and an endpoint | what its model was trained for |

Anything with a `model` and an `embed` is an embedder. `model` names what the vectors depend on: vectors of
different models are never compared, so whoever changes how vectors are made changes the name.
None of them touches Redis. `embed` raises `EmbeddingFailed`, or what it likes: users of an embedder go on
without it.
"""

from ephemera.patterns.embedders._embedder import Embedder
from ephemera.patterns.embedders._lexical import Lexical
from ephemera.patterns.embedders._minilm import MiniLM
from ephemera.patterns.embedders._openai import OpenAICompatible

__all__ = ["Embedder", "Lexical", "MiniLM", "OpenAICompatible"]
