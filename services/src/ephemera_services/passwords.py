"""Passwords: argon2id in threads, a few at a time, and no longer queue than is worth waiting in.

A check takes some 50 ms and as many mebibytes as the settings say, by design. So it runs beside the event
loop, as many at once as there are processors, and when too many wait the next is told to come back (503).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from ephemera.web._problems import unavailable

T = TypeVar("T")

_MOST_WAITING = 64


class Passwords:
    """Hashes and checks passwords."""

    def __init__(self, memory: int) -> None:
        """`memory` in mebibytes."""
        self._hasher = PasswordHasher(time_cost=3, memory_cost=memory * 1024, parallelism=1)
        self._at_once = min(4, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(self._at_once, thread_name_prefix="passwords")
        self._under_way = 0
        self._nobodys = self._hasher.hash(os.urandom(16))

    async def hash(self, password: str) -> str:
        """What to keep of a password."""
        return await self._beside(lambda: self._hasher.hash(password))

    async def verify(self, password: str, kept: str | None) -> bool:
        """Whether it is the password; without a hash (there is no such user) it takes as long to say no."""
        return await self._beside(lambda: self._is(password, kept or self._nobodys)) and kept is not None

    def is_outdated(self, kept: str) -> bool:
        """Whether a hash was made with other costs than those of now."""
        return self._hasher.check_needs_rehash(kept)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _beside(self, work: Callable[[], T]) -> T:
        if self._under_way >= self._at_once + _MOST_WAITING:
            raise unavailable("Too many people are signing in at the moment; please try again.")
        self._under_way += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._under_way -= 1

    def _is(self, password: str, kept: str) -> bool:
        try:
            return self._hasher.verify(kept, password)
        except (VerificationError, InvalidHashError):
            return False
