"""The port to a vector database: what a semantic cache asks of one, and nothing else.

A point is the vector of one entry: its id is the entry's, its `scope` the digest that a neighbour must have,
its `sources` what the answer rests on. Its `stamp` is new with each write. A point is removed only if it
still has the stamp that was seen, so who cleans up never removes what another has just written in its place.
No answer is ever stored here: a point without its entry can mislead nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol


class Point(NamedTuple):
    """One vector as it is stored, without its numbers."""

    id: str  # 32 hexadecimal digits
    stamp: str
    scope: str = ""
    sources: tuple[str, ...] = ()


class Near(NamedTuple):
    """A point, and the cosine similarity of its vector to the one asked for."""

    point: Point
    similarity: float


class Page(NamedTuple):
    """Some points, and where the next ones begin; None when these are the last."""

    points: list[Point]
    following: str | None


class Vectors(Protocol):
    """A vector database; each method raises `VectorStoreUnavailable` when it cannot do its work."""

    shared: bool
    """Whether other processes see the same vectors."""

    async def nearest(
        self, collection: str, vector: Sequence[float], scope: str, *, at_least: float, most: int
    ) -> list[Near]:
        """The nearest points of a scope, nearest first, none less similar than `at_least`."""

    async def keep(self, collection: str, point: Point, vector: Sequence[float]) -> None:
        """Write a point, in place of any with its id."""

    async def get(self, collection: str, point_id: str) -> Point | None:
        """One point."""

    async def remove(self, collection: str, points: Iterable[Point]) -> None:
        """Remove those points that still have their stamps."""

    async def page(
        self, collection: str, begin: str | None, *, source: str | None = None, size: int = 128
    ) -> Page:
        """Points in the order of their ids; with `source`, those that rest on it."""

    async def collections(self, prefix: str) -> list[str]:
        """The collections whose names begin so."""

    async def aclose(self) -> None:
        """Close it."""
