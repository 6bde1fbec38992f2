"""Clusters vectors with HDBSCAN, in separate processes, so that the event loop keeps renewing its locks.

*Weights.* A dimension that most of the vectors have says little about any of them, so each is weighted by its
rarity in the dataset. That matters for bags of words, where "the" would be a similarity. Vectors of a model
have all dimensions and keep their directions.

*Cohesion.* HDBSCAN compares densities: where nothing is dense, it calls things a cluster that have nothing in
common. So each of its clusters is split by average linkage until the mean similarity between any two merged
parts is at least the cohesion, and parts that are too small are left out. What similarity means depends on
the embedder, and so does the cohesion.

*Copies.* A text that many publish is dense by itself, and would be a cluster beside the other wordings of its
story. So equal vectors are one row; they count where a cluster may be too small.

*Cost.* The vectors have unit length, so Euclidean distance orders like cosine similarity. All distances are
computed at once (a matrix product) and passed to scikit-learn: for 2,000 insights that takes a few seconds
and 270 MB, and it grows quadratically. If a process dies (out of memory, killed) its run fails; the next run
gets a new process.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ephemera.errors import EphemeraError
from ephemera_services.feed.embeddings import unpack

Array = NDArray[Any]


_COHESION = {"lexical-1": 0.15}  # by model: words are less often the same than meanings
_MODEL_COHESION = 0.28  # of models of meaning
_SAME = 0.93  # the similarity of near-duplicates, without weights


class Clustered(NamedTuple):
    """Indexes into the list of vectors: the largest cluster first, nearest to the centroid first."""

    clusters: list[list[int]]
    unclustered: list[int]


class ClusteringFailed(EphemeraError):
    """The process of a run died."""


def default_cohesion(model: str) -> float:
    """Return the least mean similarity within a cluster, for the vectors of a model."""
    return _COHESION.get(model, _MODEL_COHESION)


def cluster(vectors: Sequence[bytes], smallest: int, cohesion: float = _COHESION["lexical-1"]) -> Clustered:
    """Find clusters of at least `smallest` vectors; with fewer vectors all are unclustered."""
    if len(vectors) < smallest:
        return Clustered([], list(range(len(vectors))))
    same = _copies(vectors, smallest)
    sizes = np.array([len(each) for each in same])
    rows = _weighted(unpack(vectors).astype(np.float64))[[each[0] for each in same]]
    distances = np.sqrt(np.clip(2.0 - 2.0 * (rows @ rows.T), 0.0, None))
    np.fill_diagonal(distances, 0.0)
    parts = [
        part for group in _dense(distances, sizes, smallest) for part in _split(distances, group, cohesion)
    ]
    groups = [_by_centrality(rows, part) for part in parts if sizes[part].sum() >= smallest]
    clusters = [[index for row in group for index in same[row]] for group in groups]
    clusters.sort(key=len, reverse=True)
    clustered = {index for indexes in clusters for index in indexes}
    return Clustered(clusters, [index for index in range(len(vectors)) if index not in clustered])


def _copies(vectors: Sequence[bytes], smallest: int) -> list[list[int]]:
    """Indexes of equal vectors, or each alone where few differ, and copies are the only density."""
    copies: dict[bytes | int, list[int]] = {}
    for index, vector in enumerate(vectors):
        copies.setdefault(vector if any(vector) else index, []).append(index)  # no words are no text
    enough = len(copies) >= 2 * smallest
    return list(copies.values()) if enough else [[index] for index in range(len(vectors))]


def _dense(distances: Array, sizes: Array, smallest: int) -> list[Array]:
    """Find dense groups of rows, each of which stands for a number of equal ones."""
    from sklearn.cluster import HDBSCAN

    hdbscan = HDBSCAN(min_cluster_size=smallest, min_samples=1, metric="precomputed", copy=True)
    labels = hdbscan.fit_predict(distances)
    found = [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
    # A few insights about one subject have no density to compare: they are split like a single cluster. So
    # are those outside of clusters that were repeated.
    repeated = np.flatnonzero((labels < 0) & (sizes > 1))
    return [*found, repeated] if found else [np.arange(len(distances))]


def _weighted(rows: Array) -> Array:
    """Weight each dimension by how few of the rows have it, and make the rows of unit length again."""
    present = np.maximum(np.count_nonzero(rows, axis=0), 1)
    weighted: Array = rows * np.log1p(len(rows) / present)
    lengths = np.linalg.norm(weighted, axis=1, keepdims=True)
    weighted /= np.where(lengths > 0, lengths, 1.0)
    return weighted


def _split(distances: Array, group: Array, cohesion: float) -> list[Array]:
    """Split a group into parts whose mean similarity is at least the cohesion."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    if len(group) < 2:
        return [group] if len(group) else []
    # One minus the cosine similarity, of which a mean is meaningful.
    unlike = squareform(distances[np.ix_(group, group)] ** 2 / 2.0, checks=False)
    labels = fcluster(linkage(unlike, "average"), 1.0 - cohesion, "distance")
    return [group[labels == label] for label in np.unique(labels)]


def near_duplicates(vectors: Sequence[bytes]) -> list[int]:
    """Return for each vector the index of the first one that says the same, which may be itself."""
    if not vectors:
        return []
    rows = unpack(vectors)
    same = rows @ rows.T >= _SAME
    first = list(range(len(vectors)))
    for index in range(len(vectors)):
        if first[index] == index:
            later = np.flatnonzero(same[index, index + 1 :]) + index + 1
            for other in later.tolist():
                if first[other] == other:
                    first[other] = index
    return first


def _by_centrality(rows: Array, members: Array) -> list[int]:
    centroid = rows[members].mean(axis=0)
    order = np.argsort(-(rows[members] @ centroid), kind="stable")
    indexes: list[int] = members[order].tolist()
    return indexes


class ClusterPool:
    """A pool of processes that compute clusters."""

    def __init__(self, processes: int, smallest: int, cohesion: float = _COHESION["lexical-1"]) -> None:
        self._processes = processes
        self._smallest = smallest
        self._cohesion = cohesion
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        # Not forked: this process has threads and open connections.
        return ProcessPoolExecutor(self._processes, get_context("spawn"), initializer=_exit_with_parent)

    async def cluster(self, vectors: Sequence[bytes]) -> Clustered:
        """Cluster vectors of one model."""
        pool = self._pool
        try:
            return await asyncio.get_running_loop().run_in_executor(
                pool, cluster, list(vectors), self._smallest, self._cohesion
            )
        except BrokenExecutor:
            if pool is self._pool:
                self._pool = self._new_pool()
                pool.shutdown(wait=False)
            raise ClusteringFailed(f"the process that clustered {len(vectors)} insights died") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)


def _exit_with_parent() -> None:
    """Exit when the parent process ends, for whatever reason."""
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()


def _exit_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(0)
