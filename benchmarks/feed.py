"""The feed's rows: how well clusters agree with the stories that headlines are about.

A round embeds and clusters the headlines of `benchmarks.feed_headlines`, as a worker does. The first row is
the share of clustered headlines whose cluster is about their story, with the default embedder, which only
compares words: it may leave headlines out, and must not mix stories. The second is the adjusted Rand index
with sentence embeddings (the extra `minilm`), where every headline counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.feed_headlines import adjusted_rand_index, headlines, purity
from benchmarks.rows import Absolute, Opener, Round, Row
from benchmarks.servers import Servers
from ephemera.patterns.embedders import Lexical, MiniLM

SMALLEST = 3
"""The service's default: the least insights of a cluster."""

Figure = Callable[[Sequence[Sequence[int]], Sequence[str]], float]


async def clustered(embedder: Any) -> tuple[list[list[int]], list[str]]:
    """The clusters of the headlines with an embedder, and the headlines' labels."""
    from ephemera_services.feed.clusterer import cluster, default_cohesion
    from ephemera_services.feed.embeddings import embed_texts

    labels, texts = zip(*headlines(), strict=True)
    found = cluster(await embed_texts(embedder, texts), SMALLEST, default_cohesion(embedder.model))
    return found.clusters, list(labels)


def _agreement(embedder: Callable[[], Any], figure: Figure) -> Opener:
    @asynccontextmanager
    async def opened(_: Servers) -> AsyncIterator[Round]:
        opened_embedder = embedder()

        async def measured(_: float) -> float:
            return figure(*await clustered(opened_embedder))

        yield measured

    return opened


ROWS = (
    Row(
        "feed: purity of clusters, default embedder",
        _agreement(Lexical, purity),
        targets=(Absolute(0.95, "purity"),),
        unit="purity",
        turn=0.1,
    ),
    Row(
        "feed: clusters against stories, MiniLM",
        _agreement(MiniLM, adjusted_rand_index),
        targets=(Absolute(0.8, "adjusted Rand index"),),
        unit="adjusted Rand index",
        patience=120.0,  # the model is loaded
        turn=0.1,
    ),
)
