"""Clusters vectors with HDBSCAN, in separate processes, so that the event loop keeps renewing its locks.

The vectors have unit length, so Euclidean distance orders like cosine similarity. All distances are computed
at once (a matrix product) and passed to scikit-learn: for 2,000 insights that takes a few seconds and 270 MB,
and it grows quadratically. If a process dies (out of memory, killed) its run fails; the next run gets a new
process.
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


_MAX_DISTANCE = 0.9  # of two insights about the same subject: a cosine similarity of 0.6


class Clustered(NamedTuple):
    """Indexes into the list of vectors: the largest cluster first, nearest to the centroid first."""

    clusters: list[list[int]]
    unclustered: list[int]


class ClusteringFailed(EphemeraError):
    """The process of a run died."""


def cluster(vectors: Sequence[bytes], smallest: int) -> Clustered:
    """Find clusters of at least `smallest` vectors; with fewer vectors all are unclustered."""
    if len(vectors) < smallest:
        return Clustered([], list(range(len(vectors))))
    from sklearn.cluster import HDBSCAN

    rows = unpack(vectors).astype(np.float64)
    distances = np.sqrt(np.clip(2.0 - 2.0 * (rows @ rows.T), 0.0, None))
    np.fill_diagonal(distances, 0.0)
    hdbscan = HDBSCAN(min_cluster_size=smallest, min_samples=1, metric="precomputed", copy=True)
    labels = hdbscan.fit_predict(distances)
    groups = [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
    if not groups:
        groups = _linked(distances, smallest)
    clusters = sorted((_by_centrality(rows, group) for group in groups), key=len, reverse=True)
    clustered = {index for indexes in clusters for index in indexes}
    return Clustered(clusters, [index for index in range(len(rows)) if index not in clustered])


def _linked(distances: Array, smallest: int) -> list[Array]:
    """Connected components by similarity: a few insights about one subject have no density to compare."""
    from scipy.sparse.csgraph import connected_components

    count, labels = connected_components(distances <= _MAX_DISTANCE, directed=False)
    groups = (np.flatnonzero(labels == label) for label in range(count))
    return [group for group in groups if len(group) >= smallest]


def _by_centrality(rows: Array, members: Array) -> list[int]:
    centroid = rows[members].mean(axis=0)
    order = np.argsort(-(rows[members] @ centroid), kind="stable")
    indexes: list[int] = members[order].tolist()
    return indexes


class ClusterPool:
    """A pool of processes that compute clusters."""

    def __init__(self, processes: int, smallest: int) -> None:
        self._processes = processes
        self._smallest = smallest
        self._pool = self._new_pool()

    def _new_pool(self) -> ProcessPoolExecutor:
        # Not forked: this process has threads and open connections.
        return ProcessPoolExecutor(self._processes, get_context("spawn"), initializer=_exit_with_parent)

    async def cluster(self, vectors: Sequence[bytes]) -> Clustered:
        """Cluster vectors of one model."""
        pool = self._pool
        try:
            return await asyncio.get_running_loop().run_in_executor(
                pool, cluster, list(vectors), self._smallest
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
