"""Clusters of vectors by HDBSCAN, in processes of their own: the event loop goes on renewing its locks.

The vectors have unit length, so that Euclidean distance orders as cosine similarity does. All distances are
made at once (a product of matrices) and given to scikit-learn: at 2,000 insights a few seconds and
270 MB, and more by the square. A process that is lost (out of memory, killed) fails its run; the next one
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
from ephemera_services.feed.embeddings import unpacked

Array = NDArray[Any]


_ALIKE = 0.9  # the largest distance of two insights about one thing: a cosine similarity of 0.6


class Clustered(NamedTuple):
    """Array in the list of vectors: the largest cluster first, in each those nearest its middle."""

    clusters: list[list[int]]
    unclustered: list[int]


class ClusteringFailed(EphemeraError):
    """A run whose process was lost."""


def cluster(vectors: Sequence[bytes], smallest: int) -> Clustered:
    """Clusters of at least so many vectors; all of it is unclustered when there are fewer."""
    if len(vectors) < smallest:
        return Clustered([], list(range(len(vectors))))
    from sklearn.cluster import HDBSCAN

    rows = unpacked(vectors).astype(np.float64)
    distances = np.sqrt(np.clip(2.0 - 2.0 * (rows @ rows.T), 0.0, None))
    np.fill_diagonal(distances, 0.0)
    hdbscan = HDBSCAN(min_cluster_size=smallest, min_samples=1, metric="precomputed", copy=True)
    labels = hdbscan.fit_predict(distances)
    groups = [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
    if not groups:
        groups = _linked(distances, smallest)
    clusters = sorted((_from_the_middle(rows, group) for group in groups), key=len, reverse=True)
    clustered = {place for places in clusters for place in places}
    return Clustered(clusters, [place for place in range(len(rows)) if place not in clustered])


def _linked(distances: Array, smallest: int) -> list[Array]:
    """Groups of what is linked by likeness: few insights about one thing have no density to compare."""
    from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

    count, labels = connected_components(distances <= _ALIKE, directed=False)
    groups = (np.flatnonzero(labels == label) for label in range(count))
    return [group for group in groups if len(group) >= smallest]


def _from_the_middle(rows: Array, members: Array) -> list[int]:
    middle = rows[members].mean(axis=0)
    order = np.argsort(-(rows[members] @ middle), kind="stable")
    places: list[int] = members[order].tolist()
    return places


class Clusterizer:
    """Processes that cluster, at most so many at once."""

    def __init__(self, processes: int, smallest: int) -> None:
        self._processes = processes
        self._smallest = smallest
        self._pool = self._made()

    def _made(self) -> ProcessPoolExecutor:
        # Not forked: this process has threads and open connections.
        return ProcessPoolExecutor(self._processes, get_context("spawn"), initializer=_end_with_parent)

    async def cluster(self, vectors: Sequence[bytes]) -> Clustered:
        """The clusters of vectors of one model."""
        pool = self._pool
        try:
            return await asyncio.get_running_loop().run_in_executor(
                pool, cluster, list(vectors), self._smallest
            )
        except BrokenExecutor:
            if pool is self._pool:
                self._pool = self._made()
                pool.shutdown(wait=False)
            raise ClusteringFailed(f"a process that clustered {len(vectors)} insights was lost") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)


def _end_with_parent() -> None:
    """End this process when its parent is gone, in whatever way."""
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()


def _exit_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(0)
