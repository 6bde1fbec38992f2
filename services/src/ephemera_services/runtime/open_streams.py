"""A limit on the open streams and WebSockets of each user, in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ephemera_services.runtime.problem_documents import problem


class OpenStreams:
    """Counts the open streams of users."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: Counter[object] = Counter()

    @contextmanager
    def opened(self, user_id: object) -> Iterator[None]:
        """Hold a stream of a user open; 429 if the user has as many as is allowed."""
        if self._open[user_id] >= self._limit:
            detail = f"You have {self._limit} open streams and sockets; close one of them first."
            raise problem(429, detail, headers=[(b"retry-after", b"5")])
        self._open[user_id] += 1
        try:
            yield
        finally:
            self._open[user_id] -= 1
            if not self._open[user_id]:
                del self._open[user_id]
